"""RankProp: regression to targets that have the order of the labels and depend on the scores."""

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.operators import constant_operator
from ltr.knobs import check_choice
from ltr.losses.batch import ideal_order, without_padding
from ltr.metrics.ordering import at_items, real_ranks
from ltr.relaxations.second_derivatives import constant_from_numbers, forbid_second_derivative
from ltr.typing import Labels, Mask, PerList, Scores


def rankprop_loss(scores: Scores, labels: Labels, mask: Mask, *, targets: str = "ranks") -> PerList:
    r"""Return the RankProp loss of each list: regression to targets in the order of the labels.

    .. math::
        \ell(s, y) = \frac{1}{n} \sum_j (s_j - t_j)^2

    Every call computes new targets t from the scores s and the order of the labels; the gradient
    treats the targets as constants. For the targets, items are ranked by descending label, and
    items with equal labels by descending score.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        targets: with ``"ranks"``, t = (n - r + 1/2) / n, which decreases in equal steps with the
            rank r. With ``"isotonic"``, t is closest to s, in squared distance, among all targets
            that never increase with the rank. The loss is then 0 if the scores have the order of
            the labels, or if all scores are equal.

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.
        NotImplementedError: a second derivative is taken with isotonic targets.

    Source: Caruana, Baluja and Mitchell (1996). In the paper, the whole training set is ranked
    before each epoch. The scale of t and the isotonic targets are not from the paper.

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
        ranked = scores.gather(-1, order)
        decreasing = constant_from_numbers(_closest_decreasing, ranked, real_ranks(mask))
        target = decreasing.gather(-1, at_items(order) - 1)
    value = (scores - target).square().masked_fill(~mask, 0).sum(-1) / sizes.squeeze(-1)
    if targets == "ranks":
        return value
    return forbid_second_derivative(value, "rankprop with isotonic targets")


@constant_operator("closest_decreasing", lambda values, real: torch.empty_like(values))
def _closest_decreasing(values: Tensor, real: Tensor) -> Tensor:
    """Return the t with t_1 >= t_2 >= ... that is closest to ``values``, ``[batch, rank]``.

    t is 0 where ``real`` is False. The pool-adjacent-violators algorithm runs on the CPU.
    """
    from scipy.optimize import isotonic_regression

    array = values.double().cpu().numpy()
    closest = np.zeros(values.shape)
    for b, n in enumerate(real.sum(-1).tolist()):
        if n and np.isfinite(array[b, :n]).all():  # otherwise the loss itself is not finite
            closest[b, :n] = isotonic_regression(array[b, :n], increasing=False).x
    return torch.from_numpy(closest).to(values)
