"""Two forms of a model that scores raw features: ``Trees`` from any library, and ``Layers``."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ltr.arrays import Doubles, Floats
from ltr.boosting import AdaRank, PRank
from ltr.data.transforms import FeatureTransform
from ltr.models import MLP, Linear
from ltr.models.layers import Dropout

Tree = NDArray[np.void]  # [nodes] of NODE; node 0 is the root
NODE = np.dtype(
    [
        ("feature", np.int64),  # from 0; -1 for a leaf
        ("threshold", np.float32),  # an item whose value is at most this goes left
        ("left", np.int64),
        ("right", np.int64),
        ("missing_left", np.bool_),  # whether a missing value goes left
        ("value", np.float64),  # value of a leaf
    ]
)


@dataclass(frozen=True, eq=False)
class Trees:
    """A model whose score is the sum of ``trees`` and ``bias``.

    Every split is ``x <= threshold`` in float32. The threshold is chosen to send each float32 value
    to the same side as the library does. If the library's split is ``x <= t`` with a float64 t, the
    threshold is the largest float32 that is not above t. If it is ``x < t`` with a float32 t, the
    threshold is the next float32 below t.
    """

    trees: tuple[Tree, ...]
    bias: float = 0.0

    def scores(self, features: Floats) -> Doubles:
        """Return the scores, ``[items]``, one for each row of ``features``."""
        total = np.full(len(features), self.bias)
        for tree in self.trees:
            total += leaf_values(tree, features)
        return total

    def with_bias(self, shift: float = 0.0) -> tuple[Tree, ...]:
        """Return the trees, and one more tree: a single leaf with the value bias + ``shift``.

        If this value is 0 and there are other trees, the additional tree is left out.
        """
        constant = self.bias + shift
        if constant or not self.trees:
            return (*self.trees, make_leaf(constant))
        return self.trees

    @property
    def lower_bound(self) -> float:
        """A lower bound of the scores."""
        leaves = (tree["value"][tree["feature"] < 0] for tree in self.trees)
        return self.bias + sum(float(values.min()) for values in leaves)


def leaf_values(tree: Tree, features: Floats) -> Doubles:
    """Return the value of the leaf that each row of ``features`` reaches, ``[items]``."""
    nodes = np.zeros(len(features), np.int64)  # the node that each row has reached
    moving = np.flatnonzero(tree["feature"][nodes] >= 0)  # rows that have not reached a leaf
    while len(moving):
        splits = tree[nodes[moving]]
        values = features[moving, splits["feature"]]
        left = np.where(np.isnan(values), splits["missing_left"], values <= splits["threshold"])
        nodes[moving] = np.where(left, splits["left"], splits["right"])
        moving = moving[tree["feature"][nodes[moving]] >= 0]
    return tree["value"][nodes]


def fold_tree(
    tree: Tree, leaf: Callable[..., Any], split: Callable[..., Any], node: int = 0, depth: int = 0
) -> Any:
    """Convert a tree from its leaves up; return the result for ``node``.

    ``leaf(value, node)`` is called for each leaf, and ``split(row, left, right, node, depth)`` for
    each split; ``left`` and ``right`` are the results for the two sides.
    """
    row = tree[node]
    if row["feature"] < 0:
        return leaf(np.float32(row["value"]), node)
    left = fold_tree(tree, leaf, split, int(row["left"]), depth + 1)
    right = fold_tree(tree, leaf, split, int(row["right"]), depth + 1)
    return split(row, left, right, node, depth)


def make_leaf(value: float) -> Tree:
    """Return a tree with a single leaf."""
    return np.array([(-1, 0.0, 0, 0, False, value)], NODE)


def make_stump(feature: int, threshold: float, low: float, high: float) -> Tree:
    """Return a tree with one split: ``high`` if the feature is above the threshold, else ``low``.

    A missing feature counts as 0.
    """
    split = np.array([(feature, round_down(threshold), 1, 2, threshold >= 0, 0.0)], NODE)
    return np.concatenate([split, make_leaf(low), make_leaf(high)])


def round_down(threshold: float | Doubles) -> Floats:
    """Return the largest float32 that is not above ``threshold``.

    >>> float(round_down(0.1)) <= 0.1 < float(np.nextafter(round_down(0.1), np.float32(1)))
    True
    """
    exact = np.asarray(threshold, np.float64)
    near = exact.astype(np.float32)
    return np.where(near > exact, next_below(near), near)


def next_below(threshold: Floats) -> Floats:
    """Return t such that ``x <= t`` means ``x < threshold`` in float32."""
    return np.nextafter(np.asarray(threshold, np.float32), np.float32(-np.inf))


def next_above(threshold: Floats) -> Floats:
    """Return t such that ``x < t`` means ``x <= threshold`` in float32."""
    return np.nextafter(np.asarray(threshold, np.float32), np.float32(np.inf))


class Layers(nn.Sequential):
    """Linear layers in float64, each followed by an activation; the last layer has one output."""

    @property
    def is_linear(self) -> bool:
        """Whether the score is linear in the features: one layer without an activation."""
        return len(self) == 2 and isinstance(self[1], nn.Identity)


def convert_layers(model: nn.Module, transform: FeatureTransform) -> Layers:
    """Return the layers of a model and its transform; ``is_dense`` must be true for the model.

    The standardisation of the transform becomes part of the first layer:
    ``W (scale * (sign * x - mean)) + b = (W * scale * sign) x + (b - (W * scale) mean)``.
    """
    network: Any = convert_linear(model) if isinstance(model, AdaRank | PRank) else model
    hidden = [*network.layers] if isinstance(network, MLP) else []
    modules = [*hidden, network.head.linear, network.head.activation]
    layered = [module for module in modules if not isinstance(module, Dropout)]
    layers = Layers(*(deepcopy(module).double() for module in layered))
    layers.requires_grad_(False)
    first: Any = layers[0]
    weights = first.weight.numpy() * transform.scale
    first.bias -= torch.from_numpy(weights @ transform.mean)
    first.weight.copy_(torch.from_numpy(weights * transform.sign))
    return layers


def convert_linear(model: AdaRank | PRank) -> Linear:
    """Return a linear network, in float64, that gives the same scores as ``model``."""
    weights = torch.from_numpy(model.linear_weights())
    network = Linear(len(weights)).double().requires_grad_(False)
    network.head.linear.weight.copy_(weights)
    network.head.linear.bias.zero_()
    return network
