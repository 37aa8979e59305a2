"""Hydra's sweeper ``jobs``: run the jobs that a file lists."""

import sys
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
        try:
            jobs = yaml.safe_load(Path(self._jobs or "").read_text())
            listed = [[*map(str, job), *arguments] for job in jobs if isinstance(job, list)]
        except (OSError, ValueError, TypeError, yaml.YAMLError):
            listed = []
        if not listed:
            raise ConfigError(
                f"hydra.sweeper.jobs={self._jobs}: give a YAML list of lists of overrides, such as "
                "- [loss=listnet, seed=1]"
            )
        return [job.return_value for job in self._launcher.launch(listed, initial_job_idx=0)]


# Hydra takes plugins of the package hydra_plugins alone
JobsSweeper.__module__ = "hydra_plugins.ltr_jobs"
sys.modules["hydra_plugins.ltr_jobs"] = sys.modules[__name__]
