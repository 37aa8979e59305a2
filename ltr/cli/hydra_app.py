"""Start Hydra with the arguments of a command.

``hydra.main`` would read the arguments from ``sys.argv``, print errors in its own way, and drop the
result of a run. Therefore this module starts Hydra itself, with the same parts of
``hydra._internal`` as ``hydra.main``; ``pyproject.toml`` limits the version of Hydra.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from ltr.cli.compose import explained
from ltr.cli.configs import CONFIGS, composed_with
from ltr.cli.folders import register_resolvers
from ltr.errors import ConfigError


class HydraApp:
    """A command with its arguments; it answers an option such as ``--cfg``, or starts runs.

    Each method raises ``ConfigError`` if an argument is invalid.
    """

    def __init__(self, config_name: str, arguments: Sequence[str]) -> None:
        """Start Hydra.

        Args:
            config_name: the name of the root config.
            arguments: the arguments in Hydra's grammar, including options such as ``--multirun``.
        """
        self._parser = get_args_parser()
        self._options = self._parser.parse_intermixed_args(list(arguments))
        if self._options.experimental_rerun:
            raise ConfigError(
                "--experimental-rerun is not supported: to continue a run, type resume=FOLDER"
            )
        self._config_name = self._options.config_name or config_name
        register_resolvers()
        version.setbase("1.3")
        search_path = create_config_search_path(self._options.config_path or str(CONFIGS))
        if user_folder := composed_with(config_name):
            before_schema = SearchPathQuery(provider="schema")
            search_path.prepend("own configs", f"file://{user_folder}", before_schema)
        GlobalHydra.instance().clear()  # the caller may have started Hydra
        self._hydra = Hydra.create_main_hydra2(config_name, search_path)
        GlobalHydra.instance().clear()  # the caller may start Hydra again

    @property
    def loader(self) -> ConfigLoader:
        """Hydra's loader of configs."""
        return self._hydra.config_loader

    def show(self) -> bool:
        """Print the answer to an option such as ``--cfg job``; return False if none was typed."""
        options = self._options
        config_name = self._config_name
        with explained():
            if options.hydra_help:
                self._hydra.hydra_help(config_name, self._parser, options)
            elif options.cfg:
                self._hydra.show_cfg(
                    config_name, options.overrides, options.cfg, options.package, options.resolve
                )
            elif options.shell_completion:
                self._hydra.shell_completion(config_name, options.overrides)
            elif options.info:
                self._hydra.show_info(options.info, config_name, options.overrides)
            else:
                return False
        return True

    def compose(self) -> DictConfig:
        """Compose the config, including its node ``hydra``.

        If a sweep gives several values to a key, the key has its default value here.
        """
        with explained():
            config = self._hydra.compose_config(
                self._config_name,
                self._options.overrides,
                RunMode.MULTIRUN,
                validate_sweep_overrides=False,
            )
        HydraConfig.instance().set_config(config)  # the names of folders refer to it
        return config

    @property
    def multirun(self) -> bool:
        """Whether ``--multirun`` is among the arguments."""
        return bool(self._options.multirun)

    def run(self, function: Callable[[DictConfig], Any]) -> Any:
        """Create the folder of a single run, and call ``function`` with the config.

        Return the result of ``function``.
        """

        def task(config: DictConfig) -> tuple[Any, Exception | None]:
            try:
                return function(config), None
            except Exception as error:  # raised below: Hydra would add a message of its own
                return None, error

        with explained():
            job = self._hydra.run(self._config_name, task, self._options.overrides)
            result, error = job.return_value
            if error is not None:
                raise error
        return result

    def sweep(self, function: Callable[[DictConfig], Any], overrides: Sequence[str] = ()) -> None:
        """Call ``function`` with the config of each job, using the launcher in the config.

        ``overrides`` are added to the arguments. If a job in this process fails, no other job
        starts, and the error of the job is raised.
        """
        # suppresses warnings from the processes of a launcher that was stopped
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
        all_overrides = [*self._options.overrides, *overrides, "hydra.mode=MULTIRUN"]
        process = os.getpid()
        errors: list[Exception] = []

        def task(config: DictConfig) -> Any:
            if errors:
                return math.nan
            try:
                return function(config)
            except Exception as error:
                if os.getpid() != process:  # a worker of the launcher, which passes the error on
                    raise
                errors.append(error)  # raised below: Hydra would add a message of its own
                return math.nan

        with explained():
            try:
                self._hydra.multirun(self._config_name, task, all_overrides)
            except Exception:
                if not errors:
                    raise
            if errors:
                raise errors[0]
