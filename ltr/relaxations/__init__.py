"""Soft permutations: matrices ``[batch, rank, item]`` that relax sorting by descending score."""

from ltr.relaxations.neuralsort import neural_sort
from ltr.relaxations.neuralsort_stochastic import stochastic_neural_sort
from ltr.relaxations.ot_sorting import ot_sort
from ltr.relaxations.rank_binomial import rank_distribution, sampled_rank_distribution
from ltr.relaxations.sinkhorn_scaling import sinkhorn
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
