"""Optimal-transport sorting: scores carried to equally spaced places, with entropy."""

import torch

from ltr.relaxations.neuralsort import neural_sort
from ltr.relaxations.sinkhorn_scaling import sinkhorn
from ltr.typing import Mask, Matrix, Scores


def ot_sort(
    scores: Scores,
    mask: Mask,
    *,
    temperature: float = 0.01,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> Matrix:
    """The transport plan from ranks to items, n times, doubly stochastic, ``[batch, rank, item]``.

    Minimises sum over r, j of P[r, j] (a_r - x_j)^2 minus temperature times the entropy of P, over
    P whose rows and columns sum to one (Cuturi, Teboul and Vert, 2019, sections 3 and 4): places
    a_r = (n - r) / (n - 1) from 1 down to 0 and scores squashed list by list, x =
    sigmoid((s - mean) / deviation), so that neither their unit nor their shift matters. As the
    temperature goes to 0, P becomes the permutation matrix; items with equal scores share ranks.

    The solution is exp(2 a_r x_j / temperature) with rows and columns scaled. NeuralSort of x at
    (n - 1) temperature is that kernel, columns scaled by the dual solution of the transport without
    entropy, which keeps it from underflowing: it is where the scaling starts. So what tells this
    from NeuralSort with Sinkhorn scaling is the squashing and the unit of the temperature.

    Args:
        scores: ``[batch, list]``, higher is better. A standard deviation below about 1e-3 is not
            magnified to 1, so that tied scores have a finite slope.
        mask: ``[batch, list]``, True where an item exists, padding anywhere.
        temperature: > 0, in units of squared places, that is of the list's whole length squared.
        max_iter: >= 1, the most iterations of the scaling.
        tol: deviation of row and column sums from one at which the scaling stops.

    Returns:
        float64 for float64 scores, else float32; 0 beyond the n ranks and on padding.

    Raises:
        ConfigError: a knob is out of range.

    >>> scores, mask = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])
    >>> ot_sort(scores, mask, temperature=0.1).round().tolist()
    [[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
    """
    squashed = squash(scores.to(torch.promote_types(scores.dtype, torch.float32)), mask)
    steps = (mask.sum(-1, keepdim=True) - 1).clamp(min=1)
    soft = neural_sort(squashed / steps, mask, temperature=temperature)
    return sinkhorn(soft, mask, max_iter=max_iter, tol=tol)


def squash(scores: Scores, mask: Mask) -> Scores:
    """sigmoid((s - mean) / sqrt(variance + 1e-6)) over the items of each list, ``[batch, list]``.

    >>> squash(torch.tensor([[-5.0, 5.0]]), torch.tensor([[True, True]]))  # of -1 and 1
    tensor([[0.2689, 0.7311]])
    """
    sizes = mask.sum(-1, keepdim=True).clamp(min=1)
    scores = scores.masked_fill(~mask, 0)
    centred = (scores - scores.sum(-1, keepdim=True) / sizes).masked_fill(~mask, 0)
    variance = centred.square().sum(-1, keepdim=True) / sizes
    return (centred / (variance + 1e-6).sqrt()).sigmoid()
