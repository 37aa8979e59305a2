"""Convert boosted trees and RankBoost to ``Trees``, or write the tree library's own file."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ltr.arrays import Reals
from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.inference.export.context import ExportContext, Exported
from ltr.inference.export.forms import NODE, Tree, Trees, at_most, below, stump
from ltr.models.rounds import BoostedTrees, LightGBM, RankBoost, XGBoost


def trees_of(model: BoostedTrees | RankBoost) -> Trees:
    """Convert the trees of LightGBM, XGBoost or CatBoost, or the rankers of RankBoost.

    RankBoost treats a missing value as 0. ``check_engine`` must have been called before: it refuses
    splits on categories and feature transforms.

    Raises:
        ConfigError: a LightGBM model uses an option that cannot be exported.
    """
    if isinstance(model, RankBoost):
        rankers = zip(*(model.content.get(name, ()) for name in model.names), strict=True)
        return Trees(tuple(stump(int(f), float(t), 0.0, float(a)) for f, t, a in rankers))
    if model.booster is None:
        return Trees(())
    if isinstance(model, LightGBM):
        for option in ("linear_tree", "zero_as_missing"):
            if model.params.get(option):
                raise ConfigError(
                    f"model.options.{option} is LightGBM's alone: leave it out, or use to=native"
                )
        return _lightgbm(model.booster)
    return (_xgboost if isinstance(model, XGBoost) else _catboost)(model.booster)


def _lightgbm(booster: Any) -> Trees:
    """Convert a LightGBM booster: splits ``x <= t`` with float64 thresholds.

    A missing value counts as 0 unless train had missing values in the feature.
    """

    def tree_of(root: Mapping[str, Any]) -> Tree:
        rows: list[Any] = []

        def add(node: Mapping[str, Any]) -> int:
            place = len(rows)
            rows.append((-1, 0.0, 0, 0, False, node.get("leaf_value")))
            if "leaf_value" not in node:
                kind, threshold = node["missing_type"], at_most(node["threshold"])
                missing_left = node["default_left"] if kind == "NaN" else threshold >= 0
                sides = add(node["left_child"]), add(node["right_child"])
                rows[place] = (node["split_feature"], threshold, *sides, missing_left, 0.0)
            return place

        add(root)
        return np.array(rows, NODE)

    return Trees(tuple(tree_of(t["tree_structure"]) for t in booster.dump_model()["tree_info"]))


def _xgboost(booster: Any) -> Trees:
    """Convert an XGBoost booster: ``x < t`` with float32 t. A leaf's value is in the place of t."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    known_trees = learner["gradient_booster"]["model"]["trees"]

    def tree_of(known: Mapping[str, Any]) -> Tree:
        tree = np.zeros(len(known["left_children"]), NODE)
        left, conditions = (
            np.array(known["left_children"]),
            np.array(known["split_conditions"], "f4"),
        )
        leaves = left < 0
        tree["left"], tree["right"] = np.where(leaves, 0, [left, known["right_children"]])
        tree["feature"] = np.where(leaves, -1, known["split_indices"])
        tree["threshold"], tree["value"] = below(conditions), np.where(leaves, conditions, 0)
        tree["missing_left"] = known["default_left"]
        return tree

    base = learner["learner_model_param"]["base_score"]
    return Trees(tuple(map(tree_of, known_trees)), float(base.strip("[]")))


def _catboost(booster: Any) -> Trees:
    """Convert a CatBoost booster, whose trees have one split, ``x > border``, for all nodes of a
    depth. Bit i of a leaf's number is 1 on the right of split i.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "booster.json"
        booster.save_model(str(path), format="json")
        content = json.loads(path.read_bytes())
    scale, bias = content["scale_and_bias"]
    floats = content["features_info"]["float_features"]
    missing_left = {f["feature_index"]: f["nan_value_treatment"] != "AsTrue" for f in floats}

    def tree_of(known: Mapping[str, Any]) -> Tree:
        splits, rows = known["splits"] or [], list[Any]()
        for n in range(2 ** len(splits) - 1):
            split = splits[(n + 1).bit_length() - 1]
            feature = split["float_feature_index"]
            sides = 2 * n + 1, 2 * n + 2
            rows.append((feature, split["border"], *sides, missing_left[feature], 0.0))
        for path in range(2 ** len(splits)):  # leaves from left to right; split 0 is the top bit
            number = int(f"{path:0{len(splits)}b}"[::-1], 2)
            rows.append((-1, 0.0, 0, 0, False, scale * known["leaf_values"][number]))
        return np.array(rows, NODE)

    return Trees(tuple(map(tree_of, content["oblivious_trees"])), float(np.sum(bias)))


def native(context: ExportContext) -> Exported:
    """Write the library's own file: LightGBM's text, XGBoost's JSON or CatBoost's binary.

    It expects transformed features; the manifest has the complete transform.

    Raises:
        ConfigError: the model has no trees yet.
    """
    model: Any = context.scorer.model
    if model.booster is None:
        raise ConfigError(
            "to=native: the model has no trees, as its weights are of epoch 0, the start: give a "
            "run of which a later epoch was chosen"
        )
    name, content = "model.cbm", model.content
    if isinstance(model, LightGBM):
        name = "model.txt"
    elif isinstance(model, XGBoost):
        name, content = "model.json", bytes(model.booster.save_raw("json"))

    def run(folder: Path, lists: Lists) -> Reals:
        booster = model.load((folder / name).read_bytes())
        return model.score_with(booster, context.scorer.transform(lists.features))

    reads = {"reads": "features behind the transform of the manifest"}
    return Exported({name: content}, run, model.description, reads)
