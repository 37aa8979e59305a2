"""Boosters of LightGBM, XGBoost and CatBoost as ``Trees``, and models by rounds as own files."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ltr.data.lists import Floats
from ltr.errors import ConfigError
from ltr.inference.export.context import ExportContext, Exported, Scores
from ltr.inference.export.trees import Tree, Trees, at_most, below, leaf, stump
from ltr.models.rounds import BoostedTrees, CatBoost, LightGBM, RankBoost, RoundModel, XGBoost
from ltr.models.rounds.arrays import NumbersModel


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


_CATEGORIES = ("splits on categories", "leave these columns out of the table")


def _refuse(wrong: Any, what: str, remedy: str) -> None:
    if wrong:
        raise ConfigError(
            f"the trees have {what}, which is of their library alone: {remedy}, or use to=native"
        )


def _lightgbm(booster: Any) -> Trees:
    trees = booster.dump_model()["tree_info"]
    return Trees(tuple(_of_lightgbm(one["tree_structure"]) for one in trees))


def _of_lightgbm(root: Mapping[str, Any]) -> Tree:
    """A tree of LightGBM: float64 thresholds, ``x <= t``.

    A missing value counts as 0 unless train had missing values in the feature.
    """
    nodes: list[Any] = [None]
    stack = [(0, root)]
    while stack:
        place, node = stack.pop()
        if "leaf_value" in node:
            _refuse("leaf_const" in node, "linear leaves", "leave out model.options.linear_tree")
            nodes[place] = (-1, 0.0, 0, 0, False, node["leaf_value"])
            continue
        kind, left = node["missing_type"], len(nodes)
        _refuse(node["decision_type"] != "<=", *_CATEGORIES)
        _refuse(kind == "Zero", "zeros that are missing", "leave out model.options.zero_as_missing")
        threshold = at_most(node["threshold"])
        missing_left = node["default_left"] if kind == "NaN" else threshold >= 0
        nodes[place] = (node["split_feature"], threshold, left, left + 1, missing_left, 0.0)
        nodes += [None, None]
        stack += [(left, node["left_child"]), (left + 1, node["right_child"])]
    return Tree.of(nodes)


def _xgboost(booster: Any) -> Trees:
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    boosted, base = learner["gradient_booster"], learner["learner_model_param"]["base_score"]
    name = boosted["name"]
    _refuse(name != "gbtree", f"booster={name}", "leave out model.options.booster")
    return Trees(tuple(map(_of_xgboost, boosted["model"]["trees"])), bias=float(base.strip("[]")))


def _of_xgboost(tree: Mapping[str, Any]) -> Tree:
    """A tree of XGBoost: float32 thresholds, ``x < t``; a leaf's value is its split condition."""
    _refuse(any(tree["split_type"]), *_CATEGORIES)
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
    uneven = "oblivious_trees" not in content
    _refuse(uneven, "no symmetric shape", "leave out model.options.grow_policy")
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
    _refuse(any(split["split_type"] != "FloatFeature" for split in splits), *_CATEGORIES)
    nodes: list[Any] = []
    for n in range(2 ** len(splits) - 1):
        split = splits[(n + 1).bit_length() - 1]
        feature = split["float_feature_index"]
        nodes.append((feature, split["border"], 2 * n + 1, 2 * n + 2, not above[feature], 0.0))
    for path in range(2 ** len(splits)):  # from left to right: the first split decides the most
        number = int(f"{path:0{len(splits)}b}"[::-1], 2)
        nodes.append((-1, 0.0, 0, 0, False, scale * values[number]))
    return Tree.of(nodes)


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
