"""Solr's learning-to-rank module: a feature store and a model, as JSON.

``LinearModel``, ``NeuralNetworkModel`` and ``MultipleAdditiveTreesModel``, which compute in
float32; a feature that a document lacks is 0. A feature is the field of its name; where the model
has a logarithm, a function query of that field.
"""

import json
from typing import Any

import numpy as np

from ltr.data.transforms import LOG, SIGNED_LOG, column_range
from ltr.errors import ConfigError
from ltr.export.dense import Dense, Layer
from ltr.export.form import IDENTIFIER, ExportContext, shifted
from ltr.export.trees import Tree, Trees

_LTR = "org.apache.solr.ltr"
_SLACK = np.float32(1e-6)  # Solr adds it to every threshold, in float32
_ACTIVATION = {"none": "identity", "leaky_relu": "leakyrelu"}  # the others have the same names


def solr(form: Trees | Dense, context: ExportContext) -> tuple[dict[str, str], dict[str, Any]]:
    """The feature store and the model, and notes.

    Raises:
        ConfigError: a name is no field of a function query.
    """
    model: dict[str, Any]
    notes: dict[str, Any] = {}
    if isinstance(form, Trees):
        features = [_field(context, name) for name in context.features]
        params, moved = _trees(form, context)
        model = {"class": f"{_LTR}.model.MultipleAdditiveTreesModel", "params": params}
        if moved:
            notes["thresholds_moved"] = moved  # where float32 has no number that Solr adds 1e-6 to
    else:
        features, layers = _logarithms(form, context)
        if form.is_linear:
            bias = float(layers[0].bias[0])
            names = [one["name"] for one in features]
            weights = dict(zip(names, layers[0].weights[0].tolist(), strict=True))
            model = {"class": f"{_LTR}.model.LinearModel", "params": {"weights": weights}}
            notes["score"] = shifted(-bias)
        else:
            told = [
                {
                    "matrix": layer.weights.tolist(),
                    "bias": layer.bias.tolist(),
                    "activation": _ACTIVATION.get(layer.activation, layer.activation),
                }
                for layer in layers
            ]
            model = {"class": f"{_LTR}.model.NeuralNetworkModel", "params": {"layers": told}}
    named = [{"name": one["name"]} for one in features]
    model = {"store": context.name, "name": context.name, "features": named, **model}
    files = {
        "features.json": json.dumps(features, indent=1, allow_nan=False) + "\n",
        "model.json": json.dumps(model, indent=1, allow_nan=False) + "\n",
    }
    return files, notes


def _field(context: ExportContext, name: str) -> dict[str, Any]:
    return {
        "store": context.name,
        "name": name,
        "class": f"{_LTR}.feature.FieldValueFeature",
        "params": {"field": name},
    }


def _logarithms(form: Dense, context: ExportContext) -> tuple[list[dict[str, Any]], list[Layer]]:
    """A feature for each input, its field or a function query, and the layers that read them.

    A query has no score below 0: Lucene makes it 0. So log(x + eps) is log(eps) + ln(1 + x / eps),
    its constant in the bias, and sign(x) log(1 + |x|) of a column with values below 0 is a feature
    for the part above 0 less one for that below.
    """
    first, *others = form.layers
    weights, bias = first.weights, first.bias.copy()
    least, most = column_range(context.lists.features)
    features, columns = [], []
    for i, name in enumerate(context.features):
        columns.append(weights[:, i])
        if form.shape[i] not in (LOG, SIGNED_LOG):
            features.append(_field(context, name))
            continue
        if not IDENTIFIER.fullmatch(name):
            raise ConfigError(
                f"to=solr: {name!r} is no name of a field in a function query, which its logarithm "
                "needs: name it by letters, digits and _, or set transform=standardise"
            )
        value, below = f"def({name},0)", f"product(-1.0,def({name},0))"
        if form.sign[i] < 0:
            value, below = below, value
        if form.shape[i] == LOG:
            bias += weights[:, i] * np.log(form.log_eps)
            scaled = f"product(max({value},0),{1 / form.log_eps!r})"
            features.append(_query(context, name, scaled))
            continue
        features.append(_query(context, name, f"max({value},0)"))
        if (least[i] if form.sign[i] > 0 else -most[i]) < 0:
            features.append(_query(context, f"{name}_below_0", f"max({below},0)"))
            columns.append(-weights[:, i])
    return features, [Layer(np.stack(columns, 1), bias, first.activation), *others]


def _query(context: ExportContext, name: str, value: str) -> dict[str, Any]:
    """The feature ln(1 + value)."""
    return _field(context, name) | {
        "class": f"{_LTR}.feature.SolrFeature",
        "params": {"q": "{!func}ln(sum(1," + value + "))"},
    }


def _trees(form: Trees, context: ExportContext) -> tuple[dict[str, Any], int]:
    """The trees, numbers as texts as Solr's own examples have them, and thresholds that moved."""
    moved = 0

    def node(tree: Tree, place: int) -> dict[str, Any]:
        nonlocal moved
        if tree.feature[place] < 0:
            return {"value": str(np.float32(tree.value[place]))}
        threshold = before_slack(tree.threshold[place])
        moved += bool(threshold + _SLACK != tree.threshold[place])
        return {
            "feature": context.features[tree.feature[place]],
            "threshold": str(threshold),
            "left": node(tree, int(tree.left[place])),
            "right": node(tree, int(tree.right[place])),
        }

    roots = [{"weight": "1.0", "root": node(tree, 0)} for tree in form.with_bias()]
    return {"trees": roots}, moved


def before_slack(threshold: np.float32) -> np.float32:
    """The number to which Solr's 1e-6 gives ``threshold``, or else the next one below it.

    >>> before_slack(np.float32(0.5)) + np.float32(1e-6)
    np.float32(0.5)
    """
    near = np.float32(threshold - _SLACK)
    while near + _SLACK <= threshold:
        near = np.nextafter(near, np.float32(np.inf))
    while near + _SLACK > threshold:
        near = np.nextafter(near, np.float32(-np.inf))
    return near
