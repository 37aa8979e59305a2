"""SoftSort: a row-stochastic relaxation from the distances to the sorted scores."""

import torch

from ltr.metrics.checks import check_positive
from ltr.metrics.ordering import order_by_score
from ltr.typing import Mask, Matrix, Scores


def soft_sort(scores: Scores, mask: Mask, *, temperature: float = 1.0) -> Matrix:
    """The matrix P whose row r says which item stands at rank r, ``[batch, rank, item]``.

    P[r, j] = softmax over j of -|s_(r) - s_j| / temperature, s_(r) the r-th largest score (Prillo
    and Eisenschlos, 2020, eq. 4 with the distance |.|). As the temperature goes to 0, P becomes the
    permutation matrix; items with equal scores share ranks. The rows beyond the n items of a list
    and the columns of padding are exactly 0; every other row sums to one.

    Args:
        scores: ``[batch, list]``, higher is better.
        mask: ``[batch, list]``, True where an item exists, padding anywhere.
        temperature: > 0, in units of the scores; smaller is closer to sorting.

    Returns:
        float64 for float64 scores, else float32. The gradient on padding is exactly 0.

    Raises:
        ConfigError: ``temperature`` is not above 0.

    >>> scores, mask = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])
    >>> soft_sort(scores, mask)[0, 0]  # exp(-2) / (exp(-2) + 1) and the rest
    tensor([0.1192, 0.8808, 0.0000])
    """
    check_positive("temperature", temperature)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~mask, 0)
    ordered = scores.gather(-1, order_by_score(scores, mask))
    distances = (ordered.unsqueeze(-1) - scores.unsqueeze(-2)).abs() / temperature
    sizes = mask.sum(-1, keepdim=True)
    ranks = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    # padding is kept out of the softmax; a list of padding only would be NaN
    outside = (~mask & (sizes > 0)).unsqueeze(-2)
    logits = (-distances).masked_fill(outside, -torch.inf)
    return logits.softmax(-1).masked_fill((ranks > sizes).unsqueeze(-1), 0)
