"""Train composed configs, as ``train.py`` does after Hydra."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

import ltr.experiment.identity
import ltr.experiment.run
from ltr.data.lists import Dataset
from ltr.experiment.build import build
from ltr.training.hooks import Hook


def run(
    cfg: DictConfig,
    folder: Path,
    choices: Mapping[str, str] | None = None,
    dataset: Dataset | None = None,
    hooks: Sequence[Hook] = (),
    *,
    printed: bool = False,
) -> dict[str, float]:
    """Build and run ``cfg``; return the metrics of the selected weights."""
    experiment = build(cfg, choices, dataset)
    return ltr.experiment.run.run(experiment, folder, hooks, printed=printed).figures


def identity(cfg: DictConfig) -> str:
    """Return the identity of the run of ``cfg``."""
    return ltr.experiment.identity.identity(build(cfg))
