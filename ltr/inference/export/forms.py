"""A model over raw features: ``Trees``, whatever grew them, and ``Layers``."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ltr.arrays import Doubles, Floats
from ltr.data.transforms import FeatureTransform
from ltr.inference.export.graph import linear_of
from ltr.models import MLP
from ltr.models.layers import Dropout
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


def stump(feature: int, threshold: float, low: float, high: float) -> Tree:
    """``high`` where the feature is above the threshold, else ``low``; a missing value is 0."""
    split = np.array([(feature, at_most(threshold), 1, 2, threshold >= 0, 0.0)], NODE)
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


class Layers(nn.Sequential):
    """A linear layer and an activation by turns, in float64; the last gives one number."""

    @property
    def is_linear(self) -> bool:
        """Whether it is a sum of weights times features and a bias."""
        return len(self) == 2 and isinstance(self[1], nn.Identity)

    @torch.inference_mode()
    def scores(self, features: Floats) -> Doubles:
        """The score of each row of raw ``features``, ``[items]``."""
        return self(torch.tensor(features, dtype=torch.float64))[:, 0].numpy()


def layers_of(model: nn.Module, transform: FeatureTransform) -> Layers:
    """The layers of a model that ``is_dense``.

    The standardisation is in the first:
    ``W (scale * (sign * x - mean)) + b = (W * scale * sign) x + (b - (W * scale) mean)``.
    """
    network: Any = linear_of(model) if isinstance(model, AdaRank | PRank) else model
    hidden = [*network.layers] if isinstance(network, MLP) else []
    modules = [*hidden, network.head.linear, network.head.activation]
    layers = Layers(*(deepcopy(one).double() for one in modules if not isinstance(one, Dropout)))
    layers.requires_grad_(False)
    first: Any = layers[0]
    weights = first.weight.numpy() * transform.scale
    first.bias -= torch.from_numpy(weights @ transform.mean)
    first.weight.copy_(torch.from_numpy(weights * transform.sign))
    return layers
