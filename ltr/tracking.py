"""Hooks that send runs to an experiment tracker: MLflow or Weights & Biases.

If a tracker fails, training continues without it. To add your own tracker, write a class with the
methods ``begin``, ``log`` and ``end`` of ``MLflow``, and name it as ``_target_`` in
``configs/tracking/NAME.yaml``.
"""

import hashlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ltr.errors import need
from ltr.training.hooks import Ending, Hook, Row

log = logging.getLogger(__name__)

_BATCH = 100  # the most parameters that MLflow takes in one call
_SHOWN = 60  # the most characters of a name in a warning


class Tracking(Hook):
    """Tracks one run; an exception in the tracker becomes a warning and ends the tracking."""

    def __init__(self, tracker: Any, folder: Path) -> None:
        """Track the run in ``folder`` with ``tracker``."""
        self._chosen_tracker = tracker
        self._folder = folder.resolve()
        self._tracker: Any = None  # the tracker from the start of the run until it fails

    def start(self, experiment: Any, lists: Mapping[str, Any], scorer: Any) -> None:
        """Start tracking the run, or continue tracking it if it is resumed."""
        self._tracker = self._chosen_tracker
        self._call("begin", self._folder.name, experiment.record.parameters, self._folder)

    def replay(self, row: Row) -> None:
        """Do nothing, because this row was tracked before the run was stopped."""

    def epoch(self, row: Row) -> None:
        """Track a row of the history."""
        metrics = {name: value for name, value in row.items() if name != "epoch"}
        self._call("log", metrics, int(row["epoch"]))

    def end(self, ending: Ending, report: Any) -> None:
        """End the tracking, and send the results if there are any."""
        self._call("end", ending, report.tracked if report else {})

    def _call(self, method: str, *arguments: Any) -> None:
        try:
            if self._tracker is not None:
                getattr(self._tracker, method)(*arguments)
        except Exception as error:
            name = type(self._tracker).__name__
            text = " ".join(str(error).split())
            log.warning("%s stopped tracking (%s); the run continues without it", name, text[:300])
            self._tracker = None


class MLflow:
    """Sends the metrics of each epoch, the config and the run folder to MLflow.

    The config becomes parameters, and the run folder becomes the tag ``folder``.
    """

    def __init__(self, *, experiment: str, output_dir: str) -> None:
        """Store runs at ``MLFLOW_TRACKING_URI`` if it is set, else in ``output_dir/mlflow.db``."""
        self._experiment = experiment
        self._place = _place("mlflow.tracking", output_dir)
        self._refused = set[str]()  # the names that MLflow has refused; each is in one warning

    def begin(self, name: str, params: Mapping[str, Any], folder: Path) -> None:
        """Start or continue tracking the run in ``folder``; ``params`` is its config, flattened."""
        from filelock import FileLock
        from mlflow import MlflowClient

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        with FileLock(self._place / "mlflow.lock"):  # runs of a sweep start together
            uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self._place / 'mlflow.db'}"
            self._client = client = MlflowClient(tracking_uri=uri)
            experiment = client.get_experiment_by_name(self._experiment)
            experiment_id = (
                experiment.experiment_id
                if experiment
                else client.create_experiment(self._experiment)
            )
        if earlier_runs := client.search_runs([experiment_id], f'tags.folder = "{folder}"'):
            self._id = earlier_runs[0].info.run_id
            client.update_run(self._id, status="RUNNING")
            return
        tags = {"folder": str(folder)}
        self._id = client.create_run(experiment_id, run_name=name, tags=tags).info.run_id
        from mlflow.entities import Param

        entries = [Param(_name(key), str(value)) for key, value in params.items()]
        self._log_batches("params", entries)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Add the metrics of an epoch; this method is called in the order of the epochs."""
        from mlflow.entities import Metric

        timestamp = int(time.time() * 1000)
        entries = [Metric(_name(name), value, timestamp, epoch) for name, value in metrics.items()]
        self._log_batches("metrics", entries)

    def _log_batches(self, kind: str, entries: Sequence[Any]) -> None:
        """Log ``entries``, which are ``params`` or ``metrics``, in as few calls as possible.

        The entries that MLflow refuses are left out and named in one warning.
        """
        left = [entry for entry in entries if entry.key not in self._refused]
        refused = list[str]()
        for first in range(0, len(left), _BATCH):
            batch = left[first : first + _BATCH]
            if not self._accepts(kind, batch):
                refused += [entry.key for entry in batch if not self._accepts(kind, [entry])]
        if refused:
            self._refused |= {*refused}
            shown = ", ".join(key[:_SHOWN] for key in refused)
            log.warning("MLflow refuses some %s, which are left out: %s", kind, shown)

    def _accepts(self, kind: str, entries: Sequence[Any]) -> bool:
        """Log ``entries`` in one call; return whether MLflow accepts them."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_batch(self._id, **{kind: entries})
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            return False
        return True

    def end(self, ending: Ending, results: Mapping[str, float]) -> None:
        """End the run.

        ``results`` are those of the selected weights; they are empty unless the run finished.
        """
        self.log(results, 0)  # one value of each result
        self._client.set_terminated(self._id, ending.upper())


class WandB:
    """Sends the metrics of each epoch and the config to Weights & Biases.

    The results and the run folder are stored in the summary of the run.
    """

    def __init__(self, *, project: str, output_dir: str) -> None:
        """Write to ``output_dir/wandb``; environment variables such as ``WANDB_MODE`` apply."""
        self._project = project
        self._place = _place("wandb.sdk", output_dir)

    def begin(self, name: str, params: Mapping[str, Any], folder: Path) -> None:
        import wandb

        self._run = wandb.init(
            project=self._project,
            name=name,
            id=hashlib.sha256(str(folder).encode()).hexdigest()[:16],  # a resumed run keeps it
            resume="allow",
            dir=self._place,
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.config.update(dict(params), allow_val_change=True)  # a resume may change epochs=
        self._run.summary["folder"] = str(folder)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        self._run.log(dict(metrics), step=epoch)

    def end(self, ending: Ending, results: Mapping[str, float]) -> None:
        self._run.summary.update({**results, "ending": ending})
        self._run.finish(exit_code=0 if ending == "finished" else 1)


def _name(text: str) -> str:
    """Return ``text`` as a name for MLflow, which does not allow @ in names."""
    return text.replace("@", "_at_")


def _place(tracker: str, output_dir: str) -> Path:
    """Create the folder ``output_dir`` and return it.

    Raises ``ConfigError`` if ``tracker`` is missing.
    """
    need(tracker, "tracking")  # a submodule, because a folder may have the package's name
    folder = Path(output_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
