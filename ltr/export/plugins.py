"""The learning-to-rank plugins of Elasticsearch and OpenSearch: feature set and model, as JSON.

``model/linear`` with standard ``feature_normalizers``, ``model/xgboost+json`` and
``model/ranklib``. The plugins compute in float32. Lucene takes no score below 0, so that
trees and linear models carry a shift, and a network ends in a logistic unit.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ltr.data.lists import Floats, Lists
from ltr.data.transforms import column_range
from ltr.errors import ConfigError
from ltr.export.dense import Dense
from ltr.export.form import Exported, Scores, Subject, shifted
from ltr.export.ranklib import RankNetText, ensemble, score_text
from ltr.export.trees import Tree, Trees, above, leaf, places, read_tree

LINEAR, XGBOOST, RANKLIB = "model/linear", "model/xgboost+json", "model/ranklib"
_OF_TREES, _OF_LINEAR, _OF_NETWORK = (XGBOOST, RANKLIB), (LINEAR, RANKLIB), (RANKLIB,)
FEATURES, MODEL = "featureset.json", "model.json"


def plugin(form: Trees | Dense, subject: Subject, kind: str | None) -> Exported:
    """The feature set and the model, of the type ``kind``; None: the first that can hold it.

    Raises:
        ConfigError: ``kind`` holds no such model, or a name is none of a field in a template.
    """
    if wrong := [name for name in subject.features if "{{" in name]:
        raise ConfigError(
            f"{wrong[0]!r} is no name of a field in a mustache template, which replaces what "
            "stands behind {{: name the columns without it, and train again"
        )
    if isinstance(form, Trees):
        kinds: tuple[str, ...] = _OF_TREES
    else:
        kinds = _OF_LINEAR if form.is_linear else _OF_NETWORK
    kind = kinds[0] if kind is None else f"model/{kind.removeprefix('model/')}"
    if kind not in kinds:
        known = " or ".join(one.removeprefix("model/") for one in kinds)
        raise ConfigError(f"format={kind.removeprefix('model/')}: this model goes into {known}")
    if kind == RANKLIB and subject.lists.missing:
        raise ConfigError(
            "format=ranklib: RankLib takes a missing value for 0, and values of the lists are "
            "missing: use format=xgboost+json"
        )
    notes: dict[str, Any] = {"type": kind}
    least, _ = column_range(subject.lists.features)
    negative = np.flatnonzero(least < 0)
    if len(negative):
        notes["features_below_0"] = [subject.features[i] for i in negative]
    normalizers: dict[str, Any] = {}
    if isinstance(form, Trees):
        shift = max(0.0, -form.least) * (1 + _MARGIN)
        definition: Any = _TREES[kind](form, subject, shift)
    elif kind == LINEAR:
        normalizers, definition, shift = _linear(form, subject)
    else:
        network = RankNetText(form, subject.scores)
        notes["score"] = network.described
        files = _files(subject, kind, {}, network.text)
        return Exported(files, _run, _RAN_BY, network.restore, notes)
    notes["score"] = shifted(shift)
    files = _files(subject, kind, normalizers, definition)
    return Exported(files, _run, _RAN_BY, lambda scores: scores.astype(float) - shift, notes)


_MARGIN = 1e-4  # of the shift, for what float32 loses in the sum
_RAN_BY = (
    "an interpreter of the plugin's formats, as those of Elasticsearch 1.5.9 and of OpenSearch 3.8 "
    "read them"
)


def _files(
    subject: Subject, kind: str, normalizers: Mapping[str, Any], definition: Any
) -> dict[str, str]:
    """The bodies of the requests that create the feature set and the model."""
    features = [
        {
            "name": name,
            "params": [],
            "template_language": "mustache",
            "template": {
                "function_score": {
                    "query": {"match_all": {}},
                    "functions": [{"field_value_factor": {"field": name, "missing": 0.0}}],
                    "boost_mode": "replace",
                }
            },
        }
        for name in subject.features
    ]
    model: dict[str, Any] = {"type": kind}
    if normalizers:
        model["feature_normalizers"] = normalizers
    text = definition if isinstance(definition, str) else json.dumps(definition, allow_nan=False)
    model["definition"] = text  # text, as the plugin keeps it
    featureset = {"featureset": {"name": subject.name, "features": features}}
    whole = {"model": {"name": subject.name, "model": model}}
    return {
        FEATURES: json.dumps(featureset, indent=1, allow_nan=False) + "\n",
        MODEL: json.dumps(whole, indent=1, allow_nan=False) + "\n",
    }


def _linear(form: Dense, subject: Subject) -> tuple[dict[str, Any], dict[str, float], float]:
    """Normalizers, weights, and the shift of the scores, which is in the mean of one feature.

    There is no bias: one feature's mean also carries it. The shift leaves below the least known
    score as much as the known scores span.
    """
    layer, items = form.layers[0], np.asarray(subject.lists.features, np.float64)
    weights, known = layer.weights[0], subject.scores.astype(np.float64)
    mean, deviation = items.mean(0), items.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0).astype(np.float32).astype(np.float64)
    scaled = weights * deviation
    if not scaled.any():
        raise ConfigError(f"format=linear: every weight is 0: use format={RANKLIB}")
    shift = max(0.0, float(known.max() - 2 * known.min()))
    carrier = int(np.abs(scaled).argmax())
    constant = float(layer.bias[0] + weights @ mean + shift)  # what the centred sum lacks
    mean[carrier] -= constant / weights[carrier]
    normalizers = {
        name: {"standard": {"mean": float(m), "standard_deviation": float(d)}}
        for name, m, d in zip(subject.features, mean, deviation, strict=True)
    }
    return normalizers, dict(zip(subject.features, scaled.tolist(), strict=True)), shift


def _shifted(form: Trees, subject: Subject, shift: float) -> tuple[Tree, ...]:
    """The trees and one leaf of the constant; an absent feature goes where its value would.

    The plugins mark a feature that matches nothing as missing: in a model that was trained without
    missing values it stands for 0.
    """
    known = form.where_zero_goes() if subject.absent_is_zero else form
    constant = form.bias + shift
    return (*known.trees, leaf(constant)) if constant else known.trees


def _as_splits(form: Trees, subject: Subject, shift: float) -> dict[str, Any]:
    """``model/xgboost+json``: nested nodes, left where the value is below the condition."""
    names = subject.features

    def nested(tree: Tree, place: int, depth: int) -> dict[str, Any]:
        if tree.feature[place] < 0:
            return {"nodeid": place, "leaf": _single(tree.value[place])}
        left, right = int(tree.left[place]), int(tree.right[place])
        return {
            "nodeid": place,
            "depth": depth,
            "split": names[tree.feature[place]],
            "split_condition": _single(above(tree.threshold[place])),
            "yes": left,
            "no": right,
            "missing": left if tree.missing_left[place] else right,
            "children": [nested(tree, left, depth + 1), nested(tree, right, depth + 1)],
        }

    trees = _shifted(form, subject, shift)
    return {"objective": "rank:ndcg", "splits": [nested(tree, 0, 0) for tree in trees]}


_TREES: Mapping[str, Callable[[Trees, Subject, float], Any]] = {
    XGBOOST: _as_splits,
    RANKLIB: lambda form, _, shift: ensemble(form, shift),
}


def _single(value: Any) -> float:
    """A float32 number with no more digits than it has."""
    return float(str(np.float32(value)))


def _run(folder: Path, lists: Lists) -> Scores:
    names = [
        one["name"] for one in json.loads((folder / FEATURES).read_text())["featureset"]["features"]
    ]
    return score_model(
        json.loads((folder / MODEL).read_text())["model"]["model"], names, lists.features
    )


def score_model(model: Mapping[str, Any], names: list[str], features: Floats) -> Scores:
    """The scores, ``[items]`` float32, that the plugin gives to features in the order ``names``.

    A missing value is 0, but in trees of XGBoost, where it takes the branch of missing ones.
    """
    kind, definition = model["type"], model["definition"]
    zeros = np.nan_to_num(np.asarray(features), nan=0.0)
    if kind == RANKLIB:
        return score_text(definition, zeros).astype(np.float32)
    content = json.loads(definition)
    if kind == LINEAR:
        total = np.zeros(len(zeros), np.float32)
        for name, column in zip(names, zeros.T, strict=True):
            if name in model.get("feature_normalizers", {}):
                known = model["feature_normalizers"][name]["standard"]
                mean, deviation = map(np.float32, (known["mean"], known["standard_deviation"]))
                column = (column - mean) / deviation
            total += np.float32(content.get(name, 0.0)) * column
        return total
    total = np.zeros(len(zeros), np.float32)
    for tree in (_of_splits(root, names) for root in content["splits"]):
        total += tree.value.astype(np.float32)[places(tree, np.asarray(features), strict=True)]
    return total


def _of_splits(root: Mapping[str, Any], names: list[str]) -> Tree:
    def read(node: Mapping[str, Any]) -> Any:
        if "leaf" in node:
            return float(node["leaf"])
        children, order = node["children"], [node["yes"], node["no"]]
        if [child["nodeid"] for child in children] != order:  # the plugin refuses them
            raise ValueError(f"node {node['nodeid']}: yes and no are not its children in order")
        missing_left = node["missing"] == node["yes"]
        return names.index(node["split"]), node["split_condition"], *children, missing_left

    return read_tree(root, read)
