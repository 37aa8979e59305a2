"""RankProp: regression to targets that keep the order of the labels and adapt to the scores."""

import numpy as np
import torch

from ltr.knobs import check_choice
from ltr.losses.batch import ideal_order, without_padding
from ltr.metrics.ordering import at_items, real_ranks
from ltr.relaxations.second_derivatives import on_numbers, once
from ltr.typing import Labels, Mask, PerList, Scores


def rankprop_loss(scores: Scores, labels: Labels, mask: Mask, *, targets: str = "ranks") -> PerList:
    """Return the RankProp loss of each list, ``[batch]``, >= 0.

    The loss is the mean over items of (s_j - t_j)^2. Every call computes the targets t anew, from
    the scores s and the order of the labels; the gradient treats them as constants:

    - ``ranks``: the items are sorted by label, equal labels by score, and t decreases evenly with
      the rank r, t = (n - r + 1/2) / n (Caruana, Baluja and Mitchell, 1996, who instead rank the
      whole training set before each epoch; the scale of t is chosen here).
    - ``isotonic``: among all t that never increase in that order, the one closest to s in squared
      distance. The loss is 0 if the scores order the labels right, or if all scores are equal.

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
        falling = on_numbers(_closest_falling, scores.gather(-1, order), real_ranks(mask))
        target = falling.gather(-1, at_items(order) - 1)
    value = (scores - target).square().masked_fill(~mask, 0).sum(-1) / sizes.squeeze(-1)
    return value if targets == "ranks" else once(value, "rankprop with isotonic targets")


def _closest_falling(values: Scores, real: Mask) -> Scores:
    """Return the t closest to ``values`` with t_1 >= t_2 >= ..., ``[batch, rank]``.

    t is 0 where ``real`` is False. The algorithm is pooling adjacent violators, on the CPU.
    """
    from scipy.optimize import isotonic_regression

    found, given = np.zeros(values.shape), values.double().cpu().numpy()
    for b, n in enumerate(real.sum(-1).tolist()):
        if n and np.isfinite(given[b, :n]).all():  # else the loss itself is not finite
            found[b, :n] = isotonic_regression(given[b, :n], increasing=False).x
    return torch.from_numpy(found).to(values)
