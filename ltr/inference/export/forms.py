"""A model over raw features: ``Trees``, whatever grew them, and ``Dense``, layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from torch import nn

from ltr.data.lists import Doubles, Floats
from ltr.data.transforms import FeatureTransform
from ltr.experiment.engines import activation_of
from ltr.models import MLP, Linear
from ltr.models.rounds import AdaRank, PRank

Tree = NDArray[np.void]  # [nodes] of NODE; node 0 is the root
NODE = np.dtype(
    [
        ("feature", np.int64),  # 0-based; -1 of a leaf
        ("threshold", np.float32),  # an item goes left where its value is at most this
        ("left", np.int64),
        ("right", np.int64),
        ("missing_left", np.bool_),  # whether a missing value goes left
        ("value", np.float64),  # of a leaf
    ]
)
_ACTIVATIONS: Mapping[str, Callable[[Doubles], Doubles]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "tanh": np.tanh,
    "sigmoid": expit,
}


@dataclass(frozen=True, eq=False)
class Trees:
    """The sum of ``trees`` and ``bias``.

    Every split is ``x <= threshold`` in float32, which routes each float32 value as the library
    does: a float64 threshold t of ``<=`` is the largest float32 that is not above t, and a float32
    t of ``<`` the next float32 below.
    """

    trees: tuple[Tree, ...]
    bias: float = 0.0

    def scores(self, features: Floats) -> Doubles:
        """The score of each row of ``features``, ``[items]``."""
        total = np.full(len(features), self.bias)
        for tree in self.trees:
            nodes, moving = np.zeros(len(features), np.int64), np.arange(len(features))
            while len(moving := moving[tree["feature"][nodes[moving]] >= 0]):
                at = tree[nodes[moving]]
                x = features[moving, at["feature"]]
                left = np.where(np.isnan(x), at["missing_left"], x <= at["threshold"])
                nodes[moving] = np.where(left, at["left"], at["right"])
            total += tree["value"][nodes]
        return total

    def with_bias(self, shift: float = 0.0) -> tuple[Tree, ...]:
        """The trees, at least one, with the bias and ``shift`` as a tree of one leaf."""
        constant = self.bias + shift
        return (*self.trees, leaf(constant)) if constant or not self.trees else self.trees

    @property
    def least(self) -> float:
        """A bound of the scores from below."""
        return self.bias + sum(float(t["value"][t["feature"] < 0].min()) for t in self.trees)


def fold(
    tree: Tree, leaf: Callable[..., Any], split: Callable[..., Any], node: int = 0, depth: int = 0
) -> Any:
    """``leaf(value, node)`` of leaves, ``split(row, left, right, node, depth)`` of two sides."""
    row = tree[node]
    if row["feature"] < 0:
        return leaf(np.float32(row["value"]), node)
    sides = (fold(tree, leaf, split, int(row[side]), depth + 1) for side in ("left", "right"))
    return split(row, *sides, node, depth)


def leaf(value: float) -> Tree:
    """A tree that is one leaf."""
    return np.array([(-1, 0.0, 0, 0, False, value)], NODE)


def stump(
    feature: int, threshold: float, low: float, high: float, missing_left: bool = True
) -> Tree:
    """``high`` where the feature is above the threshold, else ``low``."""
    split = np.array([(feature, at_most(threshold), 1, 2, missing_left, 0.0)], NODE)
    return np.concatenate([split, leaf(low), leaf(high)])


def at_most(threshold: float | Doubles) -> Floats:
    """The largest float32 that is not above ``threshold``.

    >>> float(at_most(0.1)) <= 0.1 < float(np.nextafter(at_most(0.1), np.float32(1)))
    True
    """
    exact = np.asarray(threshold, np.float64)
    near = exact.astype(np.float32)
    return np.where(near > exact, below(near), near)


def below(threshold: Floats) -> Floats:
    """``t`` of ``x <= t`` that is ``x < threshold``."""
    return np.nextafter(np.asarray(threshold, np.float32), np.float32(-np.inf))


def above(threshold: Floats) -> Floats:
    """``t`` of ``x < t`` that is ``x <= threshold``."""
    return np.nextafter(np.asarray(threshold, np.float32), np.float32(np.inf))


@dataclass(frozen=True, eq=False)
class Layer:
    """``activation(weights @ x + bias)``: ``[out, in]`` and ``[out]`` float64."""

    weights: Doubles
    bias: Doubles
    activation: str = "none"  # of ltr.models.layers


@dataclass(frozen=True, eq=False)
class Dense:
    """Layers; the last has one unit, and no two in a row are linear."""

    layers: tuple[Layer, ...]

    @property
    def is_linear(self) -> bool:
        """Whether it is a sum of weights times features and a bias."""
        return len(self.layers) == 1 and self.layers[0].activation == "none"

    def scores(self, features: Floats) -> Doubles:
        """The score of each row of raw ``features``, ``[items]``."""
        values = np.asarray(features, np.float64)
        for layer in self.layers:
            values = _ACTIVATIONS[layer.activation](values @ layer.weights.T + layer.bias)
        return values[:, 0]


def dense_of(model: nn.Module, transform: FeatureTransform) -> Dense:
    """The layers of a model that ``is_dense``, each linear one merged into the next.

    The standardisation is in the first:
    ``W (scale * (sign * x - mean)) + b = (W * scale * sign) x + (b - (W * scale) mean)``.
    """
    found: list[Layer] = []
    if isinstance(model, AdaRank | PRank):
        found.append(Layer(model.linear_weights()[None], np.zeros(1)))
    else:
        assert isinstance(model, MLP | Linear)
        modules = [*model.layers] if isinstance(model, MLP) else []
        for module in [*modules, model.head.linear, model.head.activation]:
            name = activation_of(module)
            if isinstance(module, nn.Linear):
                parts = module.parameters()
                weights, bias = (part.detach().cpu().double().numpy() for part in parts)
                if found and found[-1].activation == "none":
                    before = found.pop()
                    weights, bias = weights @ before.weights, bias + weights @ before.bias
                found.append(Layer(weights, bias))
            elif name is not None:  # dropout has none
                found[-1] = replace(found[-1], activation=name)
    first, *others = found
    weights = first.weights * transform.scale
    bias = first.bias - weights @ transform.mean
    return Dense((Layer(weights * transform.sign, bias, first.activation), *others))
