"""Read the boosters of LightGBM, XGBoost and CatBoost, and ``RankBoost``, as ``Trees``."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ltr.errors import ConfigError
from ltr.export.trees import Tree, Trees, at_most, below, leaf, read_tree, stump, tree_of
from ltr.rounds import RankBoost, RoundModel
from ltr.trees import CatBoost, LightGBM, XGBoost


def trees_of(model: RoundModel) -> Trees:
    """The trees of a model, over transformed features.

    Raises:
        ConfigError: they hold what no engine has, such as splits on categories.
    """
    if isinstance(model, RankBoost):
        rankers = zip(*(model.content.get(name, ()) for name in model.names), strict=True)
        return Trees(tuple(stump(int(f), float(t), 0.0, float(a)) for f, t, a in rankers))
    for kind, read in ((LightGBM, _lightgbm), (XGBoost, _xgboost), (CatBoost, _catboost)):
        if isinstance(model, kind):
            return read(model.booster) if model.booster is not None else Trees((leaf(0.0),))
    raise ConfigError(
        f"{type(model).__name__} has no trees: train model=lightgbm, xgboost, catboost or rankboost"
    )


def _no_other(what: str, remedy: str) -> ConfigError:
    return ConfigError(
        f"the trees have {what}, which is of their library alone: {remedy}, or use to=native"
    )


def _lightgbm(booster: Any) -> Trees:
    dumped = booster.dump_model()["tree_info"]
    return Trees(tuple(read_tree(one["tree_structure"], _of_lightgbm) for one in dumped))


def _of_lightgbm(node: Mapping[str, Any]) -> Any:
    """A node of LightGBM for ``read_tree``: float64 thresholds, ``x <= t``.

    A missing value counts as 0 unless train had missing values in the feature.
    """
    if "leaf_value" in node:
        if "leaf_const" in node:
            raise _no_other("linear leaves", "leave out model.options.linear_tree")
        return float(node["leaf_value"])
    if node["decision_type"] != "<=":
        raise _no_other("splits on categories", "leave these columns out of the table")
    if node["missing_type"] == "Zero":
        raise _no_other("zeros that are missing", "leave out model.options.zero_as_missing")
    threshold = at_most(float(node["threshold"]))
    known = node["missing_type"] == "NaN"
    missing_left = bool(node["default_left"] if known else threshold >= 0)
    left, right = node["left_child"], node["right_child"]
    return node["split_feature"], threshold, left, right, missing_left


def _xgboost(booster: Any) -> Trees:
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    boosted = learner["gradient_booster"]
    if boosted["name"] != "gbtree":
        raise _no_other(f"booster={boosted['name']}", "leave out model.options.booster")
    base = learner["learner_model_param"]["base_score"].strip("[]")
    return Trees(tuple(map(_of_xgboost, boosted["model"]["trees"])), bias=float(base))


def _of_xgboost(tree: Mapping[str, Any]) -> Tree:
    """A tree of XGBoost: float32 thresholds, ``x < t``; a leaf's value is its split condition."""
    if any(tree["split_type"]):
        raise _no_other("splits on categories", "leave these columns out of the table")
    left, right = (np.array(tree[f"{side}_children"], np.int64) for side in ("left", "right"))
    leaves, conditions = left < 0, np.array(tree["split_conditions"], np.float32)
    return Tree(
        feature=np.where(leaves, -1, np.array(tree["split_indices"], np.int64)),
        threshold=np.where(leaves, 0, below(conditions)).astype(np.float32),
        left=np.where(leaves, 0, left),
        right=np.where(leaves, 0, right),
        missing_left=np.array(tree["default_left"], bool) & ~leaves,
        value=np.where(leaves, conditions, 0).astype(np.float64),
    )


def _catboost(booster: Any) -> Trees:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "booster.json"
        booster.save_model(str(path), format="json")
        content = json.loads(path.read_bytes())
    if "oblivious_trees" not in content:
        raise _no_other("no symmetric shape", "leave out model.options.grow_policy")
    scale, bias = content["scale_and_bias"]
    above = {
        one["feature_index"]: one["nan_value_treatment"] == "AsTrue"
        for one in content["features_info"]["float_features"]
    }
    made = tuple(_of_catboost(tree, above, scale) for tree in content["oblivious_trees"])
    return Trees(made, bias=float(np.sum(bias)))


def _of_catboost(tree: Mapping[str, Any], above: Mapping[int, bool], scale: float) -> Tree:
    """A tree of CatBoost, with the same split at all nodes of a depth; ``x > border`` goes right.

    The bit i of a leaf's number says where the split i went.
    """
    splits, values = tree["splits"] or [], tree["leaf_values"]
    if any(split["split_type"] != "FloatFeature" for split in splits):
        raise _no_other("splits on categories", "leave these columns out of the table")
    nodes: list[Any] = []
    for depth, split in enumerate(splits):
        feature, border = split["float_feature_index"], np.float32(split["border"])
        first = 2**depth - 1
        nodes += [
            (feature, border, 2 * n + 1, 2 * n + 2, not above[feature], 0.0)
            for n in range(first, first + 2**depth)
        ]
    depth = len(splits)
    for path in range(2**depth):  # the leaves from left to right: the first split decides the most
        number = sum(((path >> (depth - 1 - i)) & 1) << i for i in range(depth))
        nodes.append((-1, 0.0, 0, 0, False, scale * values[number]))
    return tree_of(nodes)
