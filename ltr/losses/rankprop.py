"""RankProp: regression to targets that have the order of the labels and follow the scores."""

import numpy as np
import torch

from ltr.knobs import check_choice
from ltr.losses.batch import ideal_order, without_padding
from ltr.metrics.ordering import at_items, real_ranks
from ltr.relaxations.second_derivatives import once
from ltr.typing import Labels, Mask, PerList, Scores


def rankprop_loss(scores: Scores, labels: Labels, mask: Mask, *, targets: str = "ranks") -> PerList:
    """RankProp of each list, ``[batch]``, >= 0.

    Mean over items of (s_j - t_j)^2 with targets t that are constants in the gradient and that
    every call takes anew from the scores s and the order of the labels:

    - ``ranks``: the items are sorted by label, equal labels by their score, and t falls evenly with
      the rank r, t = (n - r + 1/2) / n (Caruana, Baluja and Mitchell, 1996, who rank one training
      set before each epoch; the scale of the targets is a choice).
    - ``isotonic``: of all t that fall with that order, the closest to s in squares. The loss is 0
      for all right orders and for scores that are all equal.

    Args:
        targets: ``"ranks"`` (the paper's) or ``"isotonic"``.

    >>> scores, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> rankprop_loss(scores, labels, labels >= 0)  # ((0 - 3/4)^2 + (1 - 1/4)^2) / 2
    tensor([0.5625])
    """
    check_choice("targets", targets, ["ranks", "isotonic"])
    scores, labels = without_padding(scores, labels, mask)
    order = ideal_order(scores, labels, mask)
    sizes = mask.sum(-1, keepdim=True).clamp(min=1)
    if targets == "ranks":
        target = ((sizes - at_items(order)).to(scores.dtype) + 0.5) / sizes
    else:
        falling = _closest_falling(scores.detach().gather(-1, order), real_ranks(mask))
        target = falling.gather(-1, at_items(order) - 1)
    value = (scores - target).square().masked_fill(~mask, 0).sum(-1) / sizes.squeeze(-1)
    return value if targets == "ranks" else once(value, "rankprop with isotonic targets")


def _closest_falling(values: Scores, real: Mask) -> Scores:
    """The closest t to ``values`` with t_1 >= t_2 >= ..., ``[batch, rank]``; 0 where not ``real``.

    By pooling adjacent violators, on the CPU.
    """
    from scipy.optimize import isotonic_regression

    found, given = np.zeros(values.shape), values.double().cpu().numpy()
    for b, n in enumerate(real.sum(-1).tolist()):
        if n and np.isfinite(given[b, :n]).all():  # else the value says that it is not
            found[b, :n] = isotonic_regression(given[b, :n], increasing=False).x
    return torch.from_numpy(found).to(values)
