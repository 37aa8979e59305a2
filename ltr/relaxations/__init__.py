"""Soft permutations: matrices ``[batch, rank, item]`` that relax sorting by descending score.

The functions take ``scores`` (higher is better) and ``mask`` (True where an item exists), both
``[batch, list]``; padding may be anywhere in a list. For a list of n items, the rows of ranks
beyond n and the columns of padding are exactly 0, and so is the gradient on padding. The dtype is
float64 if the scores are float64, otherwise float32. A smaller temperature brings the matrix closer
to exact sorting. An argument that is unknown or out of range raises ``ConfigError``.

``learned_ranks`` is an exception: it returns soft ranks, ``[batch, list]``, instead of a matrix.
"""

from ltr.relaxations.learned_sorter import learned_ranks
from ltr.relaxations.neuralsort import neural_sort, soft_sort
from ltr.relaxations.optimal_transport import ot_sort, sinkhorn
from ltr.relaxations.rank_binomial import rank_distribution
from ltr.relaxations.sorting_network import network_sort

__all__ = [
    "learned_ranks",
    "network_sort",
    "neural_sort",
    "ot_sort",
    "rank_distribution",
    "sinkhorn",
    "soft_sort",
]
