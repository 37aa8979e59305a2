"""ListMLE: the likelihood of the ideal ordering under the Plackett-Luce model."""

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.dispatch import as_array, list_sizes, value_op, with_kernel
from ltr.losses.batch import without_padding
from ltr.metrics.per_list import check_lists, promoted
from ltr.relaxations.noise import uniform_noise
from ltr.typing import Labels, Mask, PerList, Scores


def listmle_loss(
    scores: Scores, labels: Labels, mask: Mask, *, generator: torch.Generator | None = None
) -> PerList:
    """ListMLE of each list, ``[batch]``, >= 0.

    Minus sum over ranks r of log(exp(s_r) / sum over q >= r of exp(s_q)), s_r the score of the item
    at rank r in descending order of label: minus the log likelihood of that order under the
    Plackett-Luce model (Xia et al., 2008, section 4.3). Only the order of the labels matters; that
    of equal labels is drawn at every call, as the paper draws one of the orders consistent with
    them. So an empty list trains towards a random order, on average towards equal scores; the
    reduction can leave it out. A list of one item or none gives 0.

    Args:
        generator: draws the order of ties; None is torch's own, see ``ltr.losses``.

    >>> scores, labels = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> listmle_loss(scores, labels, torch.tensor([[True, True, True]]))  # log 3 + log 2 + log 1
    tensor([1.7918])
    """
    return cost_of_order(
        scores, labels, mask, generator, torch.ones_like(mask, dtype=torch.float32)
    )


def cost_of_order(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    generator: torch.Generator | None,
    of_rank: Tensor,
) -> PerList:
    """Sum over ranks r of -w(r) log(probability of the item of r among those left), ``[batch]``.

    The ranks are those of the labels; ``generator`` draws ties; ``of_rank`` is w >= 0,
    ``[batch, rank]``.
    """
    check_lists(scores, labels, mask)
    noise = uniform_noise(mask, 1, promoted(scores), generator)[0]
    scores, labels = without_padding(scores, labels, mask)
    return _cost_of_order(scores, labels, mask, noise, of_rank)


def _by_loops(
    scores: Scores, labels: Labels, mask: Mask, noise: Scores, of_rank: Tensor
) -> PerList:
    keys, drawn = as_array((-labels).masked_fill(~mask, torch.inf)), as_array(noise)
    if noise.dtype == torch.float32 and bool(((labels % 1 == 0) & (labels.abs() < 1 << 28)).all()):
        order = np.argsort(keys + drawn, -1)  # the sums are exact
    else:
        draws = np.argsort(drawn, -1)
        by_label = np.argsort(np.take_along_axis(keys, draws, -1), -1, kind="stable")
        order = np.take_along_axis(draws, by_label, -1)
    arrays = [mask, torch.from_numpy(order), of_rank]
    return value_op("listmle:listmle_lists", scores, arrays, [], list_sizes(mask) * 8)


@with_kernel(_by_loops)
def _cost_of_order(
    scores: Scores, labels: Labels, mask: Mask, noise: Scores, of_rank: Tensor
) -> PerList:
    draws = noise.argsort(-1)
    keys = labels.masked_fill(~mask, -torch.inf).gather(-1, draws)
    order = draws.gather(-1, keys.argsort(dim=-1, descending=True, stable=True))
    real = mask.gather(-1, order)
    # far below every score, but finite: -inf would make the gradient NaN
    ranked = scores.masked_fill(~mask, torch.finfo(scores.dtype).min / 4).gather(-1, order)
    ranked = ranked - ranked.detach().logsumexp(-1, keepdim=True)  # or a shift costs digits
    left = ranked.flip(-1).logcumsumexp(-1).flip(-1)
    return ((left - ranked).masked_fill(~real, 0) * of_rank).sum(-1)
