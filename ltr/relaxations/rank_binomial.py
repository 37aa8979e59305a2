"""SoftRank's rank distribution by the Rank-Binomial recursion."""

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ltr.knobs import check_positive
from ltr.metrics.per_list import promoted
from ltr.typing import Mask, Matrix, Scores


def rank_distribution(scores: Scores, mask: Mask, *, sigma: float = 1.0) -> Matrix:
    """Return the probability of each rank for items with Gaussian scores, ``[batch, rank, item]``.

    Item i beats j with probability pi_ij = Phi((s_i - s_j) / (sigma sqrt 2)). The rank of j is 1
    plus the number of items that beat it, and these contests are treated as independent. Adding
    them one by one gives the recursion p_j(r) <- p_j(r - 1) pi_ij + p_j(r) (1 - pi_ij) (Taylor et
    al., 2008, section 3; Lee, 2022, eq. 2.4). Each real column sums to one; rows in
    general do not. As sigma goes to 0, the result becomes the permutation matrix. ``sigma`` > 0 is
    the standard deviation of every score, in units of the scores.

    It takes O(n^3) time. For long lists, about 2 sqrt(n) matrices of the recursion are stored for
    the gradient, and the others are computed again.

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
    found = beats * 0
    found[..., :1] = 1
    length = math.isqrt(size) + 1 if size > 32 else max(size, 1)
    for part in beats.split(length, dim=-2):
        if length < size and part.requires_grad:
            found = checkpoint(_add_contests, found, part, use_reentrant=False)
        else:
            found = _add_contests(found, part)
    return found.masked_fill(~mask.unsqueeze(-1), 0).mT


def _add_contests(found: Tensor, beats: Tensor) -> Tensor:
    """Return the distributions ``[batch, item, rank]`` after contests with those in ``beats``."""
    for pi in beats.unbind(-2):
        pi = pi.unsqueeze(-1)
        shifted = torch.nn.functional.pad(found, (1, 0))[..., :-1]
        found = shifted * pi + found * (1 - pi)
    return found
