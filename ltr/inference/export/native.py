"""The file of a model's own library, or its numbers."""

import json

import numpy as np

from ltr.data.lists import Floats
from ltr.errors import ConfigError
from ltr.inference.export.context import ExportContext, Exported, Scores
from ltr.models.rounds import BoostedTrees, LightGBM, XGBoost
from ltr.models.rounds.arrays import NumbersModel


def native(context: ExportContext) -> Exported:
    """LightGBM's text, XGBoost's JSON, CatBoost's file; AdaRank, PRank, RankBoost as JSON.

    Their features are those behind the transform, which the manifest has in full.
    """
    model, content = context.scorer.model, b""
    if isinstance(model, NumbersModel):
        name, ran_by = "model.json", "ltr on the numbers of the file"
        numbers = {key: array.tolist() for key, array in model.content.items()}
        known = {"model": type(model).__name__, "width": model.width, **numbers}
        content = json.dumps(known, allow_nan=False).encode() + b"\n"
    else:
        assert isinstance(model, BoostedTrees)
        if model.booster is None:
            raise ConfigError("to=native: there are no trees yet: train with epochs=1 or more")
        name, ran_by, content = "model.cbm", f"{model.title} {model.version}", model.content
        if isinstance(model, LightGBM):
            name = "model.txt"
        if isinstance(model, XGBoost):
            name, content = "model.json", bytes(model.booster.save_raw("json"))

    def score(content: bytes, items: Floats) -> Scores:
        if isinstance(model, BoostedTrees):
            return model.score_with(model.load(content), items)
        numbers = {key: np.array(json.loads(content)[key], np.float64) for key in model.content}
        model.take(numbers)
        return model.score_items(items)

    return Exported(
        {name: content},
        lambda folder, lists: score(
            (folder / name).read_bytes(), context.scorer.transform(lists.features)
        ),
        ran_by,
        {"reads": "features behind the transform of the manifest"},
    )
