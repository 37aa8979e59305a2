"""Solr's learning-to-rank module: a feature store and a model, as JSON.

``LinearModel``, ``NeuralNetworkModel`` and ``MultipleAdditiveTreesModel``, which compute in
float32; a feature that a document lacks is 0. A feature is the field of its name; where the model
has a logarithm, a function query of that field.
"""

from typing import Any

import numpy as np

from ltr.data.transforms import LOG, SIGNED_LOG, column_range
from ltr.inference.export.context import (
    IDENTIFIER,
    ExportContext,
    Exported,
    json_text,
    refuse_names,
    shifted,
)
from ltr.inference.export.dense import Dense, Layer
from ltr.inference.export.trees import Tree, Trees

_LTR = "org.apache.solr.ltr"
_SLACK = np.float32(1e-6)  # Solr adds it to every threshold, in float32
_ACTIVATION = {"none": "identity", "leaky_relu": "leakyrelu"}  # the others have the same names


def solr(context: ExportContext) -> Exported:
    """The feature store and the model.

    Raises:
        ConfigError: a name is no field of a function query.
    """
    form, notes, params = context.form, dict[str, Any](), dict[str, Any]()
    if isinstance(form, Trees):
        features = [_feature(context, name) for name in context.features]
        made = form.with_bias()
        params["trees"] = [{"weight": "1.0", "root": _nested(context, tree)} for tree in made]
        limits = (t for tree in made for t in tree.threshold[tree.feature >= 0])
        # float32 may have no number that Solr adds 1e-6 to
        if moved := sum(bool(before_slack(t) + _SLACK != t) for t in limits):
            notes["thresholds_moved"] = moved
        kind = "MultipleAdditiveTreesModel"
    else:
        assert form is not None
        features, layers = _logarithms(form, context)
        kind = "LinearModel" if form.is_linear else "NeuralNetworkModel"
        if form.is_linear:
            weights = zip(features, layers[0].weights[0].tolist(), strict=True)
            params["weights"] = {one["name"]: weight for one, weight in weights}
            notes["score"] = shifted(-float(layers[0].bias[0]))
        else:
            params["layers"] = [
                {
                    "matrix": layer.weights.tolist(),
                    "bias": layer.bias.tolist(),
                    "activation": _ACTIVATION.get(layer.activation, layer.activation),
                }
                for layer in layers
            ]
    model = {
        "store": context.name,
        "name": context.name,
        "features": [{"name": one["name"]} for one in features],
        "class": f"{_LTR}.model.{kind}",
        "params": params,
    }
    files = {"features.json": json_text(features), "model.json": json_text(model)}
    return context.texts(files, **notes)


def _feature(context: ExportContext, name: str, logarithm: str | None = None) -> dict[str, Any]:
    """The field ``name``, or ln(1 + ``logarithm``)."""
    kind, params = "FieldValueFeature", {"field": name}
    if logarithm is not None:
        kind, params = "SolrFeature", {"q": "{!func}ln(sum(1," + logarithm + "))"}
    return {
        "store": context.name, "name": name, "class": f"{_LTR}.feature.{kind}", "params": params
    }  # fmt: skip


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
            features.append(_feature(context, name))
            continue
        wrong, remedy = not IDENTIFIER.fullmatch(name), ", or set transform=standardise"
        refuse_names([name] * wrong, "a field in a function query of its logarithm", remedy)
        value, below = f"def({name},0)", f"product(-1.0,def({name},0))"
        if form.sign[i] < 0:
            value, below = below, value
        if form.shape[i] == LOG:
            bias += weights[:, i] * np.log(form.log_eps)
            scaled = f"product(max({value},0),{1 / form.log_eps!r})"
            features.append(_feature(context, name, scaled))
            continue
        features.append(_feature(context, name, f"max({value},0)"))
        if (least[i] if form.sign[i] > 0 else -most[i]) < 0:
            features.append(_feature(context, f"{name}_below_0", f"max({below},0)"))
            columns.append(-weights[:, i])
    return features, [Layer(np.stack(columns, 1), bias, first.activation), *others]


def _nested(context: ExportContext, tree: Tree) -> dict[str, Any]:
    """The nodes of a tree, numbers as texts as Solr's own examples have them."""
    return tree.fold(
        lambda node: {"value": str(np.float32(tree.value[node]))},
        lambda node, _, left, right: {
            "feature": context.features[tree.feature[node]],
            "threshold": str(before_slack(tree.threshold[node])),
            "left": left,
            "right": right,
        },
    )


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
