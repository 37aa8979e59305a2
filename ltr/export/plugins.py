"""The learning-to-rank plugins of Elasticsearch and OpenSearch: feature set and model, as JSON.

``model/linear`` with standard ``feature_normalizers``, ``model/xgboost+json`` and
``model/ranklib``. The plugins compute in float32. Lucene takes no score below 0, so that trees and
linear models carry a shift, and a network ends in a logistic unit.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ltr.data.transforms import column_range
from ltr.errors import ConfigError
from ltr.export.dense import Dense
from ltr.export.form import ExportContext, shifted
from ltr.export.ranklib import RankNetText, ensemble
from ltr.export.trees import Tree, Trees, above

_LINEAR, _XGBOOST, _RANKLIB = "linear", "xgboost+json", "ranklib"
_MARGIN = 1e-4  # of the shift, for what float32 loses in the sum


def plugin(
    form: Trees | Dense, context: ExportContext, kind: str | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """The files of the type ``kind``, None: the first that can hold the model, and notes.

    Raises:
        ConfigError: ``kind`` holds no such model, or a name is none of a field in a template.
    """
    if wrong := [name for name in context.features if "{{" in name]:
        raise ConfigError(
            f"{wrong[0]!r} is no name of a field in a mustache template, which replaces what "
            "stands behind {{: name the columns without it, and train again"
        )
    if isinstance(form, Trees):
        kinds: tuple[str, ...] = (_XGBOOST, _RANKLIB)
    else:
        kinds = (_LINEAR, _RANKLIB) if form.is_linear else (_RANKLIB,)
    kind = kinds[0] if kind is None else kind.removeprefix("model/")
    if kind not in kinds:
        raise ConfigError(f"format={kind}: this model goes into {' or '.join(kinds)}")
    if kind == _RANKLIB and context.lists.missing:
        raise ConfigError(
            "format=ranklib: RankLib takes a missing value for 0, and values of the lists are "
            "missing: use format=xgboost+json"
        )
    notes: dict[str, Any] = {"type": f"model/{kind}"}
    least, _ = column_range(context.lists.features)
    if (least < 0).any():
        notes["features_below_0"] = [context.features[i] for i in np.flatnonzero(least < 0)]
    model: dict[str, Any] = {"type": f"model/{kind}"}
    if isinstance(form, Trees):
        # the plugins mark a feature that matches nothing as missing: in a model that was trained
        # without missing values it stands for 0
        known = form.where_zero_goes() if context.absent_is_zero else form
        notes["absent_is_zero"] = context.absent_is_zero
        shift = max(0.0, -form.least) * (1 + _MARGIN)
        notes["score"] = shifted(shift)
        definition = (
            ensemble(known, shift) if kind == _RANKLIB else _splits(known, context.features, shift)
        )
    elif kind == _LINEAR:
        model["feature_normalizers"], definition, shift = _linear(form, context)
        notes["score"] = shifted(shift)
    else:
        network = RankNetText(form, context.scores)
        notes["score"], definition = network.described, network.text
    model["definition"] = definition  # text, as the plugin keeps it
    return _files(context, model), notes


def _files(context: ExportContext, model: Mapping[str, Any]) -> dict[str, str]:
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
        for name in context.features
    ]
    featureset = {"featureset": {"name": context.name, "features": features}}
    whole = {"model": {"name": context.name, "model": model}}
    return {
        "featureset.json": json.dumps(featureset, indent=1, allow_nan=False) + "\n",
        "model.json": json.dumps(whole, indent=1, allow_nan=False) + "\n",
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


def _splits(form: Trees, names: Sequence[str], shift: float) -> str:
    """``model/xgboost+json``: nested nodes, left where the value is below the condition."""

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

    splits = [nested(tree, 0, 0) for tree in form.with_bias(shift)]
    return json.dumps({"objective": "rank:ndcg", "splits": splits}, allow_nan=False)


def _single(value: Any) -> float:
    """A float32 number with no more digits than it has."""
    return float(str(np.float32(value)))
