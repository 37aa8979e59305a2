"""A trained model as it was kept: loaded from a run folder without executing anything in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ltr.console.resolvers import run_folder
from ltr.data.transforms import FeatureTransform
from ltr.errors import CheckpointError
from ltr.experiment.build import make_convention, make_model, make_settings
from ltr.experiment.trust import kept_config, trusted, trusts_trees
from ltr.training.checkpoint import fitting, load_checkpoint, transform_of
from ltr.trees import BoostedTrees


@dataclass(frozen=True)
class KeptModel:
    """A model with the transform its features need, and the config it was trained by, unchecked."""

    model: nn.Module
    transform: FeatureTransform
    config: dict[str, Any]


def load_kept(path: str, device: torch.device, trust: Sequence[str] | str = ()) -> KeptModel:
    """Load the model of a run folder (its selected weights) or of one ``.pt`` file.

    Raises:
        CheckpointError: nothing readable is there, or it does not fit its own config.
        ConfigError: its config names code that is neither of this project nor in ``trust``.
    """
    folder = run_folder(path)
    if path.endswith(".pt"):
        file = folder / path.rpartition("/")[2]
        content = load_checkpoint(file, device)
    else:
        file = folder / "last.pt"
        content = load_checkpoint(file, device)
        if content["config"].get("select") != "last" and (folder / "best.pt").is_file():
            file = folder / "best.pt"
            content = load_checkpoint(file, device)
    config = kept_config(content, folder)
    checked = trusted(config, ["model"], trust)
    make_settings(checked), make_convention(checked)  # a value that is wrong is named
    make = make_model(checked.model)
    check_size(make, content["width"], file)
    model = make(content["width"]).to(device)
    if isinstance(model, BoostedTrees):
        model.trusted = trusts_trees(trust)
    with fitting(file):
        model.load_state_dict(content["model"])
        transform = transform_of(content)
    return KeptModel(model.eval(), transform, config)


def check_size(make: Callable[[int], nn.Module], width: int, file: Path) -> None:
    """Raise ``CheckpointError`` where the model is larger than ``file``, which holds its weights.

    Found without memory for a weight, so that a few bytes of config cannot ask for terabytes.
    """
    with fitting(file), torch.device("meta"):
        needed = sum(weight.nbytes for weight in make(width).parameters())
    if needed > file.stat().st_size:
        raise CheckpointError(
            f"{file} has {file.stat().st_size:,} bytes, the model of its config takes {needed:,}: "
            "train.py did not write it; use another"
        )
