"""Run a function as a command. All commands of ``ltr`` start here.

Importing this module must stay cheap (no torch), because ``--help`` and shell completion use it.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from ltr.cli.arguments import SEVERAL, as_hydra
from ltr.cli.command_line import config_of_command
from ltr.cli.configs import set_config_dir
from ltr.cli.help import help_of
from ltr.cli.hydra_app import HydraApp
from ltr.cli.options import parse_options
from ltr.cli.process import check_torchrun, ending
from ltr.errors import ConfigError
from ltr.training.interruption import stoppable

# commands that continue if they are repeated
_GOES_ON = ("table", "search", "auto")


def run_command(name: str, function_path: str) -> None:
    """Run the command ``name`` with the arguments of this process; ``ending`` describes its end.

    ``function_path`` names the function of the command in the form ``module:function``. The
    function of ``train`` takes the ``HydraApp``; the function of any other command takes the
    options of the command, or the whole config. It returns None, a string to print, a bool, or
    a tuple of a string and a bool. If the bool is False, the exit status is 1.
    """
    sys.path.append(str(Path.cwd()))  # the user's own modules
    goes_on = "stopped; repeat the command to continue" if name in _GOES_ON else ""
    typed = sys.argv[1:]
    with ending(goes_on), stoppable():
        is_sweep = bool(SEVERAL & {*typed})
        check_torchrun(name, several=is_sweep)
        if name == "train":
            result = _run_train(function_path, typed)
        elif is_sweep:
            raise ConfigError(f"{name} -m: only ltr train starts a sweep; leave out -m")
        else:
            config = config_of_command(name, typed)
            result = None if config is None else call_command(_import(function_path), config)
        outputs = result if isinstance(result, tuple) else (result,)
        for output in outputs:
            if isinstance(output, str):
                print(output)
    if False in outputs:
        sys.exit(1)


def _run_train(function_path: str, typed: Sequence[str]) -> Any:
    """Run ``train`` with the typed arguments, or answer an option such as ``--help``."""
    options = get_args_parser().parse_intermixed_args(list(typed))
    set_config_dir(options.config_dir)
    if options.help:
        print(help_of("train"), end="")
        return None
    app = HydraApp("train", as_hydra(typed))
    if app.show():
        return None
    train = _import(function_path)  # only now, as it takes long
    return train(app)


def _import(function_path: str) -> Callable[[Any], Any]:
    module, _, function = function_path.partition(":")
    return getattr(import_module(module), function)


def call_command(command: Callable[[Any], Any], cfg: DictConfig) -> Any:
    """Call ``command`` with ``cfg``, parsed into the dataclass that annotates its parameter."""
    (options_type,) = (hint for name, hint in get_type_hints(command).items() if name != "return")
    if isinstance(options_type, type) and is_dataclass(options_type):
        return command(parse_options(options_type, cfg))
    return command(cfg)
