"""RankLib's text: linear regression, LambdaMART's ensemble of trees, and RankNet's network.

Formats and evaluation are those of RankLib 2.x (``LinearRegRank``, ``Ensemble``, ``RankNet``): a
first line ``## NAME``, features counted from 1, a missing value is 0. The trees add in float32, the
other two in float64.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ltr.data.lists import Doubles, Floats, Lists
from ltr.export.dense import ACTIVATIONS, Dense, Layer, logistic_layers, run_layers
from ltr.export.form import Exported, Scores, Subject
from ltr.export.trees import Tree, Trees, leaf, places, read_tree

NAME = "model.txt"
_RAN_BY = "an interpreter of RankLib's text"
_SPAN = 4.0  # of the last unit's input over the known scores: from sigmoid(-4) to sigmoid(0)


def ranklib(form: Trees | Dense, subject: Subject) -> Exported:
    """The text of a model whose features are as the lists have them."""
    if isinstance(form, Trees):
        return Exported({NAME: ensemble(form)}, _run, _RAN_BY)
    if form.is_linear:
        layer = form.layers[0]
        text = linear_regression(layer.weights[0], float(layer.bias[0]))
        return Exported({NAME: text}, _run, _RAN_BY)
    network = RankNetText(form, subject.scores)
    notes = {"score": network.described}
    return Exported({NAME: network.text}, _run, _RAN_BY, network.restore, notes)


def linear_regression(weights: Doubles, bias: float) -> str:
    """A linear model with a bias, as feature 0."""
    entries = [f"{i}:{weight!r}" for i, weight in enumerate(weights.tolist(), 1)]
    return f"## Linear Regression\n## Lambda = 1.0E-10\n0:{bias!r} {' '.join(entries)}\n"


def ensemble(trees: Trees, shift: float = 0.0) -> str:
    """The trees, and the bias and ``shift`` as a tree of one leaf."""
    bias = trees.bias + shift
    made = (*trees.trees, leaf(bias)) if bias else trees.trees
    lines = ["## LambdaMART", f"## No. of trees = {len(made)}", "", "<ensemble>"]
    for number, tree in enumerate(made, 1):
        lines.append(f'\t<tree id="{number}" weight="1.0">')
        lines += _node(tree, 0, "", 2)
        lines.append("\t</tree>")
    return "\n".join([*lines, "</ensemble>", ""])


def _node(tree: Tree, place: int, position: str, depth: int) -> list[str]:
    tab, inner = "\t" * depth, "\t" * (depth + 1)
    if tree.feature[place] < 0:
        body = [f"{inner}<output> {np.float32(tree.value[place])!s} </output>"]
    else:
        body = [
            f"{inner}<feature> {tree.feature[place] + 1} </feature>",
            f"{inner}<threshold> {tree.threshold[place]!s} </threshold>",
            *_node(tree, tree.left[place], ' pos="left"', depth + 1),
            *_node(tree, tree.right[place], ' pos="right"', depth + 1),
        ]
    return [f"{tab}<split{position}>", *body, f"{tab}</split>"]


class RankNetText:
    """RankNet's text of a network, every unit of which is logistic, the last too.

    The last unit's input is ``slope * u + shift`` for ``u``, the model's score before its output
    activation, such that the known scores lie in sigmoid(-4) to sigmoid(0): they are positive, keep
    their order, and have float32 digits left on either side.
    """

    def __init__(self, dense: Dense, scores: Scores) -> None:
        """``scores``: known ones of the model."""
        self._end = dense.layers[-1].activation
        known = _before(scores.astype(np.float64), self._end)
        known = known[np.isfinite(known)] if np.isfinite(known).any() else np.zeros(1)
        low, high = float(known.min()), float(known.max())
        self.slope = _SPAN / (high - low) if high > low else 1.0
        self.shift = -self.slope * high
        *inner, last = logistic_layers(dense)
        weights, bias = self.slope * last.weights, self.slope * last.bias + self.shift
        self.text = _network_text([*inner, Layer(weights, bias, "sigmoid")])
        self.described = (
            f"sigmoid({self.slope!r} * u + {self.shift!r})"
            + {
                "none": ", u the model's score",
                "sigmoid": ", u the logit of the model's score",
                "tanh": ", u the inverse hyperbolic tangent of the model's score",
            }[self._end]
        )

    def restore(self, scores: Scores) -> Scores:
        """The model's scores."""
        exact = scores.astype(np.float64)
        with np.errstate(divide="ignore"):  # 0 and 1, where float32 ends
            before = (np.log(exact) - np.log1p(-exact) - self.shift) / self.slope
        return ACTIVATIONS[self._end](before)


def _before(scores: Doubles, activation: str) -> Doubles:
    """The scores before their activation."""
    with np.errstate(divide="ignore"):
        if activation == "sigmoid":
            return np.log(scores) - np.log1p(-scores)
        return np.arctanh(scores) if activation == "tanh" else scores


def _network_text(layers: Sequence[Layer]) -> str:
    """A line for each unit but the last: its layer, its number, and the weights that leave it.

    Layer 0 is the features and behind them the bias, which leads to every unit of every layer.
    """
    width = layers[0].weights.shape[1]
    sizes = [len(layer.bias) for layer in layers[:-1]]
    lines = [
        "## RankNet", f"## No. of features = {width}", f"## No. of hidden layers = {len(sizes)}",
        " ".join(map(str, range(1, width + 1))), str(len(sizes)), *map(str, sizes),
    ]  # fmt: skip
    for number, layer in enumerate(layers):
        for unit, weights in enumerate(layer.weights.T.tolist()):
            lines.append(" ".join([str(number), str(unit), *map(repr, weights)]))
        if number == 0:
            biases = np.concatenate([one.bias for one in layers]).tolist()
            lines.append(" ".join(["0", str(width), *map(repr, biases)]))
    return "\n".join([*lines, ""])


def _run(folder: Path, lists: Lists) -> Scores:
    return score_text((folder / NAME).read_text(), np.asarray(lists.features))


def score_text(text: str, features: Floats) -> Scores:
    """The scores, ``[items]``, that RankLib gives; a missing value is 0."""
    items = np.nan_to_num(features, nan=0.0, posinf=np.inf, neginf=-np.inf)
    name = text.splitlines()[0].removeprefix("## ").strip()
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("##")]
    if name == "LambdaMART":
        return _score_ensemble("".join(lines), items)
    exact = items.astype(np.float64)
    if name == "Linear Regression":
        weights = {int(k): float(v) for k, v in re.findall(r"(\d+):(\S+)", lines[0])}
        bias = np.array([weights.pop(0)])
        inputs = exact[:, [feature - 1 for feature in weights]]
        return run_layers([Layer(np.array([[*weights.values()]]), bias, "none")], inputs)
    used = [int(feature) - 1 for feature in lines[0].split()]
    return run_layers(_network(lines), exact[:, used])


def _score_ensemble(text: str, items: Floats) -> Scores:
    total = np.zeros(len(items), np.float32)
    for one in ElementTree.fromstring(text).iter("tree"):
        tree, weight = read_tree(one[0], _parsed), np.float64(np.float32(one.get("weight", "1")))
        outputs = tree.value.astype(np.float32).astype(np.float64)
        total = (total + outputs[places(tree, items)] * weight).astype(np.float32)
    return total


def _parsed(split: ElementTree.Element) -> Any:
    """A node for ``read_tree``."""
    if split[0].tag != "feature":
        return float(split[0].text or "")
    feature, threshold = int(split[0].text or ""), float(split[1].text or "")
    return feature - 1, threshold, split[2], split[3], False


def _network(lines: Sequence[str]) -> list[Layer]:
    width, hidden = len(lines[0].split()), int(lines[1])
    sizes = [int(size) for size in lines[2 : 2 + hidden]] + [1]
    leaving: dict[tuple[int, int], list[float]] = {}
    for line in lines[2 + hidden :]:
        layer, unit, *weights = line.split()
        leaving[int(layer), int(unit)] = [float(weight) for weight in weights]
    biases = np.split(np.array(leaving[0, width]), np.cumsum(sizes)[:-1])
    found = []
    for number, (units, bias) in enumerate(zip([width, *sizes], biases, strict=False)):
        matrix = np.array([leaving[number, unit] for unit in range(units)]).T
        found.append(Layer(matrix, bias, "sigmoid"))
    return found
