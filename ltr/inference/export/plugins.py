"""The learning-to-rank plugins of Elasticsearch and OpenSearch: feature set and model, as JSON.

``model/linear`` with standard ``feature_normalizers``, ``model/xgboost+json`` and
``model/ranklib``. The plugins compute in float32. Lucene takes no score below 0, so that trees and
linear models carry a shift, and a network ends in a logistic unit.
"""

import json
from typing import Any

import numpy as np

from ltr.data.transforms import column_range
from ltr.errors import ConfigError
from ltr.inference.export.context import ExportContext, Exported, json_text, refuse_names, shifted
from ltr.inference.export.dense import Dense
from ltr.inference.export.ranklib import ensemble, network
from ltr.inference.export.trees import Tree, Trees, above

_LINEAR, _XGBOOST, _RANKLIB = "linear", "xgboost+json", "ranklib"
_MARGIN = 1e-4  # of the shift, for what float32 loses in the sum


def plugin(context: ExportContext) -> Exported:
    """The bodies of the requests that create the feature set and the model.

    Raises:
        ConfigError: the format holds no such model, or a name is none of a field in a template.
    """
    form, names, lists = context.form, context.features, context.lists
    assert form is not None
    refuse_names((name for name in names if "{{" in name), "a field in a mustache template")
    kinds: tuple[str, ...] = (_XGBOOST, _RANKLIB)
    if isinstance(form, Dense):
        kinds = (_LINEAR, _RANKLIB) if form.is_linear else (_RANKLIB,)
    kind = (context.format or kinds[0]).removeprefix("model/")
    if kind not in kinds:
        raise ConfigError(f"format={kind}: this model goes into {' or '.join(kinds)}")
    if kind == _RANKLIB and lists.missing:
        raise ConfigError(
            "format=ranklib: RankLib takes a missing value for 0, and values of the lists are "
            "missing: use format=xgboost+json"
        )
    notes: dict[str, Any] = {"type": f"model/{kind}"}
    model: dict[str, Any] = {"type": f"model/{kind}"}
    if len(below := np.flatnonzero(column_range(lists.features)[0] < 0)):
        notes["features_below_0"] = [names[i] for i in below]
    if isinstance(form, Trees):
        # the plugins mark a feature that matches nothing as missing: in a model that was trained
        # without missing values it stands for 0
        known = form.where_zero_goes() if context.absent_is_zero else form
        notes["absent_is_zero"] = context.absent_is_zero
        shift = max(0.0, -form.least) * (1 + _MARGIN)
        notes["score"] = shifted(shift)
        definition = ensemble(known, shift) if kind == _RANKLIB else _splits(known, names, shift)
    elif kind == _LINEAR:
        model["feature_normalizers"], definition, shift = _linear(form, context)
        notes["score"] = shifted(shift)
    else:
        definition, notes["score"] = network(form, context.scores)
    model["definition"] = definition  # text, as the plugin keeps it
    featureset = {"name": context.name, "features": [_feature(name) for name in names]}
    files = {
        "featureset.json": json_text({"featureset": featureset}),
        "model.json": json_text({"model": {"name": context.name, "model": model}}),
    }
    return context.texts(files, **notes)


def _feature(name: str) -> dict[str, Any]:
    field = {"field_value_factor": {"field": name, "missing": 0.0}}
    query = {"query": {"match_all": {}}, "functions": [field], "boost_mode": "replace"}
    return {
        "name": name,
        "params": [],
        "template_language": "mustache",
        "template": {"function_score": query},
    }


def _linear(form: Dense, context: ExportContext) -> tuple[dict[str, Any], str, float]:
    """Normalizers, weights, and the shift of the scores, which is in the mean of one feature.

    There is no bias: one feature's mean also carries it. The shift leaves below the least known
    score as much as the known scores span.
    """
    layer, items = form.layers[0], np.asarray(context.lists.features, np.float64)
    weights, known = layer.weights[0], context.scores.astype(np.float64)
    mean, deviation = items.mean(0), items.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0).astype(np.float32).astype(np.float64)
    scaled = weights * deviation
    if not scaled.any():
        raise ConfigError(f"format=linear: every weight is 0: use format={_RANKLIB}")
    shift = max(0.0, float(known.max() - 2 * known.min()))
    carrier = int(np.abs(scaled).argmax())
    constant = float(layer.bias[0] + weights @ mean + shift)  # what the centred sum lacks
    mean[carrier] -= constant / weights[carrier]
    normalizers = {
        name: {"standard": {"mean": float(m), "standard_deviation": float(d)}}
        for name, m, d in zip(context.features, mean, deviation, strict=True)
    }
    by_name = dict(zip(context.features, scaled.tolist(), strict=True))
    return normalizers, json.dumps(by_name, allow_nan=False), shift


def _splits(trees: Trees, names: tuple[str, ...], shift: float) -> str:
    """``model/xgboost+json``: nested nodes, left where the value is below the condition."""

    def nested(tree: Tree) -> dict[str, Any]:
        return tree.fold(
            lambda node: {"nodeid": node, "leaf": _single(tree.value[node])},
            lambda node, depth, left, right: {
                "nodeid": node,
                "depth": depth,
                "split": names[tree.feature[node]],
                "split_condition": _single(above(tree.threshold[node])),
                "yes": left["nodeid"],
                "no": right["nodeid"],
                "missing": (left if tree.missing_left[node] else right)["nodeid"],
                "children": [left, right],
            },
        )

    splits = list(map(nested, trees.with_bias(shift)))
    return json.dumps({"objective": "rank:ndcg", "splits": splits}, allow_nan=False)


def _single(value: Any) -> float:
    """A float32 number with no more digits than it has."""
    return float(str(np.float32(value)))
