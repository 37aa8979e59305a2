"""Run a function as a command. All commands of ``ltr`` start here.

Importing this module must stay cheap (no torch), because ``--help`` and shell completion use it.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import hydra
import yaml  # type: ignore[import-untyped]
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ltr.cli.arguments import SEVERAL, as_hydra
from ltr.cli.command_line import run_typed
from ltr.cli.compose import explain_error
from ltr.cli.configs import CONFIGS, composed_with, own_configs
from ltr.cli.folders import register_resolvers
from ltr.cli.options import parse_options
from ltr.cli.process import check_torchrun, ending, one_line
from ltr.errors import ConfigError
from ltr.training.interruption import stoppable

# commands that continue if the same command is given again
_GOES_ON = ("table", "search", "auto")


def run_command(name: str, function_path: str) -> None:
    """Run the command ``name`` with this process's arguments, and end it as ``ending`` describes.

    ``function_path`` names its function, as ``module:function``. It takes the options of the
    command (or the whole config) and returns a text to print, a bool, or both as a tuple. After
    False, the exit status is 1.
    """
    sys.path.append(str(Path.cwd()))  # the user's own modules
    goes_on = "stopped; the same command goes on from here" if name in _GOES_ON else ""
    with ending(goes_on), stoppable():
        check_torchrun(name, several=bool(SEVERAL & {*sys.argv[1:]}))
        command = partial(_call_and_print, function_path)
        if name == "train":
            outputs = through_hydra(name, command, as_hydra(sys.argv[1:]))
        else:
            outputs = run_typed(name, command, sys.argv[1:])
    if outputs and False in outputs:
        sys.exit(1)


def _call_and_print(function_path: str, config: Any) -> tuple[Any, ...]:
    """Call the command with ``config``, print the texts that it returns, and return all it does."""
    module, _, function = function_path.partition(":")
    result = call_command(getattr(import_module(module), function), config)
    outputs = result if isinstance(result, tuple) else (result,)
    for output in outputs:
        if isinstance(output, str):
            print(output)
    return outputs


def call_command(command: Callable[[Any], Any], cfg: DictConfig) -> Any:
    """Call ``command`` with ``cfg``, parsed into the dataclass that annotates its parameter."""
    (options_type,) = (hint for name, hint in get_type_hints(command).items() if name != "return")
    if isinstance(options_type, type) and is_dataclass(options_type):
        return command(parse_options(options_type, cfg))
    return command(cfg)


def through_hydra(
    config_name: str,
    function: Callable[[DictConfig], Any],
    arguments: Sequence[str],
    jobs: Sequence[Sequence[str]] = (),
) -> Any:
    """Run ``function`` on the composed config through Hydra's entry point, for each job of a sweep.

    Return its last result in this process; None if it was not called.

    Args:
        config_name: the root config.
        function: gets the composed config.
        arguments: in Hydra's grammar, including options such as ``--multirun``.
        jobs: for ``hydra/sweeper=jobs`` without a file, the overrides of each job.

    Raises:
        ConfigError: an argument is wrong.
    """
    result: Any = None

    def task(cfg: DictConfig) -> Any:
        nonlocal result
        sys.argv = [argv[0], *arguments, *_config_dir(user_folder)]
        try:
            result = function(cfg)
            return result
        except Exception as error:
            if one_line(error) is None and not isinstance(error, BrokenPipeError):
                raise
            raise Stop(error) from error

    argv = sys.argv
    user_folder = own_configs()
    if SEVERAL & {*arguments}:  # no warnings from a launcher that was stopped
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
    register_resolvers()
    Plugins.instance().register(JobsSweeper)
    JobsSweeper.listed = jobs
    GlobalHydra.instance().clear()  # a command may start another
    entry = hydra.main(config_path=str(CONFIGS), config_name=config_name, version_base="1.3")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let exceptions through to us
    config_dir = user_folder and (
        composed_with(config_name) or CONFIGS
    )  # replaces a typed --config-dir
    sys.argv = [argv[0], *arguments, *_config_dir(config_dir)]
    try:
        entry(task)()
    except Stop as stop:
        raise stop.args[0] from None
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain_error(error)) from error
    finally:
        sys.argv = argv
    return result


def _config_dir(folder: Path | None) -> list[str]:
    return [] if folder is None else ["--config-dir", str(folder)]


class Stop(BaseException):
    """Carry an error through Hydra, which prints messages of its own for any ``Exception``."""


class JobsSweeper(Sweeper):
    """A Hydra sweeper named ``jobs``, which launches all jobs of a list, in that order."""

    listed: Sequence[Sequence[str]] = ()  # the jobs that ``through_hydra`` was given

    def __init__(self, jobs: str | None) -> None:
        """Set ``jobs``, the path of a YAML file with a list of overrides for each job; None: the
        jobs are ``listed``.
        """
        self._jobs = jobs

    def setup(self, **context: Any) -> None:
        """Build the launcher that the config names."""
        self._launcher = Plugins.instance().instantiate_launcher(**context)

    def sweep(self, arguments: list[str]) -> Any:
        """Launch the jobs, each with ``arguments`` added; return their values or raise an error."""
        jobs = self.listed
        if self._jobs is not None:
            jobs = yaml.safe_load(Path(self._jobs).read_text())
        listed = [[*map(str, job), *arguments] for job in jobs]
        return [job.return_value for job in self._launcher.launch(listed, initial_job_idx=0)]


# Hydra accepts only plugins from the package hydra_plugins
JobsSweeper.__module__ = "hydra_plugins.ltr_jobs"
sys.modules["hydra_plugins.ltr_jobs"] = sys.modules[__name__]
