"""A sweeper for Hydra, which finds it because it is in the namespace package ``hydra_plugins``.

Every Hydra application in this Python environment imports this module, so it must import quickly.
"""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


class JobsSweeper(Sweeper):
    """The sweeper ``jobs``: it launches the jobs that a file lists, in that order."""

    def __init__(self, jobs: str) -> None:
        """Set ``jobs``, the path of a YAML file with a list of overrides for each job."""
        self._jobs = jobs

    def setup(self, **context: Any) -> None:
        """Build the launcher that the config names."""
        self._launcher = Plugins.instance().instantiate_launcher(**context)

    def sweep(self, arguments: list[str]) -> Any:
        """Launch the jobs, each with ``arguments`` added; return their values or raise an error."""
        listed = yaml.safe_load(Path(self._jobs).read_text())
        jobs = [[*map(str, job), *arguments] for job in listed]
        return [job.return_value for job in self._launcher.launch(jobs, initial_job_idx=0)]
