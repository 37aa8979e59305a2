"""A sweeper for Hydra, which finds it because it lies in the namespace package ``hydra_plugins``.

Every Hydra application of this Python imports this module: it must stay cheap.
"""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig


class JobsSweeper(Sweeper):
    """The sweeper ``jobs``: it launches the jobs that a file lists, in that order."""

    def __init__(self, jobs: str) -> None:
        """Set ``jobs``, the path of a YAML file with a list of overrides for each job."""
        self._jobs = jobs

    def setup(self, *, config: DictConfig, **context: Any) -> None:
        """Build the launcher that the config names."""
        self._launcher = Plugins.instance().instantiate_launcher(config=config, **context)
        self._is_parallel = config.hydra.runtime.choices["hydra/launcher"] != "basic"

    def sweep(self, arguments: list[str]) -> Any:
        """Launch the jobs, each with ``arguments`` added; return their values.

        Raises:
            Exception: the first error of a job; in this process, no other job begins after it.
        """
        listed = yaml.safe_load(Path(self._jobs).read_text())
        jobs = [[*map(str, overrides), *arguments] for overrides in listed]
        batches = [jobs] if self._is_parallel else [[job] for job in jobs]
        values = []
        for batch in batches:
            launched = self._launcher.launch(batch, initial_job_idx=len(values))
            values += [job.return_value for job in launched]
        return values
