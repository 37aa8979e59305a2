"""Hydra's sweeper ``jobs``: run the jobs that a file lists.

Hydra loads plugins from packages of the name ``hydra_plugins``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from ltr.errors import ConfigError


class JobsSweeper(Sweeper):
    """Passes every job of a file to Hydra's launcher, in the file's order."""

    def __init__(self, jobs: str | None) -> None:
        """``jobs``: a YAML file, a list of lists of overrides."""
        self._jobs = jobs
        self._launcher: Launcher | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Build the launcher that ``config`` names."""
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launch the jobs, each with ``arguments`` too; raise the error of the first that failed.

        Raises:
            ConfigError: the file lists no jobs.
        """
        assert self._launcher is not None
        returned = self._launcher.launch(
            [[*job, *arguments] for job in self._read()], initial_job_idx=0
        )
        return [job.return_value for job in returned]

    def _read(self) -> list[Sequence[str]]:
        remedy = "give a YAML list of lists of overrides, such as - [loss=listnet, seed=1]"
        if self._jobs is None:
            raise ConfigError(f"hydra/sweeper=jobs needs hydra.sweeper.jobs=FILE: {remedy}")
        try:
            jobs = yaml.safe_load(Path(self._jobs).read_text())
        except (OSError, ValueError, yaml.YAMLError) as error:
            why = getattr(error, "strerror", None) or "not YAML"
            raise ConfigError(f"hydra.sweeper.jobs={self._jobs}: {why}; {remedy}") from error
        if not isinstance(jobs, list) or not all(isinstance(job, list) for job in jobs):
            raise ConfigError(f"hydra.sweeper.jobs={self._jobs}: {remedy}")
        return [[str(override) for override in job] for job in jobs]
