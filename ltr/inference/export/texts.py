"""Trees and layers as the texts of Solr, RankLib, Elasticsearch and OpenSearch.

Solr's ``LinearModel``, ``NeuralNetworkModel`` and ``MultipleAdditiveTreesModel`` and the plugins'
``model/xgboost+json`` and ``model/ranklib`` compute in float32. RankLib 2.x reads
``LinearRegRank``, ``Ensemble`` and ``RankNet``; its trees add in float32, the others in float64.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ltr.data.transforms import column_range
from ltr.errors import ConfigError
from ltr.inference.export.context import ExportContext, Exported, Scores, json_text
from ltr.inference.export.forms import Dense, Trees, above, fold

_SOLR = "org.apache.solr.ltr"
_SLACK = np.float32(1e-6)  # Solr adds it to every threshold, in float32
_SPAN = 4.0  # of the last unit's input over the known scores: from sigmoid(-4) to sigmoid(0)
_MARGIN = 1e-4  # of the shift of trees, for what float32 loses in the sum
# The scores before the output activation, and what that is in words.
_BEFORE: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "none": (lambda s: s, "model's score"),
    "sigmoid": (lambda s: np.log(s) - np.log1p(-s), "logit of the model's score"),
    "tanh": (np.arctanh, "inverse hyperbolic tangent of the model's score"),
}


def shifted(by: float) -> str:
    """The score of an engine in words.

    >>> shifted(-1.5)
    "the model's score - 1.5"
    """
    return f"the model's score {'-' if by < 0 else '+'} {abs(by)!r}"


def solr(context: ExportContext) -> Exported:
    """The feature store, in which a feature is the field of its name, and the model.

    Numbers of trees are texts, as Solr's own examples have them.
    """
    form, names, notes, params = context.form, context.features, dict[str, Any](), dict[str, Any]()
    assert form is not None
    if isinstance(form, Trees):
        kind, trees = "MultipleAdditiveTreesModel", form.with_bias()

        def split(row: Any, left: Any, right: Any, *_: int) -> dict[str, Any]:
            limit = str(before_slack(row["threshold"]))
            name = names[row["feature"]]
            return {"feature": name, "threshold": limit, "left": left, "right": right}

        roots = [fold(tree, lambda value, _: {"value": str(value)}, split) for tree in trees]
        params["trees"] = [{"weight": "1.0", "root": root} for root in roots]
        limits = (t for tree in trees for t in tree["threshold"][tree["feature"] >= 0])
        # float32 may have no number that Solr adds 1e-6 to
        if moved := sum(bool(before_slack(t) + _SLACK != t) for t in limits):
            notes["thresholds_moved"] = moved
    elif form.is_linear:
        kind, (layer,) = "LinearModel", form.layers
        params["weights"] = dict(zip(names, layer.weights[0].tolist(), strict=True))
        notes["score"] = shifted(-float(layer.bias[0]))
    else:
        kind, activations = "NeuralNetworkModel", {"none": "identity", "leaky_relu": "leakyrelu"}
        params["layers"] = [
            {
                "matrix": layer.weights.tolist(),
                "bias": layer.bias.tolist(),
                "activation": activations.get(layer.activation, layer.activation),
            }
            for layer in form.layers
        ]
    store, field = dict[str, Any](store=context.name), f"{_SOLR}.feature.FieldValueFeature"
    features = [{**store, "name": n, "class": field, "params": {"field": n}} for n in names]
    known = [{"name": name} for name in names]
    model = {
        **store, "name": context.name, "features": known, "class": f"{_SOLR}.model.{kind}",
        "params": params,
    }  # fmt: skip
    files = {"features.json": json_text(features), "model.json": json_text(model)}
    return context.texts(files, **notes)


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


def ranklib(context: ExportContext) -> Exported:
    """The text of trees, of a linear regression, or of a network; features count from 1."""
    form, notes = context.form, {}
    assert form is not None
    if isinstance(form, Trees):
        text = _ensemble(form)
    elif form.is_linear:
        (layer,) = form.layers
        numbers = enumerate([*layer.bias.tolist(), *layer.weights[0].tolist()])  # 0: the bias
        entries = " ".join(f"{i}:{number!r}" for i, number in numbers)
        text = f"## Linear Regression\n## Lambda = 1.0E-10\n{entries}\n"
    else:
        text, notes["score"] = _network(form, context.scores)
    return context.texts({"model.txt": text}, **notes)


def _ensemble(trees: Trees, shift: float = 0.0) -> str:
    """RankLib's text of trees, a line for each."""

    def split(row: Any, left: str, right: str, *_: int) -> str:
        return (
            f"<feature>{row['feature'] + 1}</feature><threshold>{row['threshold']}</threshold>"
            f'<split pos="left">{left}</split><split pos="right">{right}</split>'
        )

    made = trees.with_bias(shift)
    lines = [
        f'<tree id="{number}" weight="1.0"><split>'
        f"{fold(tree, '<output>{}</output>'.format, split)}</split></tree>"
        for number, tree in enumerate(made, 1)
    ]
    head = ["## LambdaMART", f"## No. of trees = {len(made)}", "", "<ensemble>"]
    return "\n".join([*head, *lines, "</ensemble>", ""])


def _network(dense: Dense, scores: Scores) -> tuple[str, str]:
    """RankNet's text of a network, every unit of which is logistic, and its score in words.

    ``tanh(x) = 2 sigmoid(2 x) - 1``: a layer of tanh doubles its weights, and what reads it takes
    ``2 W`` and ``b - sum(W)``. The last unit's input is ``slope * u + shift`` for ``u``, the
    model's score before its output activation, such that the known ``scores`` lie in sigmoid(-4) to
    sigmoid(0): they are positive, keep their order, and have float32 digits left on either side.
    """
    before, words = _BEFORE[dense.layers[-1].activation]
    with np.errstate(divide="ignore"):
        known = before(scores.astype(np.float64))
    known = known[np.isfinite(known)] if np.isfinite(known).any() else np.zeros(1)
    low, high = float(known.min()), float(known.max())
    slope = _SPAN / (high - low) if high > low else 1.0
    shift, layers, tanh = -slope * high, list[tuple[Any, Any]](), False
    for layer in dense.layers:
        weights, bias = layer.weights, layer.bias
        if tanh:
            weights, bias = 2 * weights, bias - weights.sum(1)
        last, tanh = layer is dense.layers[-1], layer.activation == "tanh"
        factor = slope if last else 1 + tanh
        layers.append((factor * weights, factor * bias + shift * last))

    # a line for each unit but the last: its layer, its number, and the weights that leave it; layer
    # 0 is the features and behind them the bias, which leads to every unit of every layer
    width, sizes = layers[0][0].shape[1], [len(bias) for _, bias in layers[:-1]]
    lines = [
        "## RankNet",
        f"## No. of features = {width}",
        f"## No. of hidden layers = {len(sizes)}",
    ]
    lines += [" ".join(map(str, range(1, width + 1))), str(len(sizes)), *map(str, sizes)]
    biases = np.concatenate([bias for _, bias in layers])
    for number, (weights, _) in enumerate(layers):
        leaving = [*weights.T.tolist(), *([biases.tolist()] if number == 0 else [])]
        lines += [" ".join([f"{number} {i}", *map(repr, w)]) for i, w in enumerate(leaving)]
    return "\n".join([*lines, ""]), f"sigmoid({slope!r} * u + {shift!r}), u the {words}"


def plugin(context: ExportContext) -> Exported:
    """The requests that create feature set and model in Elasticsearch and OpenSearch.

    Lucene takes no score below 0, so that trees carry a shift, and layers end in a logistic unit.

    Raises:
        ConfigError: the format holds no such model, or a name is none of a field in a template.
    """
    form, names, lists = context.form, context.features, context.lists
    assert form is not None
    if wrong := [name for name in names if "{{" in name]:
        raise ConfigError(
            f"{wrong[0]!r} is no name of a field in a mustache template: name the columns by "
            "letters, digits and _, and train again"
        )
    kinds = ("xgboost+json", "ranklib") if isinstance(form, Trees) else ("ranklib",)
    kind = (context.format or kinds[0]).removeprefix("model/")
    if kind not in kinds:
        raise ConfigError(f"format={kind}: this model goes into {' or '.join(kinds)}")
    if kind == "ranklib" and lists.missing:
        raise ConfigError(
            "format=ranklib: RankLib takes a missing value for 0, and values of the lists are "
            "missing: use format=xgboost+json"
        )
    notes: dict[str, Any] = {"type": f"model/{kind}"}
    if len(negative := np.flatnonzero(column_range(lists.features)[0] < 0)):
        notes["features_below_0"] = [names[i] for i in negative]
    if isinstance(form, Trees):
        # the plugins mark a feature that matches nothing as missing: in a model that was trained
        # without missing values it stands for 0
        notes["absent_is_zero"] = context.absent_is_zero
        shift = max(0.0, -form.least) * (1 + _MARGIN)
        text = _ensemble(form, shift) if kind == "ranklib" else _splits(context, form, shift)
        notes["score"] = shifted(shift)
    else:
        text, notes["score"] = _network(form, context.scores)
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
        for name in names
    ]
    model = {"type": f"model/{kind}", "definition": text}
    files = {
        "featureset.json": {"featureset": {"name": context.name, "features": features}},
        "model.json": {"model": {"name": context.name, "model": model}},
    }
    return context.texts({name: json_text(content) for name, content in files.items()}, **notes)


def _splits(context: ExportContext, trees: Trees, shift: float) -> str:
    """``model/xgboost+json``: nested nodes, left where the value is below the condition."""

    def split(row: Any, left: Any, right: Any, node: int, depth: int) -> dict[str, Any]:
        absent_left = row["threshold"] >= 0 if context.absent_is_zero else row["missing_left"]
        return {
            "nodeid": node,
            "depth": depth,
            "split": context.features[row["feature"]],
            "split_condition": _single(above(row["threshold"])),
            "yes": left["nodeid"],
            "no": right["nodeid"],
            "missing": (left if absent_left else right)["nodeid"],
            "children": [left, right],
        }

    def leaf(value: np.float32, node: int) -> dict[str, Any]:
        return {"nodeid": node, "leaf": _single(value)}

    splits = [fold(tree, leaf, split) for tree in trees.with_bias(shift)]
    return json.dumps({"objective": "rank:ndcg", "splits": splits}, allow_nan=False)


def _single(value: Any) -> float:
    """A float32 number with no more digits than it has."""
    return float(str(np.float32(value)))
