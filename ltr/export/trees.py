"""``Trees``: an ensemble of regression trees over raw features, whatever grew them.

Every split is ``x <= threshold`` in float32, which routes each float32 value as the library does:
a float64 threshold t of ``<=`` is the largest float32 that is not above t, and a float32 t of ``<``
the next float32 below.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ltr.data.lists import Doubles, Flags, Floats, Ints
from ltr.data.transforms import FeatureTransform

_LARGEST = int(np.float32(np.finfo(np.float32).max).view(np.int32))
_ROWS = 1 << 14  # items that go down a tree at once: they stay in the cache


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree; node 0 is its root, and every other node comes after its parent.

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

    @property
    def leaves(self) -> Doubles:
        """The values of the leaves."""
        return self.value[self.feature < 0]


@dataclass(frozen=True, eq=False)
class Trees:
    """The sum of ``trees`` and ``bias``."""

    trees: tuple[Tree, ...]
    bias: float = 0.0

    def scores(self, features: Floats) -> Doubles:
        """The score of each row of ``features``, ``[items]``."""
        total = np.full(len(features), self.bias)
        for tree in self.trees:
            total += tree.value[places(tree, features)]
        return total

    def with_bias(self, shift: float = 0.0) -> tuple[Tree, ...]:
        """The trees, with the bias and ``shift`` as a tree of one leaf."""
        constant = self.bias + shift
        return (*self.trees, leaf(constant)) if constant else self.trees

    @property
    def least(self) -> float:
        """A bound of the scores from below."""
        return self.bias + sum(float(tree.leaves.min()) for tree in self.trees)

    def where_zero_goes(self) -> "Trees":
        """The same for values that are absent because they are 0: they go where 0 goes."""
        made = (replace(t, missing_left=np.float32(0) <= t.threshold) for t in self.trees)
        return replace(self, trees=tuple(made))


def leaf(value: float) -> Tree:
    """A tree that is one leaf."""
    one = np.zeros(1, np.int64)
    return Tree(one - 1, np.zeros(1, np.float32), one, one, np.zeros(1, bool), np.array([value]))


def stump(feature: int, threshold: float, low: float, high: float) -> Tree:
    """``high`` where the feature is above the threshold, else ``low``."""
    return Tree(
        feature=np.array([feature, -1, -1]),
        threshold=np.array([at_most(threshold), 0, 0], np.float32),
        left=np.array([1, 0, 0]),
        right=np.array([2, 0, 0]),
        missing_left=np.array([True, False, False]),
        value=np.array([0.0, low, high]),
    )


def at_most(threshold: float | Doubles) -> Floats:
    """The largest float32 that is not above ``threshold``.

    >>> float(at_most(0.1)) <= 0.1 < float(np.nextafter(at_most(0.1), np.float32(1)))
    True
    """
    exact = np.asarray(threshold, np.float64)
    near = exact.astype(np.float32)
    found: Floats = np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near)
    return found


def below(threshold: Floats) -> Floats:
    """``t`` of ``x <= t`` that is ``x < threshold``."""
    return np.nextafter(np.asarray(threshold, np.float32), np.float32(-np.inf))


def above(threshold: Floats) -> Floats:
    """``t`` of ``x < t`` that is ``x <= threshold``."""
    return np.nextafter(np.asarray(threshold, np.float32), np.float32(np.inf))


def places(tree: Tree, features: Floats) -> Ints:
    """The leaf of each row of ``features``, ``[items]``."""
    found: Ints = np.zeros(len(features), np.int64)
    for first in range(0, len(features), _ROWS):
        rows = features[first : first + _ROWS]
        nodes, moving = found[first : first + _ROWS], np.arange(len(rows))
        while len(moving := moving[tree.feature[nodes[moving]] >= 0]):
            at = nodes[moving]
            values = rows[moving, tree.feature[at]]
            goes_left = np.where(
                np.isnan(values), tree.missing_left[at], values <= tree.threshold[at]
            )
            nodes[moving] = np.where(goes_left, tree.left[at], tree.right[at])
    return found


def before_transform(trees: Trees, transform: FeatureTransform) -> Trees:
    """``trees`` over transformed features as trees over features as the lists have them.

    The transform of a column never falls where its sign is +1 and never rises where it is -1, so
    that a set ``transform(x) <= t`` is a half-line of x, whose end is found among all float32.
    """
    if _changes_nothing(transform):
        return trees
    by_column: list[Floats] = [
        np.unique(np.concatenate([t.threshold[t.feature == column] for t in trees.trees]))
        for column in range(transform.width)
    ]
    rows = max(map(len, by_column))
    limits = np.zeros((rows, transform.width), np.float32)
    for column, values in enumerate(by_column):
        limits[: len(values), column] = values
    missing = transform(np.full((1, transform.width), np.nan, np.float32))[0]
    falls = transform.sign < 0

    def up_to(values: Floats) -> Flags:
        """Whether each value is on the side of the smallest values, ``[rows, width]``."""
        inside = transform(values) <= limits
        return np.where(falls, ~inside, inside)

    ends = _last(up_to, limits.shape)

    def moved(tree: Tree) -> Tree:
        column = np.maximum(tree.feature, 0)
        row = [
            np.searchsorted(by_column[c], t) for c, t in zip(column, tree.threshold, strict=True)
        ]
        inner = tree.feature >= 0
        swap = inner & falls[column]
        threshold = np.where(inner, ends[np.minimum(row, rows - 1), column], 0)
        goes_left = tree.missing_left
        if not transform.keep_missing:
            goes_left = missing[column] <= tree.threshold
        return replace(
            tree,
            threshold=threshold.astype(np.float32),
            left=np.where(swap, tree.right, tree.left),
            right=np.where(swap, tree.left, tree.right),
            missing_left=goes_left ^ swap,
        )

    return replace(trees, trees=tuple(map(moved, trees.trees)))


def _changes_nothing(transform: FeatureTransform) -> bool:
    plain = (transform.shape == 0) & (transform.mean == 0) & (transform.scale == 1)
    return bool((plain & (transform.sign == 1)).all() and transform.keep_missing)


def _last(holds: Callable[[Floats], Flags], shape: tuple[int, ...]) -> Floats:
    """The largest float32 at each place for which ``holds``, which is True up to it.

    Where it never holds: the smallest float32.
    """
    low, high = np.full(shape, -_LARGEST, np.int64), np.full(shape, _LARGEST, np.int64)
    while (low < high).any():
        middle = -((-low - high) // 2)  # rounded up
        found = holds(_floats(middle))
        low, high = np.where(found, middle, low), np.where(found, high, middle - 1)
    return _floats(low)


def _floats(ordinals: NDArray[np.int64]) -> Floats:
    """The float32 numbers in their order; 0 is ordinal 0."""
    bits = np.abs(ordinals).astype(np.int32)
    return np.where(ordinals < 0, -bits.view(np.float32), bits.view(np.float32))


def read_tree(root: Any, read: Callable[[Any], float | tuple[int, float, Any, Any, bool]]) -> Tree:
    """The tree below the node ``root`` of an engine's file.

    ``read`` gives the value of a leaf, and of a split ``feature, threshold, left node, right node,
    missing_left``.
    """
    nodes: list[Any] = [None]
    stack = [(0, root)]
    while stack:
        place, node = stack.pop()
        told = read(node)
        if isinstance(told, float):
            nodes[place] = (-1, 0.0, 0, 0, False, told)
            continue
        feature, threshold, below_left, below_right, missing_left = told
        left, right = len(nodes), len(nodes) + 1
        nodes[place] = (feature, threshold, left, right, missing_left, 0.0)
        nodes += [None, None]
        stack += [(left, below_left), (right, below_right)]
    return tree_of(nodes)


def tree_of(nodes: Sequence[tuple[int, float, int, int, bool, float]]) -> Tree:
    """The tree of rows ``feature, threshold, left, right, missing_left, value``."""
    feature, threshold, left, right, missing_left, value = zip(*nodes, strict=True)
    return Tree(
        np.array(feature, np.int64), np.array(threshold, np.float32), np.array(left, np.int64),
        np.array(right, np.int64), np.array(missing_left, bool), np.array(value, np.float64),
    )  # fmt: skip
