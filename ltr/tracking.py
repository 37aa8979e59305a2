"""Track runs with MLflow or Weights & Biases, by a hook.

Where a tracker fails, training goes on without it. One of one's own is a class with the methods of
``Tracker``, named by ``_target_`` in ``configs/tracking/NAME.yaml``.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ltr.atomic import atomic_write
from ltr.errors import ConfigError, install
from ltr.training.hooks import Ending, Hook, Row

log = logging.getLogger(__name__)

KEPT = "tracking.json"  # in the run folder: by tracker, the id and the last epoch that it was told


class Tracker(Protocol):
    """Tracks one run; whatever a method raises is one warning, and ends the tracking."""

    def begin(self, name: str, params: Mapping[str, Any], folder: Path, kept: str | None) -> str:
        """Begin to track the run in ``folder``; ``params`` are its config, flat.

        ``kept`` is the id that an earlier call returned for this run, which is resumed, or None;
        return it where that tracked run goes on, else another id.
        """

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Add the metrics of an epoch; epochs come in order."""

    def end(self, ending: Ending, results: Mapping[str, float]) -> None:
        """End the run; ``results`` are those of the tested weights, none unless it is finished."""


class Tracking(Hook):
    """One run and its tracker; no method raises an ``Exception``."""

    def __init__(
        self, tracker: Tracker, folder: Path, params: Callable[[Any], Mapping[str, Any]]
    ) -> None:
        """Track the run in ``folder`` by ``tracker``; ``params`` makes a config flat."""
        self._tracker: Tracker | None = tracker
        self._params, self._folder = params, folder
        self._file, self._name = folder / KEPT, type(tracker).__name__
        self._id, self._epoch = "", -1

    def start(self, cfg: Any, parts: Any, lists: Mapping[str, Any], scorer: Any) -> None:
        """Begin, or go on where the tracker stopped with this run."""
        before = self._read().get(self._name, {"id": None, "epoch": -1})

        def begin(tracker: Tracker) -> None:
            folder = self._folder.resolve()
            self._id = tracker.begin(self._folder.name, self._params(cfg), folder, before["id"])
            self._write(before["epoch"] if self._id == before["id"] else -1)

        self._call(begin)

    def epoch(self, row: Row) -> None:
        """Track a row of the history; a row that was tracked before the run stopped is left out."""
        epoch = int(row["epoch"])

        def add(tracker: Tracker) -> None:
            tracker.log({name: value for name, value in row.items() if name != "epoch"}, epoch)
            self._write(epoch)

        if epoch > self._epoch:
            self._call(add)

    def end(self, ending: Ending, report: Any) -> None:
        """End what was begun."""
        if self._id:
            self._call(lambda tracker: tracker.end(ending, report.tracked if report else {}))

    def _call(self, what: Callable[[Tracker], None]) -> None:
        try:
            if self._tracker is not None:
                what(self._tracker)
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            log.warning("%s stopped tracking (%s): the run goes on", self._name, text[:300])
            self._tracker = None

    def _read(self) -> dict[str, Any]:
        content = json.loads(self._file.read_text()) if self._file.is_file() else {}
        return content if isinstance(content, dict) else {}

    def _write(self, epoch: int) -> None:
        self._epoch = epoch
        mine = {self._name: {"id": self._id, "epoch": epoch}}
        atomic_write(self._file, json.dumps(self._read() | mine) + "\n")


class MLflow:
    """MLflow: metrics by epoch, the config as parameters, the run folder as the tag ``folder``."""

    def __init__(self, *, experiment: str, output_dir: str) -> None:
        """The store is that of ``MLFLOW_TRACKING_URI``, or else ``mlflow.db`` in ``output_dir``."""
        _needs("mlflow")
        self._experiment, self._output_dir = experiment, output_dir

    def begin(self, name: str, params: Mapping[str, Any], folder: Path, kept: str | None) -> str:
        from filelock import FileLock
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        local = _place(self._output_dir, "mlflow.db", folder, kept)
        with FileLock(local / "mlflow.lock"):  # runs of a sweep begin together
            uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{local / 'mlflow.db'}"
            self._client = client = MlflowClient(tracking_uri=uri)
            if kept is not None:
                try:
                    client.update_run(kept, status="RUNNING")
                    self._id = kept
                    return kept
                except MlflowException:
                    log.info("%s is not in %s: tracked as a new run", kept, uri)
            where = (local / "mlflow").as_uri() if uri.startswith("sqlite:") else None
            found = client.get_experiment_by_name(self._experiment)
            experiment = (
                found.experiment_id
                if found
                else client.create_experiment(self._experiment, artifact_location=where)
            )
        made = client.create_run(experiment, run_name=name, tags={"folder": str(folder)})
        self._id = str(made.info.run_id)
        every = [Param(_mlflow_name(key), str(value)) for key, value in params.items()]
        for start in range(0, len(every), 100):  # MLflow takes so many at once
            client.log_batch(self._id, params=every[start : start + 100])
        return self._id

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        every = [Metric(_mlflow_name(key), value, now, epoch) for key, value in metrics.items()]
        self._client.log_batch(self._id, metrics=every)

    def end(self, ending: Ending, results: Mapping[str, float]) -> None:
        self.log(results, 0)  # one value each
        self._client.set_terminated(self._id, ending.upper())


def _mlflow_name(name: str) -> str:
    """``name`` in the characters that MLflow takes: vali_ndcg_at_5."""
    return re.sub(r"[^\w/.\- ]", "_", name.replace("@", "_at_"))


class WandB:
    """Weights & Biases: metrics by epoch, the config, results and run folder in the summary."""

    def __init__(self, *, project: str, output_dir: str) -> None:
        """Its own files go to ``output_dir/wandb``; its variables, as ``WANDB_MODE``, hold."""
        _needs("wandb")
        self._project, self._output_dir = project, output_dir

    def begin(self, name: str, params: Mapping[str, Any], folder: Path, kept: str | None) -> str:
        import wandb

        self._run = wandb.init(
            project=self._project,
            name=name,
            id=kept,
            resume="allow",
            dir=_place(self._output_dir, "wandb", folder, kept),
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.config.update(dict(params), allow_val_change=True)  # such as epochs= of a resume
        self._run.summary["folder"] = str(folder)
        return str(self._run.id)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        self._run.log(dict(metrics), step=epoch)

    def end(self, ending: Ending, results: Mapping[str, float]) -> None:
        self._run.summary.update({**results, "ending": ending})
        self._run.finish(exit_code=0 if ending == "finished" else 1)


def _place(output_dir: str, store: str, folder: Path, kept: str | None) -> Path:
    """The folder of ``store``: ``output_dir``; of a resumed run, that in which it began."""
    before = [place for place in folder.parents if kept and (place / store).exists()]
    place = (before[0] if before else Path(output_dir)).resolve()
    place.mkdir(parents=True, exist_ok=True)
    return place


def _needs(package: str) -> None:
    """Raise ``ConfigError`` where ``package`` is not installed; it is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:  # None: a folder of that name, no package
        raise ConfigError(f"tracking={package}: {package} is not installed: {install('tracking')}")
