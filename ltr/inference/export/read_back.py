"""Score items with the exported files of a search engine, by the rules of that engine.

The parity check compares these scores with the model's scores. It therefore covers everything in
the files, such as missing values, negative values and the digits of numbers, and also the float32
arithmetic of the engine. Each function reads the files in ``folder``. It returns a function that
computes the scores of items from their features, whose columns are ``names``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch

from ltr.arrays import Flags, Floats, Reals
from ltr.errors import ConfigError
from ltr.inference.export.forms import NODE, Tree, leaf_values, next_below

Score = Callable[[Floats], Reals]
_SOLR_ACTIVATIONS: Mapping[str, Any] = {
    "identity": torch.nn.Identity(),
    "relu": torch.relu,
    "leakyrelu": torch.nn.functional.leaky_relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def read_solr(folder: Path, names: Sequence[str]) -> Score:
    """Return a function that scores items as Solr does.

    Solr computes in float32 and adds 1e-6 to each threshold. An absent field counts as 0.
    """
    store = json.loads((folder / "features.json").read_text())
    model = json.loads((folder / "model.json").read_text())
    params = model["params"]
    fields = {feature["name"]: feature["params"]["field"] for feature in store}
    used = [feature["name"] for feature in model["features"]]
    columns = [names.index(fields[name]) for name in used]

    def read(node: Mapping[str, Any]) -> Any:
        if "feature" not in node:
            return float(node["value"])
        threshold = np.float32(node["threshold"]) + np.float32(1e-6)
        return used.index(node["feature"]), threshold, node["left"], node["right"], False

    if "trees" in params:
        trees = [_read_tree(tree["root"], read) for tree in params["trees"]]
        return lambda rows: _sum_trees(trees, _absent_as_zero(rows[:, columns]))
    if "weights" in params:
        layers: Any = [{"matrix": [[params["weights"][name] for name in used]], "bias": [0.0]}]
    else:
        layers = params["layers"]

    def score_layers(rows: Floats) -> Reals:
        values = torch.from_numpy(_absent_as_zero(rows[:, columns]))
        for layer in layers:
            activation = _SOLR_ACTIVATIONS[str(layer.get("activation", "identity"))]
            matrix = torch.tensor(layer["matrix"], dtype=torch.float32)
            bias = torch.tensor(layer["bias"], dtype=torch.float32)
            values = activation(torch.nn.functional.linear(values, matrix, bias))
        return values[:, 0].numpy()

    return score_layers


def read_ranklib(folder: Path, names: Sequence[str]) -> Score:
    """Return a function that scores items as RankLib does.

    An absent feature counts as 0. RankLib adds trees in float32 and linear terms in float64.
    """
    text = (folder / "model.txt").read_text()
    if text.startswith("## Linear Regression"):
        entries = re.findall(r"(\d+):(\S+)", text)
        weights = {int(number): float(weight) for number, weight in entries}
        columns = [number - 1 for number in weights if number]
        slopes = np.array([weights[column + 1] for column in columns])
        bias = weights.get(0, 0.0)
        return lambda rows: _absent_as_zero(rows[:, columns]).astype(np.float64) @ slopes + bias

    def read(split: ElementTree.Element) -> Any:
        if split[0].tag == "output":
            return float(split[0].text or "")
        feature, threshold, left, right = split
        return int(feature.text or "") - 1, float(threshold.text or ""), left, right, False

    root = ElementTree.fromstring(re.sub(r"^##.*$", "", text, flags=re.MULTILINE))
    trees = [_read_tree(tree[0], read) for tree in root.iter("tree")]
    return lambda rows: _sum_trees(trees, _absent_as_zero(rows))


def read_plugin(folder: Path, names: Sequence[str]) -> Score:
    """Return a function that scores items as the plugins of Elasticsearch and OpenSearch do.

    The plugins compute in float32. A feature whose query does not match is missing, and each split
    says to which side a missing value goes. A value below 0 is an error in these plugins.
    """
    features = json.loads((folder / "featureset.json").read_text())["featureset"]["features"]
    model = json.loads((folder / "model.json").read_text())["model"]["model"]
    indices = {feature["name"]: index for index, feature in enumerate(features)}

    def read(node: Mapping[str, Any]) -> Any:
        if "leaf" in node:
            return float(node["leaf"])
        threshold = next_below(np.array(node["split_condition"], np.float32))
        missing_left = node["missing"] == node["yes"]
        return indices[node["split"]], threshold, *node["children"], missing_left

    trees = [_read_tree(root, read) for root in json.loads(model["definition"])["splits"]]

    def score(rows: Floats) -> Reals:
        columns = dict(zip(names, rows.T, strict=True))
        sent = [_sent_value(feature, columns, len(rows)) for feature in features]
        return _sum_trees(trees, np.stack(sent, axis=1))

    return score


def _sent_value(feature: Mapping[str, Any], columns: Mapping[str, Floats], items: int) -> Floats:
    """Return the values that a feature's template sends for items; NaN where it does not match."""
    query = feature["template"]["function_score"]
    sent = np.full(items, np.nan, np.float32)
    matched = _matches(query["query"], columns, items)
    for function in reversed(query["functions"]):  # the first function that applies counts
        applies = matched & _matches(function.get("filter", {"match_all": {}}), columns, items)
        if "weight" in function:
            sent[applies] = function["weight"]
            continue
        factor = function["field_value_factor"]
        values = columns[factor["field"]]
        values = np.where(np.isnan(values), np.float32(factor.get("missing", np.nan)), values)
        sent[applies] = values[applies] * np.float32(factor.get("factor", 1))
    if (sent < 0).any():
        raise ConfigError(
            f"the feature {feature['name']} has the value {np.nanmin(sent):g}, but Lucene accepts "
            "no value below 0: use to=onnx, or report this as a bug, with the config of the model"
        )
    return sent


def _matches(query: Mapping[str, Any], columns: Mapping[str, Floats], items: int) -> Flags:
    """Return which items a query of a template matches."""
    if "exists" in query:
        return ~np.isnan(columns[query["exists"]["field"]])
    if "range" in query:
        ((field, bounds),) = query["range"].items()
        values = columns[field]
        return values >= bounds["gte"] if "gte" in bounds else values < bounds["lt"]
    return np.ones(items, np.bool_)  # match_all


def _read_tree(root: Any, read: Callable[[Any], Any]) -> Tree:
    """Convert a tree that was read from a file.

    Args:
        root: the root in the file.
        read: a function that returns the value of a leaf as a float. For a split, it returns the
            feature, the threshold (a value up to this goes left), the left and the right node, and
            whether a missing value goes left.
    """
    rows: list[Any] = []

    def add(node: Any) -> int:
        index = len(rows)
        content = read(node)
        rows.append((-1, 0.0, 0, 0, False, content))
        if not isinstance(content, float):
            feature, threshold, left, right, missing_left = content
            rows[index] = (feature, threshold, add(left), add(right), missing_left, 0.0)
        return index

    add(root)
    return np.array(rows, NODE)


def _sum_trees(trees: Sequence[Tree], features: Floats) -> Floats:
    """Return the sum of the trees for each item, in float32 as in the engines."""
    total = np.zeros(len(features), np.float32)
    for tree in trees:
        total += leaf_values(tree, features).astype(np.float32)
    return total


def _absent_as_zero(features: Floats) -> Floats:
    return np.where(np.isnan(features), np.float32(0), features)
