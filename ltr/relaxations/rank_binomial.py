"""SoftRank's distributions of ranks, computed with the Rank-Binomial recursion."""

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ltr.knobs import check_positive
from ltr.metrics.per_list import promoted
from ltr.typing import Mask, Matrix, Scores


def rank_distribution(scores: Scores, mask: Mask, *, sigma: float = 1.0) -> Matrix:
    r"""Return the probability of each rank, for items with Gaussian scores.

    .. math::
        p_j(r) \leftarrow p_j(r - 1) \, \pi_{ij} + p_j(r) \, (1 - \pi_{ij}), \qquad
        \pi_{ij} = \Phi\left(\frac{s_i - s_j}{\sigma \sqrt{2}}\right)

    for each item i in turn, where pi_ij is the probability that i beats j (has the larger score).
    The rank of j is 1 plus the number of items that beat j; these contests are treated as
    independent. As sigma goes to 0, the result becomes the permutation matrix.

    The recursion takes O(n^3) time. For long lists, only about 2 sqrt(n) of its matrices are stored
    for the gradient; the others are computed again.

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        sigma: > 0, the standard deviation of every score, in units of the scores.

    Returns:
        p, ``[batch, rank, item]``. The column of each real item sums to one; the rows in general do
        not.

    Raises:
        ConfigError: ``sigma`` is not a finite number above 0.

    Source: Taylor et al. (2008), section 3; Lee (2022), eq. 2.4.

    >>> scores = torch.zeros(1, 3)
    >>> rank_distribution(scores, scores == 0)[0, :, 0]  # of two fair coins
    tensor([0.2500, 0.5000, 0.2500])
    """
    sigma = check_positive("sigma", sigma)
    scores = promoted(scores).masked_fill(~mask, 0)
    beats = torch.special.ndtr(
        (scores.unsqueeze(-1) - scores.unsqueeze(-2)) / (sigma * math.sqrt(2))
    )
    size = mask.shape[-1]
    itself = torch.eye(size, dtype=torch.bool, device=mask.device)
    beats = beats.masked_fill(itself | ~mask.unsqueeze(-1), 0)
    # [batch, item, rank]: before any contest every item is first. The zeros are part of the scores'
    # graph, so that lists of length 0 have a gradient too.
    distribution = beats * 0
    distribution[..., :1] = 1
    length = math.isqrt(size) + 1 if size > 32 else max(size, 1)
    for chunk in beats.split(length, dim=-2):
        if length < size and chunk.requires_grad:
            distribution = checkpoint(_add_contests, distribution, chunk, use_reentrant=False)
        else:
            distribution = _add_contests(distribution, chunk)
    return distribution.masked_fill(~mask.unsqueeze(-1), 0).mT


def _add_contests(distribution: Tensor, beats: Tensor) -> Tensor:
    """Return ``distribution``, ``[batch, item, rank]``, after one contest per row of ``beats``.

    Each row, ``[batch, item]``, holds the probabilities with which one opponent beats each item.
    """
    for pi in beats.unbind(-2):
        pi = pi.unsqueeze(-1)
        shifted = torch.nn.functional.pad(distribution, (1, 0))[..., :-1]
        distribution = shifted * pi + distribution * (1 - pi)
    return distribution
