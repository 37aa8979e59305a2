"""What the training of a run starts from: random weights, another run's model, or a checkpoint."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ltr.data.lists import SPLITS, Columns, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, DataError
from ltr.experiment.build import Experiment
from ltr.parts.scorer import Scorer, check_columns, check_size, copy_weights
from ltr.training.checkpoint import (
    RUN,
    check_same_run,
    checkpoint_errors,
    features_of,
    load_checkpoint,
)


@dataclass(frozen=True)
class Start:
    """What a run starts from; if it starts from random weights, all but ``token`` are None."""

    initial: Scorer | None = None  # the model of ``init_from``, for a new run
    checkpoint: Mapping[str, Any] | None = None  # the content of last.pt, for a resumed run
    transform: FeatureTransform | None = None  # the transform of that model or checkpoint
    columns: Columns | None = None  # the columns of that model or checkpoint
    token: str | None = None  # random digits that all checkpoints of a run share

    @property
    def is_random(self) -> bool:
        """Whether the run starts from random weights."""
        return self.initial is None and self.checkpoint is None


def load_start(experiment: Experiment, folder: Path) -> Start:
    """Return what the run in ``folder`` starts from."""
    if experiment.is_resumed:
        return _start_from_checkpoint(folder)
    if experiment.initial is None:
        return Start(token=secrets.token_hex(16))
    initial = experiment.initial.load()
    token = secrets.token_hex(16)
    return Start(initial, None, initial.transform, initial.columns, token)


def _start_from_checkpoint(folder: Path) -> Start:
    file = folder / "last.pt"
    best = folder / "best.pt"
    checkpoint = load_checkpoint(file)
    if best.is_file():
        check_same_run(best, load_checkpoint(best), checkpoint)
    with checkpoint_errors(file):
        transform, columns = features_of(checkpoint)
    return Start(None, checkpoint, transform, columns, checkpoint.get(RUN))


def make_scorer(
    experiment: Experiment, start: Start, lists: Mapping[str, Lists], folder: Path
) -> Scorer:
    """Return the scorer to train, with random weights or the weights of ``init_from``.

    If the run is resumed, the trainer loads the weights of the checkpoint later.
    """
    config = experiment.record.config
    train = lists["train"]
    digests = {
        split: split_lists.digest for split, split_lists in lists.items()
    } | experiment.digest_origins()
    columns = start.columns
    if start.checkpoint is not None:
        check_same_data(start.checkpoint, digests, folder / "last.pt")
    elif start.initial is not None and experiment.initial is not None:
        experiment.initial.check(start.initial, train)
    else:
        columns = train.columns
    transform = start.transform or fit_feature_transform(experiment, train)
    if start.checkpoint is not None:
        check_size(experiment.make_model_for, transform, folder / "last.pt")
    for split_lists in lists.values():
        check_columns(split_lists, columns)
    torch.manual_seed(experiment.settings.seed)
    model = experiment.make_model_for(transform).to(experiment.device)
    if start.initial is not None:
        copy_weights(start.initial, model, config["transform"], f"init_from={config['init_from']}")
    return Scorer(model, transform, columns, dict(config), digests, experiment.device)


def check_same_data(
    checkpoint: Mapping[str, Any], digests: Mapping[str, str | None], file: Path
) -> None:
    """Raise ``DataError`` if the data have changed since ``checkpoint`` was written to ``file``."""
    with checkpoint_errors(file):
        recorded = checkpoint["data"]
        # a split of the run may no longer exist
        present = dict.fromkeys(recorded.keys() & {*SPLITS}) | dict(digests)
        changed = [name for name, digest in present.items() if recorded.get(name) != digest]
    if changed:
        raise DataError(
            f"the files of {', '.join(changed)} have changed since the run began: restore them, or "
            "start a new run"
        )


def fit_feature_transform(experiment: Experiment, train: Lists) -> FeatureTransform:
    """Return the transform of the features, fitted to the training lists."""
    transform = experiment.fit_transform(train)
    if not isinstance(transform, FeatureTransform):
        target = experiment.record.config["transform"]["_target_"]
        raise ConfigError(
            f"transform ({target}): expected a FeatureTransform (fit_transform and no_transform of "
            f"ltr.data.transforms return one), got {type(transform).__name__}"
        )
    return transform.keeping_missing() if experiment.is_boosted else transform
