"""RankLib's text: linear regression, LambdaMART's ensemble of trees, and RankNet's network.

The formats are those of RankLib 2.x (``LinearRegRank``, ``Ensemble``, ``RankNet``): a first line
``## NAME``, features counted from 1, a missing value is 0. The trees add in float32, the other two
in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import numpy as np

from ltr.inference.export.context import ExportContext, Exported, Scores
from ltr.inference.export.dense import Dense, Layer, logistic_layers
from ltr.inference.export.trees import Tree, Trees

_SPAN = 4.0  # of the last unit's input over the known scores: from sigmoid(-4) to sigmoid(0)
_BEFORE: Mapping[
    str, tuple[Callable[[Any], Any], str]
] = {  # the scores before the output activation, and what that is in words
    "none": (lambda s: s, "model's score"),
    "sigmoid": (lambda s: np.log(s) - np.log1p(-s), "logit of the model's score"),
    "tanh": (np.arctanh, "inverse hyperbolic tangent of the model's score"),
}


def ranklib(context: ExportContext) -> Exported:
    """The text of trees, or of layers whose features are as the lists have them."""
    form = context.form
    if isinstance(form, Trees):
        return context.texts({"model.txt": ensemble(form)})
    assert form is not None
    if not form.is_linear:
        text, score = network(form, context.scores)
        return context.texts({"model.txt": text}, score=score)
    numbers = [*form.layers[0].bias.tolist(), *form.layers[0].weights[0].tolist()]  # 0: the bias
    entries = " ".join(f"{i}:{number!r}" for i, number in enumerate(numbers))
    return context.texts({"model.txt": f"## Linear Regression\n## Lambda = 1.0E-10\n{entries}\n"})


def ensemble(trees: Trees, shift: float = 0.0) -> str:
    """The trees, and the bias and ``shift`` as a tree of one leaf."""
    made, root = trees.with_bias(shift), Element("ensemble")
    for number, tree in enumerate(made, 1):
        SubElement(root, "tree", id=str(number), weight="1.0").append(_splits(tree))
    indent(root, "\t")
    head = f"## LambdaMART\n## No. of trees = {len(made)}\n\n"
    return f"{head}{tostring(root, 'unicode')}\n"


def _splits(tree: Tree) -> Element:
    def leaf(node: int) -> Element:
        made = Element("split")
        SubElement(made, "output").text = f" {np.float32(tree.value[node])!s} "
        return made

    def split(node: int, _: int, left: Element, right: Element) -> Element:
        made = Element("split")
        SubElement(made, "feature").text = f" {tree.feature[node] + 1} "
        SubElement(made, "threshold").text = f" {tree.threshold[node]!s} "
        for side, below in (("left", left), ("right", right)):
            below.set("pos", side)
            made.append(below)
        return made

    return tree.fold(leaf, split)


def network(dense: Dense, scores: Scores) -> tuple[str, str]:
    """RankNet's text of a network, every unit of which is logistic, and its score in words.

    The last unit's input is ``slope * u + shift`` for ``u``, the model's score before its output
    activation, such that the known ``scores`` lie in sigmoid(-4) to sigmoid(0): they are positive,
    keep their order, and have float32 digits left on either side.
    """
    before, words = _BEFORE[dense.layers[-1].activation]
    with np.errstate(divide="ignore"):
        known = before(scores.astype(np.float64))
    known = known[np.isfinite(known)] if np.isfinite(known).any() else np.zeros(1)
    low, high = float(known.min()), float(known.max())
    slope = _SPAN / (high - low) if high > low else 1.0
    shift = -slope * high
    *inner, last = logistic_layers(dense)
    last = Layer(slope * last.weights, slope * last.bias + shift, "sigmoid")
    return _network_text([*inner, last]), f"sigmoid({slope!r} * u + {shift!r}), u the {words}"


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
