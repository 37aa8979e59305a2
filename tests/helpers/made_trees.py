"""Small trees, trained in the process of the tests."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ltr.boosting import CatBoost, LightGBM, XGBoost
from ltr.boosting.model import FitData, Round, RoundModel
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.parts.components import build_part
from ltr.parts.scorer import load_model
from ltr.training.checkpoint import load_checkpoint
from ltr.training.evaluation import predict
from tests.helpers.made_lists import make_lists
from tests.helpers.runs import compose, run
from tests.helpers.some_steps import SETTINGS

needed = pytest.importorskip
LIBRARIES = ["lightgbm", "xgboost", "catboost"]
KINDS = {"lightgbm": LightGBM, "xgboost": XGBoost, "catboost": CatBoost}
SMALL = {
    "lightgbm": ["model.min_data_in_leaf=3", "model.num_leaves=4"],
    "stumps": ["model.min_data_in_leaf=3"],
    "xgboost": ["model.max_depth=2"],
    "catboost": ["model.depth=2"],
}


def reading(folder: Path) -> list[str]:
    """The overrides that name ``folder``, one of ``letor_folder``."""
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={folder}", f"cache_dir={folder}/cache",
    ]  # fmt: skip


def train(folder: Path, *overrides: str) -> dict[str, float]:
    folder.mkdir(exist_ok=True)
    (model,) = (o.partition("=")[2] for o in overrides if o.startswith("model="))
    return run(compose(*SMALL[model], *overrides), folder, {"model": model})


def booster_of(path: Path) -> bytes:
    return load_checkpoint(path)["model"]["_extra_state"].numpy().tobytes()


def tensors(lists: Lists) -> ItemTensors:
    return ItemTensors(lists, no_transform(lists))


def after(model: RoundModel, data: ItemTensors, rounds: int = 1, **more: Any) -> Round:
    """The round of a fit of ``model`` to ``data`` that comes so many rounds after the start."""
    settings = replace(SETTINGS, epochs=rounds, seed=more.pop("seed", 1))
    fit = FitData(data, {"train": data}, settings, **more)
    return next(islice(model.rounds(fit), rounds, None))


def a_loss(name: str, *overrides: str) -> Any:
    return build_part(compose(f"loss={name}", *overrides).loss, "loss")


def scores_of(path: Path) -> NDArray[np.float32]:
    """What the model kept at ``path`` makes of 50 items; its file holds settings and times too."""
    model = load_model(str(path), torch.device("cpu")).model
    return predict(model, tensors(make_lists([30, 20], seed=8)))
