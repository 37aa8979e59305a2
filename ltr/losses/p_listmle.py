"""Position-aware ListMLE: ListMLE with more weight on the first ranks."""

import torch

from ltr.knobs import check_choice
from ltr.losses.listmle import cost_of_order
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import ranks_like
from ltr.typing import Labels, Mask, PerList, Scores


def p_listmle_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    weight: str = "exp2",
    generator: torch.Generator | None = None,
) -> PerList:
    """Position-aware ListMLE of each list, ``[batch]``, >= 0.

    Sum over ranks r of w(r) (log(sum over q >= r of exp(s_q)) - s_r): the terms of ``listmle_loss``
    with a weight that falls with the rank. The paper's is w(r) = 2^(n - r) - 1 (Lan et al., 2014,
    section 4); here it is divided by its largest, w(1), so that a list of 240 items stays finite
    and lists of all sizes weigh the same: w falls from 1 to 0 and halves with each rank. ``log2``
    is the gentler w(r) = 1/log2(1 + r). The order of equal labels is drawn and an empty list
    counts as in ``listmle_loss``. One item or none gives 0.

    Args:
        weight: ``"exp2"`` (the paper's) or ``"log2"``.
        generator: draws the order of ties; None is torch's own, see ``ltr.losses``.

    >>> scores, labels = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> p_listmle_loss(scores, labels, mask)  # log 3 + (2**1 - 1) / (2**2 - 1) log 2
    tensor([1.3297])
    """
    check_choice("weight", weight, ["exp2", "log2"])
    dtype = torch.promote_types(scores.dtype, torch.float32)
    ranks = ranks_like(mask).to(dtype)
    if weight == "log2":
        weights = discounts(mask.shape[-1], ranks).expand(mask.shape)
    else:
        # both sides of w(r) / w(1) times 2^(1 - n); a list of one item would be 0 / 0
        last = (1 - mask.sum(-1, keepdim=True).to(dtype)).exp2()
        halving = ((1 - ranks).exp2() - last).clamp(min=0)
        weights = halving / (1 - last).masked_fill(last >= 1, 1)
    return cost_of_order(scores, labels, mask, generator, weights)
