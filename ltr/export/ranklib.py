"""RankLib's text: linear regression, LambdaMART's ensemble of trees, and RankNet's network.

The formats are those of RankLib 2.x (``LinearRegRank``, ``Ensemble``, ``RankNet``): a first line
``## NAME``, features counted from 1, a missing value is 0. The trees add in float32, the other two
in float64.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ltr.data.lists import Doubles
from ltr.export.dense import Dense, Layer, logistic_layers
from ltr.export.form import Scores
from ltr.export.trees import Tree, Trees

_SPAN = 4.0  # of the last unit's input over the known scores: from sigmoid(-4) to sigmoid(0)


def ranklib(form: Trees | Dense, scores: Scores) -> tuple[dict[str, str], dict[str, Any]]:
    """The text of a model whose features are as the lists have them, and notes.

    ``scores`` are known ones of the model.
    """
    notes: dict[str, Any] = {}
    if isinstance(form, Trees):
        text = ensemble(form)
    elif form.is_linear:
        layer = form.layers[0]
        text = linear_regression(layer.weights[0], float(layer.bias[0]))
    else:
        network = RankNetText(form, scores)
        text, notes["score"] = network.text, network.described
    return {"model.txt": text}, notes


def linear_regression(weights: Doubles, bias: float) -> str:
    """A linear model with a bias, as feature 0."""
    entries = [f"{i}:{weight!r}" for i, weight in enumerate(weights.tolist(), 1)]
    return f"## Linear Regression\n## Lambda = 1.0E-10\n0:{bias!r} {' '.join(entries)}\n"


def ensemble(trees: Trees, shift: float = 0.0) -> str:
    """The trees, and the bias and ``shift`` as a tree of one leaf."""
    made = trees.with_bias(shift)
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
