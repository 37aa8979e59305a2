"""Solr's learning-to-rank module: a feature store and a model, as JSON.

``LinearModel``, ``NeuralNetworkModel`` and ``MultipleAdditiveTreesModel``, which compute in
float32; a feature that a document lacks is 0. A feature is the field of its name; where the model
has a logarithm, a function query of that field.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ltr.data.lists import Floats, Lists
from ltr.data.transforms import LOG, SIGNED_LOG, column_range
from ltr.errors import ConfigError
from ltr.export.dense import Dense, Layer, run_layers
from ltr.export.form import IDENTIFIER, Exported, Scores, Subject, shifted, unchanged
from ltr.export.trees import Tree, Trees, leaf, places, read_tree

FEATURES, MODEL = "features.json", "model.json"
_LTR = "org.apache.solr.ltr"
_RAN_BY = "an interpreter of Solr's formats"
_SLACK = np.float32(1e-6)  # Solr adds it to every threshold, in float32
_ACTIVATION = {"none": "identity", "leaky_relu": "leakyrelu"}  # the others have the same names
_BACK = {name: ours for ours, name in _ACTIVATION.items()}


def solr(form: Trees | Dense, subject: Subject) -> Exported:
    """The feature store and the model.

    Raises:
        ConfigError: a name is no field of a function query.
    """
    model: dict[str, Any]
    restore, notes = unchanged, dict[str, Any]()
    if isinstance(form, Trees):
        features = [_field(subject, name) for name in subject.features]
        params, moved = _trees(form, subject)
        model = {"class": f"{_LTR}.model.MultipleAdditiveTreesModel", "params": params}
        if moved:
            notes["thresholds_moved"] = moved  # where float32 has no number that Solr adds 1e-6 to
    else:
        features, layers = _logarithms(form, subject)
        if form.is_linear:
            bias = float(layers[0].bias[0])
            names = [one["name"] for one in features]
            weights = dict(zip(names, layers[0].weights[0].tolist(), strict=True))
            model = {"class": f"{_LTR}.model.LinearModel", "params": {"weights": weights}}
            notes["score"] = shifted(-bias)
            restore = lambda scores: scores.astype(float) + bias  # noqa: E731
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
    model = {"store": subject.name, "name": subject.name, "features": named, **model}
    files = {
        FEATURES: json.dumps(features, indent=1, allow_nan=False) + "\n",
        MODEL: json.dumps(model, indent=1, allow_nan=False) + "\n",
    }
    return Exported(files, _run, _RAN_BY, restore, notes)


def _field(subject: Subject, name: str) -> dict[str, Any]:
    return {
        "store": subject.name,
        "name": name,
        "class": f"{_LTR}.feature.FieldValueFeature",
        "params": {"field": name},
    }


def _logarithms(form: Dense, subject: Subject) -> tuple[list[dict[str, Any]], list[Layer]]:
    """A feature for each input, its field or a function query, and the layers that read them.

    A query has no score below 0: Lucene makes it 0. So log(x + eps) is log(eps) + ln(1 + x / eps),
    its constant in the bias, and sign(x) log(1 + |x|) of a column with values below 0 is a feature
    for the part above 0 less one for that below.
    """
    first, *others = form.layers
    weights, bias = first.weights, first.bias.copy()
    least, most = column_range(subject.lists.features)
    features, columns = [], []
    for i, name in enumerate(subject.features):
        columns.append(weights[:, i])
        if form.shape[i] not in (LOG, SIGNED_LOG):
            features.append(_field(subject, name))
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
            features.append(_query(subject, name, scaled))
            continue
        features.append(_query(subject, name, f"max({value},0)"))
        if (least[i] if form.sign[i] > 0 else -most[i]) < 0:
            features.append(_query(subject, f"{name}_below_0", f"max({below},0)"))
            columns.append(-weights[:, i])
    return features, [Layer(np.stack(columns, 1), bias, first.activation), *others]


def _query(subject: Subject, name: str, value: str) -> dict[str, Any]:
    """The feature ln(1 + value)."""
    return _field(subject, name) | {
        "class": f"{_LTR}.feature.SolrFeature",
        "params": {"q": "{!func}ln(sum(1," + value + "))"},
    }


def _trees(form: Trees, subject: Subject) -> tuple[dict[str, Any], int]:
    """The trees, numbers as texts as Solr's own examples have them, and thresholds that moved."""
    moved = 0

    def node(tree: Tree, place: int) -> dict[str, Any]:
        nonlocal moved
        if tree.feature[place] < 0:
            return {"value": str(np.float32(tree.value[place]))}
        threshold = before_slack(tree.threshold[place])
        moved += bool(threshold + _SLACK != tree.threshold[place])
        return {
            "feature": subject.features[tree.feature[place]],
            "threshold": str(threshold),
            "left": node(tree, int(tree.left[place])),
            "right": node(tree, int(tree.right[place])),
        }

    made = (*form.trees, leaf(form.bias)) if form.bias else form.trees
    return {"trees": [{"weight": "1.0", "root": node(tree, 0)} for tree in made]}, moved


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


def _run(folder: Path, lists: Lists) -> Scores:
    features = json.loads((folder / FEATURES).read_text())
    model = json.loads((folder / MODEL).read_text())
    raw = np.nan_to_num(np.asarray(lists.features), nan=0.0)
    names = [one["name"] for one in features if "field" in one["params"] or _own(one)]
    fields = dict(zip(names, raw.T, strict=True))  # of the same names
    values = {one["name"]: _value(one, fields) for one in features}
    return score_model(model, np.stack([values[one["name"]] for one in model["features"]], 1))


def _own(feature: Mapping[str, Any]) -> bool:
    """Whether a query reads the field of its own name, as all do but those for the part below."""
    return f"def({feature['name']},0)" in feature["params"]["q"]


def _value(feature: Mapping[str, Any], fields: Mapping[str, Floats]) -> Floats:
    """The value of a feature for each item; the score of a query is never below 0."""
    params = feature["params"]
    if "field" in params:
        return fields[params["field"]]
    query = params["q"].removeprefix("{!func}")
    tokens = re.findall(r"[A-Za-z_]\w*|-?[\d.]+(?:e[-+]?\d+)?|[(),]", query)
    found: Floats = np.maximum(np.asarray(_evaluate(tokens, fields), np.float32), 0)
    return found


def _evaluate(tokens: list[str], fields: Mapping[str, Floats]) -> Any:
    """The value of a function query, whose tokens are taken off; float32, ``ln`` in float64."""
    name = tokens.pop(0)
    if not tokens or tokens[0] != "(":
        return fields[name] if name in fields else np.float32(name)
    arguments = []
    while tokens.pop(0) in "(,":
        arguments.append(_evaluate(tokens, fields))
    return _FUNCTIONS[name](*arguments)


_FUNCTIONS: Mapping[str, Any] = {
    "ln": lambda x: np.log(np.asarray(x, np.float64)).astype(np.float32),
    "sum": lambda x, y: x + y,
    "product": lambda x, y: x * y,
    "max": np.maximum,
    "def": lambda x, _: x,
}


def score_model(model: Mapping[str, Any], values: Floats) -> Scores:
    """The scores, ``[items]`` float32, of the values of the model's features in its order."""
    kind, params = model["class"].rpartition(".")[2], model["params"]
    names = [one["name"] for one in model["features"]]
    if kind == "LinearModel":
        weights = np.array([[params["weights"][name] for name in names]])
        return run_layers([Layer(weights, np.zeros(1), "none")], values)
    if kind == "NeuralNetworkModel":
        layers = [
            Layer(np.array(one["matrix"]), np.array(one["bias"]),
                  _BACK.get(one["activation"], one["activation"]))
            for one in params["layers"]
        ]  # fmt: skip
        return run_layers(layers, values)
    total = np.zeros(len(values), np.float32)
    for one in params["trees"]:
        tree = _tree(one["root"], names)
        outputs = np.float32(one["weight"]) * tree.value.astype(np.float32)
        total += outputs[places(tree, values)]
    return total


def _tree(root: Mapping[str, Any], names: list[str]) -> Tree:
    def read(node: Mapping[str, Any]) -> Any:
        if "feature" not in node:
            return float(node["value"])
        threshold = np.float32(node["threshold"]) + _SLACK
        return names.index(node["feature"]), threshold, node["left"], node["right"], False

    return read_tree(root, read)
