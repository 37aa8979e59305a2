"""Soft permutations: matrices ``[batch, rank, item]`` that relax sorting by descending score."""

from ltr.relaxations.neuralsort import neural_sort
from ltr.relaxations.sinkhorn_scaling import sinkhorn

__all__ = ["neural_sort", "sinkhorn"]
