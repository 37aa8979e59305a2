"""A trained model as it was kept: loaded from a run folder without executing anything in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ltr.data.transforms import FeatureTransform
from ltr.errors import CheckpointError
from ltr.experiment.build import make_model, trusted
from ltr.experiment.resolvers import run_folder
from ltr.training.checkpoint import load_checkpoint


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
        content = load_checkpoint(folder / path.rpartition("/")[2], device)
    else:
        last = load_checkpoint(folder / "last.pt", device)
        keep_last = last["config"].get("select") == "last" or not (folder / "best.pt").is_file()
        content = last if keep_last else load_checkpoint(folder / "best.pt", device)
    config = trusted(content["config"], ["model"], trust)
    model = make_model(config.model)(int(content["width"])).to(device)
    try:
        model.load_state_dict(content["model"])
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} does not fit the model of its own config: the program has changed since; use "
            "the version that wrote it"
        ) from error
    transform = FeatureTransform.from_state(content["transform"])
    return KeptModel(model.eval(), transform, content["config"])
