"""What the training of a run starts from: random weights, another run's model, or a checkpoint."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltr.data.lists import SPLITS, Columns, Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.build import Experiment
from ltr.experiment.identity import origins_of
from ltr.scorers.scorer import Scorer, check_columns
from ltr.training.checkpoint import check_same_run, features_of, fitting, load_checkpoint

log = logging.getLogger(__name__)

_SOURCE = ("_target_", "name", "folder", "path", "split")  # keys that identify a data set


@dataclass(frozen=True)
class Start:
    """What a run starts from; all are None if it starts from random weights."""

    initial: Scorer | None = None  # the model of ``init_from``, for a run that begins
    checkpoint: Mapping[str, Any] | None = None  # the content of last.pt, for a run that continues
    columns: Columns | None = None  # whose category codes the lists must have


def load_start(experiment: Experiment, folder: Path) -> Start:
    """Load what the run in ``folder`` starts from."""
    if not experiment.is_resumed:
        if experiment.load_initial is None:
            return Start()
        initial = experiment.load_initial()
        return Start(initial=initial, columns=initial.columns)
    file = folder / "last.pt"
    checkpoint = load_checkpoint(file, experiment.device)
    best = folder / "best.pt"
    if best.is_file():
        check_same_run(best, load_checkpoint(best, experiment.device), checkpoint)
    if experiment.load_initial is None:
        return Start(checkpoint=checkpoint)
    with fitting(file):
        _, columns = features_of(checkpoint)
    return Start(checkpoint=checkpoint, columns=columns)


def data_digests(experiment: Experiment, lists: Mapping[str, Lists]) -> dict[str, str | None]:
    """Return the digests of all that a run reads: the lists of each split, teacher and sorter."""
    digests: dict[str, str | None] = {split: part.digest for split, part in lists.items()}
    return digests | origins_of(experiment.record.config)


def check_unchanged(
    checkpoint: Mapping[str, Any], digests: Mapping[str, str | None], file: Path
) -> None:
    """Raise ``DataError`` if the data have changed since ``checkpoint`` was written to ``file``."""
    with fitting(file):
        recorded = checkpoint["data"]
        # a split that the run had may be gone
        present = dict.fromkeys(recorded.keys() & {*SPLITS}) | dict(digests)
        changed = [name for name, digest in present.items() if recorded.get(name) != digest]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since the run began: restore it, or start anew"
        )


def check_reads(scorer: Scorer, train: Lists, config: Mapping[str, Any], key: str) -> None:
    """Check that ``scorer`` reads the features of ``train``, and saw no lists of vali or test.

    Args:
        scorer: the model of another run.
        train: the training lists of this run.
        config: the resolved config of this run.
        key: the setting that names the other run: either ``init_from`` or ``teacher``.

    Raises:
        DataError: ``train`` has other features.
        ConfigError: the other run was trained on another fold, or another division, of the same
            data set. If it was trained on other lists, a warning is logged.
    """
    source = f"{key}={config[key]}"
    if scorer.transform.width != train.width:
        raise DataError(
            f"{source} was trained on {scorer.transform.width} features, train has {train.width}: "
            "give a run on lists with the same features"
        )
    check_columns(train, scorer.columns)
    if scorer.data.get("train") == train.digest:
        return
    dataset = config["dataset"]
    other_dataset = scorer.config["dataset"]
    division = ("fold", "seed", "fractions") if "fractions" in dataset else ("fold",)
    differing = [
        name for name in (*_SOURCE, *division) if other_dataset.get(name) != dataset.get(name)
    ]
    if differing and not {*differing} & {*_SOURCE}:
        name = differing[0]
        raise ConfigError(
            f"{source} may have seen lists of this vali or test: set dataset.{name} as it was "
            f"there, {other_dataset.get(name)}"
        )
    log.warning("%s was trained on other lists: vali and test must have none of them", source)
