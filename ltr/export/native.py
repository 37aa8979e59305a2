"""The file of a model's own library, or its numbers, and a reader that needs nothing of ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ltr.data.lists import Floats, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError
from ltr.export.form import Exported, Scores
from ltr.rounds import RoundModel
from ltr.rounds.numbers import NumbersModel
from ltr.trees import BoostedTrees, CatBoost, LightGBM
from ltr.trees.catboost import with_categories

_NUMBERS = "model.json"


def native(model: RoundModel, transform: FeatureTransform) -> Exported:
    """LightGBM's text, XGBoost's JSON, CatBoost's file; AdaRank, PRank, RankBoost as JSON.

    Their features are those behind the transform, which the manifest has in full.
    """
    notes = {"reads": "features behind the transform of the manifest"}
    if isinstance(model, NumbersModel):
        numbers = {name: array.tolist() for name, array in model.content.items()}
        content = {"model": type(model).__name__, "width": model.width, **numbers}
        text = json.dumps(content, allow_nan=False) + "\n"

        def run(folder: Path, lists: Lists) -> Scores:
            known = json.loads((folder / _NUMBERS).read_text())
            del known["model"], known["width"]
            model.take({name: np.array(values, np.float64) for name, values in known.items()})
            return model.score_items(transform(lists.features))

        return Exported({_NUMBERS: text}, run, "ltr on the numbers of the file", notes=notes)
    assert isinstance(model, BoostedTrees)
    if model.booster is None:
        raise ConfigError("to=native: there are no trees yet: train with epochs=1 or more")
    name, content_of, score = _library(model)

    def run_library(folder: Path, lists: Lists) -> Scores:
        return score(folder / name, transform(lists.features))

    ran_by = f"{model.title} {model.version}"
    return Exported({name: content_of}, run_library, ran_by, notes=notes)


def _library(model: BoostedTrees) -> tuple[str, bytes, Callable[[Path, Floats], Scores]]:
    """Name and content of the file, and its scores by the library alone."""
    library: Any = model.module
    if isinstance(model, LightGBM):
        return (
            "model.txt",
            model.content,
            lambda path, items: library.Booster(model_file=str(path)).predict(
                items, raw_score=True
            ),
        )
    if isinstance(model, CatBoost):
        return (
            "model.cbm",
            model.content,
            lambda path, items: (
                library.CatBoost()
                .load_model(str(path))
                .predict(with_categories(items, model.categories), prediction_type="RawFormulaVal")
            ),
        )

    def score(path: Path, items: Floats) -> Scores:
        kinds = ["c" if i in model.categories else "q" for i in range(model.width)]
        lists = library.DMatrix(items, feature_types=kinds, enable_categorical=True)
        found: Scores = library.Booster(model_file=str(path)).predict(lists, output_margin=True)
        return found

    return "model.json", bytes(model.booster.save_raw("json")), score
