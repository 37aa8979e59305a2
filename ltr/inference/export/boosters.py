"""Convert boosted trees and RankBoost to ``Trees``, or write the tree library's own file."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ltr.arrays import Reals
from ltr.boosting import BoostedTrees, LightGBM, RankBoost, XGBoost
from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.inference.export.context import ExportContext, Exported
from ltr.inference.export.forms import NODE, Tree, Trees, make_stump, next_below, round_down


def convert_trees(model: BoostedTrees | RankBoost) -> Trees:
    """Convert the trees of LightGBM, XGBoost or CatBoost, or the rankers of RankBoost.

    RankBoost treats a missing value as 0. Call ``check_engine`` first: it refuses splits on
    categories and feature transforms, which this function cannot convert.

    Raises:
        ConfigError: a LightGBM model uses an option that cannot be exported.
    """
    if isinstance(model, RankBoost):
        rankers = zip(*(model.content.get(name, ()) for name in model.names), strict=True)
        stumps = [
            make_stump(int(feature), float(threshold), 0.0, float(alpha))
            for feature, threshold, alpha in rankers
        ]
        return Trees(tuple(stumps))
    if model.booster is None:
        return Trees(())
    if isinstance(model, LightGBM):
        for option in ("linear_tree", "zero_as_missing"):
            if model.params.get(option):
                raise ConfigError(
                    f"model.options.{option} exists only in LightGBM: train without this option, "
                    "or use to=native"
                )
        return _convert_lightgbm(model.booster)
    if isinstance(model, XGBoost):
        return _convert_xgboost(model.booster)
    return _convert_catboost(model.booster)


def _convert_lightgbm(booster: Any) -> Trees:
    """Convert a LightGBM booster, whose splits are ``x <= t`` with float64 thresholds t.

    A missing value counts as 0 unless the feature had missing values in training.
    """

    def convert_tree(root: Mapping[str, Any]) -> Tree:
        rows: list[Any] = []

        def add(node: Mapping[str, Any]) -> int:
            index = len(rows)
            rows.append((-1, 0.0, 0, 0, False, node.get("leaf_value")))
            if "leaf_value" not in node:
                threshold = round_down(node["threshold"])
                missing_left = threshold >= 0
                if node["missing_type"] == "NaN":
                    missing_left = node["default_left"]
                left = add(node["left_child"])
                right = add(node["right_child"])
                rows[index] = (node["split_feature"], threshold, left, right, missing_left, 0.0)
            return index

        add(root)
        return np.array(rows, NODE)

    dump = booster.dump_model()
    return Trees(tuple(convert_tree(tree["tree_structure"]) for tree in dump["tree_info"]))


def _convert_xgboost(booster: Any) -> Trees:
    """Convert an XGBoost booster, whose splits are ``x < t`` with float32 thresholds t.

    A leaf is stored with its value in place of t.
    """
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]

    def convert_tree(stored: Mapping[str, Any]) -> Tree:
        tree = np.zeros(len(stored["left_children"]), NODE)
        left = np.array(stored["left_children"])
        conditions = np.array(stored["split_conditions"], "f4")
        is_leaf = left < 0
        tree["left"] = np.where(is_leaf, 0, left)
        tree["right"] = np.where(is_leaf, 0, stored["right_children"])
        tree["feature"] = np.where(is_leaf, -1, stored["split_indices"])
        tree["threshold"] = next_below(conditions)
        tree["value"] = np.where(is_leaf, conditions, 0)
        tree["missing_left"] = stored["default_left"]
        return tree

    trees = learner["gradient_booster"]["model"]["trees"]
    base = learner["learner_model_param"]["base_score"]
    return Trees(tuple(map(convert_tree, trees)), float(base.strip("[]")))


def _convert_catboost(booster: Any) -> Trees:
    """Convert a CatBoost booster.

    All nodes at the same depth of a tree have the same split, ``x > border``. Bit i of a leaf's
    number is 1 if the leaf is on the right of split i.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "booster.json"
        booster.save_model(str(path), format="json")
        content = json.loads(path.read_bytes())
    scale, bias = content["scale_and_bias"]
    floats = content["features_info"]["float_features"]
    missing_left = {
        feature["feature_index"]: feature["nan_value_treatment"] != "AsTrue" for feature in floats
    }

    def convert_tree(stored: Mapping[str, Any]) -> Tree:
        splits = stored["splits"] or []
        rows = list[Any]()
        for node in range(2 ** len(splits) - 1):
            split = splits[(node + 1).bit_length() - 1]
            feature = split["float_feature_index"]
            children = (2 * node + 1, 2 * node + 2)
            rows.append((feature, split["border"], *children, missing_left[feature], 0.0))
        for path in range(2 ** len(splits)):  # leaves from left to right; split 0 is the top bit
            number = int(f"{path:0{len(splits)}b}"[::-1], 2)
            rows.append((-1, 0.0, 0, 0, False, scale * stored["leaf_values"][number]))
        return np.array(rows, NODE)

    return Trees(tuple(map(convert_tree, content["oblivious_trees"])), float(np.sum(bias)))


def export_native(context: ExportContext) -> Exported:
    """Write the library's own file: LightGBM's text, XGBoost's JSON or CatBoost's binary.

    The file expects transformed features; the manifest contains the transform.

    Raises:
        ConfigError: the model has no trees yet.
    """
    model: Any = context.scorer.model
    if model.booster is None:
        raise ConfigError(
            "to=native: the model has no trees, because the selected epoch is 0 (before training): "
            "name a run whose selected epoch is later"
        )
    name = "model.cbm"
    content = model.content
    if isinstance(model, LightGBM):
        name = "model.txt"
    elif isinstance(model, XGBoost):
        name = "model.json"
        content = bytes(model.booster.save_raw("json"))

    def score(folder: Path, lists: Lists) -> Reals:
        booster = model.load((folder / name).read_bytes())
        return model.score_with(booster, context.scorer.transform(lists.features))

    notes = {"reads": "features after the transform of the manifest"}
    return Exported({name: content}, score, model.description, notes)
