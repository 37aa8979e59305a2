"""Write trees and layers in the text formats of Solr, RankLib, Elasticsearch and OpenSearch.

Solr's ``LinearModel``, ``NeuralNetworkModel`` and ``MultipleAdditiveTreesModel`` compute in
float32, and so does ``model/xgboost+json`` in the plugins of Elasticsearch and OpenSearch. RankLib
2.x reads ``LinearRegRank``, which computes in float64, and ``Ensemble``, which adds trees in
float32.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ltr.errors import ConfigError
from ltr.inference.export.context import ExportContext, Exported, json_text
from ltr.inference.export.forms import Layers, Trees, fold_tree, next_above
from ltr.inference.export.read_back import read_plugin, read_ranklib, read_solr

_SOLR = "org.apache.solr.ltr"
_SLACK = np.float32(1e-6)  # Solr adds it to every threshold, in float32
_MARGIN = 1e-4  # relative margin of the shift of trees; it covers rounding errors of float32 sums


def export_solr(context: ExportContext) -> Exported:
    """Write Solr's feature store and model.

    Each feature is read from the field with its name. Numbers in trees are strings, as in Solr's
    own examples.
    """
    shift = None
    if isinstance(context.converted, Trees):
        kind = "MultipleAdditiveTreesModel"
        params = {"trees": _solr_trees(context.converted, context.features)}
    elif context.converted.is_linear:
        linear = context.converted[0]
        kind = "LinearModel"
        params = {"weights": dict(zip(context.features, linear.weight[0].tolist(), strict=True))}
        shift = -float(linear.bias)
    else:
        kind = "NeuralNetworkModel"
        params = {"layers": _solr_layers(context.converted)}
    features = [
        {
            "store": context.name,
            "name": name,
            "class": f"{_SOLR}.feature.FieldValueFeature",
            "params": {"field": name},
        }
        for name in context.features
    ]
    model = {
        "store": context.name,
        "name": context.name,
        "features": [{"name": name} for name in context.features],
        "class": f"{_SOLR}.model.{kind}",
        "params": params,
    }
    files = {"features.json": json_text(features), "model.json": json_text(model)}
    return context.export_texts(files, read_solr, shift=shift)


def _solr_trees(trees: Trees, names: Sequence[str]) -> Any:
    """Return the trees in Solr's format, each with the weight 1."""

    def split(row: Any, left: Any, right: Any, *_: int) -> dict[str, Any]:
        return {
            "feature": names[row["feature"]],
            "threshold": str(threshold_before_slack(row["threshold"])),
            "left": left,
            "right": right,
        }

    def leaf(value: np.float32, _: int) -> dict[str, str]:
        return {"value": str(value)}

    return [{"weight": "1.0", "root": fold_tree(tree, leaf, split)} for tree in trees.with_bias()]


def _solr_layers(layers: Layers) -> Any:
    """Return the layers in Solr's format."""
    modules: Any = layers
    return [
        {
            "matrix": linear.weight.tolist(),
            "bias": linear.bias.tolist(),
            "activation": type(activation).__name__.lower(),  # Solr's name for it
        }
        for linear, activation in zip(modules[::2], modules[1::2], strict=True)
    ]


def threshold_before_slack(threshold: np.float32) -> np.float32:
    """Return the largest float32 that is at most ``threshold`` after Solr has added 1e-6 to it.

    >>> threshold_before_slack(np.float32(0.5)) + np.float32(1e-6)
    np.float32(0.5)
    """
    near = np.float32(threshold - _SLACK)
    while near + _SLACK <= threshold:
        near = np.nextafter(near, np.float32(np.inf))
    while near + _SLACK > threshold:
        near = np.nextafter(near, np.float32(-np.inf))
    return near


def export_ranklib(context: ExportContext) -> Exported:
    """Write RankLib's text for trees or a linear regression; features are numbered from 1."""
    converted = context.converted
    if not isinstance(converted, Trees):
        linear = converted[0]
        weights = [float(linear.bias), *linear.weight[0].tolist()]  # number 0 is the bias
        entries = " ".join(f"{number}:{weight!r}" for number, weight in enumerate(weights))
        text = f"## Linear Regression\n## Lambda = 1.0E-10\n{entries}\n"
        return context.export_texts({"model.txt": text}, read_ranklib)

    def leaf(value: np.float32, _: int) -> str:
        return f"<output>{value}</output>"

    def split(row: Any, left: str, right: str, *_: int) -> str:
        return (
            f"<feature>{row['feature'] + 1}</feature><threshold>{row['threshold']}</threshold>"
            f'<split pos="left">{left}</split><split pos="right">{right}</split>'
        )

    trees = converted.with_bias()
    lines = [
        f'<tree id="{number}" weight="1.0"><split>{fold_tree(tree, leaf, split)}</split></tree>'
        for number, tree in enumerate(trees, 1)
    ]
    head = ["## LambdaMART", f"## No. of trees = {len(trees)}", "", "<ensemble>"]
    text = "\n".join([*head, *lines, "</ensemble>", ""])
    return context.export_texts({"model.txt": text}, read_ranklib)


def export_plugin(context: ExportContext) -> Exported:
    """Write the requests that create the feature set and the model in Elasticsearch or OpenSearch.

    Lucene does not accept scores or features below 0. A constant is therefore added to the scores
    of the trees, and a feature with values below 0 is sent as ``max(0, value)``. If a tree splits
    the feature at a value below 0, ``max(0, -value)`` is also sent, under a second name.

    Raises:
        ConfigError: a feature already has the name of such a second feature.
    """
    trees: Trees = context.converted
    names = context.features
    shift = max(0.0, -trees.lower_bound) * (1 + _MARGIN)
    below_zero = {
        names[column]: f"{names[column]}.below_zero" for column in _split_below_zero(trees)
    }
    duplicates = set(names).intersection(below_zero.values())
    if duplicates:
        raise ConfigError(
            f"the export adds a feature named {min(duplicates)}, but the model already has a "
            "feature of this name: rename the column and train again"
        )
    features = [
        _feature(
            name,
            name,
            signed=bool(negative) or name in below_zero,
            absent_is_zero=context.absent_is_zero,
        )
        for name, negative in zip(names, context.negative, strict=True)
    ]
    features += [
        _feature(negated, name, signed=True, negated=True, absent_is_zero=context.absent_is_zero)
        for name, negated in below_zero.items()
    ]
    model = {
        "type": "model/xgboost+json",
        "definition": _xgboost_json(context, trees, shift, below_zero),
    }
    files = {
        "featureset.json": {"featureset": {"name": context.name, "features": features}},
        "model.json": {"model": {"name": context.name, "model": model}},
    }
    notes: dict[str, Any] = {"absent_is_zero": context.absent_is_zero}
    if below_zero:
        notes["below_zero"] = "NAME.below_zero is -NAME where NAME is below 0, else 0"
    texts = {name: json_text(content) for name, content in files.items()}
    return context.export_texts(texts, read_plugin, shift=shift, **notes)


def _split_below_zero(trees: Trees) -> list[int]:
    """Return the columns that some tree splits at a value below 0, in ascending order."""
    nodes = np.concatenate(trees.with_bias())
    below_zero = (nodes["feature"] >= 0) & (nodes["threshold"] < 0)
    return np.unique(nodes["feature"][below_zero]).tolist()


def _feature(
    name: str, field: str, *, signed: bool, negated: bool = False, absent_is_zero: bool
) -> dict[str, Any]:
    """Return a feature of a feature set, which reads a field of the documents.

    Args:
        name: name of the feature.
        field: name of the field.
        signed: whether the field has values below 0; if so, ``max(0, value)`` is sent.
        negated: whether ``max(0, -value)`` is sent instead.
        absent_is_zero: whether 0 is sent for a document without the field; if False, the feature
            does not match such a document.
    """
    factor: dict[str, Any] = {"field": field}
    functions: list[dict[str, Any]] = [{"field_value_factor": factor}]
    if negated:
        factor["factor"] = -1.0
    if signed:
        bound = "lt" if negated else "gte"
        functions[0]["filter"] = {"range": {field: {bound: 0.0}}}
        functions.append({"weight": 0.0})  # where the filter does not match
    elif absent_is_zero:
        factor["missing"] = 0.0
    query = {"match_all": {}} if absent_is_zero else {"exists": {"field": field}}
    scored = {
        "query": query,
        "functions": functions,
        "score_mode": "first",
        "boost_mode": "replace",
    }
    template = {"function_score": scored}
    return {"name": name, "params": [], "template_language": "mustache", "template": template}


def _xgboost_json(
    context: ExportContext, trees: Trees, shift: float, below_zero: Mapping[str, str]
) -> str:
    """Return ``model/xgboost+json``: nested nodes, in which a value below the condition goes left.

    A split ``x <= t`` with t below 0 is written as ``-x < -t``, with left and right exchanged.
    """

    def split(row: Any, left: Any, right: Any, node: int, depth: int) -> dict[str, Any]:
        threshold = row["threshold"]
        name = context.features[row["feature"]]
        absent_left = threshold >= 0 if context.absent_is_zero else row["missing_left"]
        missing = left if absent_left else right
        condition = next_above(threshold)
        if threshold < 0:
            name = below_zero[name]
            condition = -threshold
            left, right = right, left
        return {
            "nodeid": node,
            "depth": depth,
            "split": name,
            "split_condition": float(str(condition)),  # shortest float32 digits
            "yes": left["nodeid"],
            "no": right["nodeid"],
            "missing": missing["nodeid"],
            "children": [left, right],
        }

    def leaf(value: np.float32, node: int) -> dict[str, Any]:
        return {"nodeid": node, "leaf": float(str(value))}

    splits = [fold_tree(tree, leaf, split) for tree in trees.with_bias(shift)]
    return json.dumps({"objective": "rank:ndcg", "splits": splits}, allow_nan=False)
