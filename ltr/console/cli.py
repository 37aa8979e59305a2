"""Run a function as a command: one entry for all of them.

Importing this must stay cheap (no torch): ``--help`` and shell completion go through it.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ltr.console.arguments import as_hydra
from ltr.console.compose import explain
from ltr.console.configs import CONFIGS, composed_with, own_configs
from ltr.console.ending import ending, one_line
from ltr.console.folders import register_resolvers
from ltr.console.torchrun import check_torchrun
from ltr.errors import ConfigError
from ltr.training.interruption import stoppable

# Hydra 1.4 instantiates only what is listed; 1.3 asks for the behaviour of a version instead.
_HYDRA_MAIN: dict[str, Any] = (
    {"version_base": "1.3"}
    if tuple(int(n) for n in hydra.__version__.split(".")[:2]) < (1, 4)
    else {"execution_whitelist": ["ltr.*", "torch.nn.*", "torch.optim.*"]}
)


def command(
    config_name: str, stopped: str = ""
) -> Callable[[Callable[[DictConfig], Any]], Callable[[], None]]:
    """Decorator: make ``function(cfg)`` a command configured by ``configs/<config_name>.yaml``.

    It ends as ``ending`` says, and with status 1 where the function returns False.
    HYDRA_FULL_ERROR=1 shows every traceback.

    Args:
        config_name: of its root config.
        stopped: the line to print after a stop.
    """

    def decorate(function: Callable[[DictConfig], Any]) -> Callable[[], None]:
        def main() -> None:
            full = os.environ.get("HYDRA_FULL_ERROR") == "1"
            several = {"-m", "--multirun"} & {*sys.argv[1:]}  # a launcher may have children to end
            with (
                nullcontext() if full else ending(stopped),
                stoppable() if several else nullcontext(),
            ):
                check_torchrun(config_name, several=bool(several))
                done = through_hydra(config_name, function, as_hydra(config_name, sys.argv[1:]))
            if done is False:
                sys.exit(1)

        return main

    return decorate


def through_hydra(
    config_name: str, function: Callable[[DictConfig], Any], arguments: Sequence[str]
) -> Any:
    """Run ``function`` as Hydra's own entry does; return its last value in this process.

    Args:
        config_name: of the root config.
        function: takes the composed config.
        arguments: as Hydra takes them, ``--multirun`` and other options too.

    Raises:
        ConfigError: an argument is wrong.
    """
    done: Any = None

    @functools.wraps(function)
    def task(cfg: DictConfig) -> Any:
        nonlocal done
        sys.argv = [argv[0], *arguments, *_config_dir(own)]
        try:
            done = function(cfg)
            return done
        except Exception as error:
            if one_line(error) is None and not isinstance(error, BrokenPipeError):
                raise
            raise Stop(error) from error

    given, argv = os.environ.get("HYDRA_FULL_ERROR"), sys.argv
    own = own_configs()
    if {"-m", "--multirun"} & {*arguments}:  # of a stopped launcher
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
    register_resolvers()
    GlobalHydra.instance().clear()  # a command may start another
    entry = hydra.main(config_path=str(CONFIGS), config_name=config_name, **_HYDRA_MAIN)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # hand every exception to us
    seen = own and (composed_with(config_name) or CONFIGS)  # in place of one that was typed
    sys.argv = [argv[0], *arguments, *_config_dir(seen)]
    try:
        entry(task)()
    except Stop as stop:
        raise stop.args[0] from None
    except (HydraException, OmegaConfBaseException) as error:
        if given == "1":
            raise
        raise ConfigError(explain(error, config_name)) from error
    finally:
        os.environ["HYDRA_FULL_ERROR"] = given or "0"
        sys.argv = argv
    return done


def _config_dir(folder: Path | None) -> list[str]:
    return [] if folder is None else ["--config-dir", str(folder)]


class Stop(BaseException):
    """Carries an error through Hydra, which would print its own lines of an Exception."""
