"""Soft permutations: matrices ``[batch, rank, item]`` that relax sorting by descending score."""

from ltr.relaxations.neuralsort import neural_sort, stochastic_neural_sort
from ltr.relaxations.optimal_transport import ot_sort, sinkhorn
from ltr.relaxations.rank_binomial import rank_distribution, sampled_rank_distribution
from ltr.relaxations.softsort import soft_sort

__all__ = [
    "neural_sort",
    "ot_sort",
    "rank_distribution",
    "sampled_rank_distribution",
    "sinkhorn",
    "soft_sort",
    "stochastic_neural_sort",
]
