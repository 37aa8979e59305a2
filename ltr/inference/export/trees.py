"""``Trees``: an ensemble of regression trees over raw features, whatever grew them.

Every split is ``x <= threshold`` in float32, which routes each float32 value as the library does:
a float64 threshold t of ``<=`` is the largest float32 that is not above t, and a float32 t of ``<``
the next float32 below.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ltr.data.lists import Doubles, Flags, Floats, Ints
from ltr.data.transforms import FeatureTransform

_LARGEST = int(np.float32(np.finfo(np.float32).max).view(np.int32))
_ROWS = 1 << 14  # items that go down a tree at once: they stay in the cache


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree; node 0 is its root.

    Attributes:
        feature: ``[nodes]``, 0-based; -1 of a leaf.
        threshold: ``[nodes]`` float32; an item goes left where its value is at most this.
        left, right: ``[nodes]``.
        missing_left: ``[nodes]``, where a missing value goes.
        value: ``[nodes]``, of a leaf.
    """

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing_left: Flags
    value: Doubles

    @classmethod
    def of(cls, nodes: Iterable[tuple[int, float, int, int, bool, float]]) -> "Tree":
        """The tree of rows ``feature, threshold, left, right, missing_left, value``."""
        kinds = (np.int64, np.float32, np.int64, np.int64, bool, np.float64)
        columns = zip(*nodes, strict=True)
        return cls(*(np.array(part, kind) for part, kind in zip(columns, kinds, strict=True)))

    def fold(
        self,
        leaf: Callable[[int], Any],
        split: Callable[[int, int, Any, Any], Any],
        node: int = 0,
        depth: int = 0,
    ) -> Any:
        """``leaf(node)`` of leaves, ``split(node, depth, left, right)`` of what these gave."""
        if self.feature[node] < 0:
            return leaf(node)
        left, right = (
            self.fold(leaf, split, int(side[node]), depth + 1) for side in (self.left, self.right)
        )
        return split(node, depth, left, right)

    def places(self, features: Floats) -> Ints:
        """The leaf of each row of ``features``, ``[items]``."""
        found: Ints = np.zeros(len(features), np.int64)
        for first in range(0, len(features), _ROWS):
            rows = features[first : first + _ROWS]
            nodes, moving = found[first : first + _ROWS], np.arange(len(rows))
            while len(moving := moving[self.feature[nodes[moving]] >= 0]):
                at = nodes[moving]
                x = rows[moving, self.feature[at]]
                left = np.where(np.isnan(x), self.missing_left[at], x <= self.threshold[at])
                nodes[moving] = np.where(left, self.left[at], self.right[at])
        return found


@dataclass(frozen=True, eq=False)
class Trees:
    """The sum of ``trees`` and ``bias``."""

    trees: tuple[Tree, ...]
    bias: float = 0.0

    def scores(self, features: Floats) -> Doubles:
        """The score of each row of ``features``, ``[items]``."""
        total = np.full(len(features), self.bias)
        for tree in self.trees:
            total += tree.value[tree.places(features)]
        return total

    def with_bias(self, shift: float = 0.0) -> tuple[Tree, ...]:
        """The trees, at least one, with the bias and ``shift`` as a tree of one leaf."""
        constant = self.bias + shift
        return (*self.trees, leaf(constant)) if constant or not self.trees else self.trees

    @property
    def least(self) -> float:
        """A bound of the scores from below."""
        return self.bias + sum(float(tree.value[tree.feature < 0].min()) for tree in self.trees)

    def where_zero_goes(self) -> "Trees":
        """The same for values that are absent because they are 0: they go where 0 goes."""
        made = (replace(t, missing_left=np.float32(0) <= t.threshold) for t in self.trees)
        return replace(self, trees=tuple(made))


def leaf(value: float) -> Tree:
    """A tree that is one leaf."""
    return Tree.of([(-1, 0.0, 0, 0, False, value)])


def stump(feature: int, threshold: float, low: float, high: float) -> Tree:
    """``high`` where the feature is above the threshold, else ``low``."""
    split = (feature, float(at_most(threshold)), 1, 2, True, 0.0)
    return Tree.of([split, *((-1, 0.0, 0, 0, False, value) for value in (low, high))])


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


def before_transform(trees: Trees, transform: FeatureTransform) -> Trees:
    """``trees`` over transformed features as trees over features as the lists have them.

    The transform of a column never falls where its sign is +1 and never rises where it is -1, so
    that a set ``transform(x) <= t`` is a half-line of x, whose end is found among all float32.
    """
    nodes = [pd.DataFrame({"column": t.feature, "limit": t.threshold}) for t in trees.trees]
    splits = pd.concat([*nodes, pd.DataFrame({"column": [], "limit": []})]).drop_duplicates()
    splits = splits[splits["column"] >= 0].astype({"column": int})
    if splits.empty:
        return trees
    at = splits.groupby("column").cumcount().to_numpy(), splits["column"].to_numpy()
    limits = np.zeros((at[0].max() + 1, transform.width), np.float32)
    limits[at] = splits["limit"]
    falls = transform.sign < 0
    # bisect the ordinals of float32 for the last value that is still on the side of the smallest
    low, high = (np.full(limits.shape, end, np.int64) for end in (-_LARGEST, _LARGEST))
    while (low < high).any():
        middle = -((-low - high) // 2)  # rounded up
        inside = (transform(_floats(middle)) <= limits) ^ falls
        low, high = np.where(inside, middle, low), np.where(inside, high, middle - 1)
    ends = _floats(low)[at].tolist()
    end_of = dict(zip(zip(at[1].tolist(), splits["limit"], strict=True), ends, strict=True))
    missing = transform(np.full((1, transform.width), np.nan, np.float32))[0]

    def moved(tree: Tree) -> Tree:
        swap = (tree.feature >= 0) & falls[tree.feature]
        keys = zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True)
        goes_left = tree.missing_left
        if not transform.keep_missing:
            goes_left = missing[tree.feature] <= tree.threshold
        return replace(
            tree,
            threshold=np.array([end_of.get(key, 0.0) for key in keys], np.float32),
            left=np.where(swap, tree.right, tree.left),
            right=np.where(swap, tree.left, tree.right),
            missing_left=goes_left ^ swap,
        )

    return replace(trees, trees=tuple(map(moved, trees.trees)))


def _floats(ordinals: Ints) -> Floats:
    """The float32 numbers in their order; 0 is ordinal 0."""
    bits = np.abs(ordinals).astype(np.int32)
    return np.where(ordinals < 0, -bits.view(np.float32), bits.view(np.float32))
