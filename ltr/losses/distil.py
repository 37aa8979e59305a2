"""Distillation: learn from the softened scores of another model, with or without the labels."""

from functools import partial

import torch
from torch import Tensor

from ltr.knobs import Gain, check_choice, check_gain, check_positive, check_share
from ltr.losses.batch import without_padding
from ltr.losses.listwise import cross_entropy, listnet_loss
from ltr.losses.pairs import PairWeight, sum_over_pairs
from ltr.losses.pairwise import lambdarank_loss
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import rank_of_item
from ltr.metrics.spec import GAINS
from ltr.typing import Labels, Mask, PerList, Scores


def distil_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    teacher: Tensor | None = None,
    cost: str = "listnet",
    temperature: float = 0.5,
    alpha: float = 1.0,
    gain: Gain = "exp2",
) -> PerList:
    r"""Return the distillation loss of each list.

    .. math::
        \alpha \, D(t) + (1 - \alpha) \, L(y), \qquad
        p = \operatorname{softmax}(t / \mathrm{temperature})

    where t are the teacher's scores and y the labels. With ``cost="listnet"``, L is
    ``listnet_loss``, and D is the softened cross entropy:

    .. math::
        D(t) = -\sum_j p_j \log \operatorname{softmax}(s)_j

    With ``cost="lambdarank"``, L is ``lambdarank_loss``, and D is LambdaRank with p as gains:

    .. math::
        D(t) = \sum_{t_i > t_j} \frac{|p_i - p_j| \, |d(r_i) - d(r_j)|}{m}
        \log\left(1 + e^{-(s_i - s_j)}\right)

    where r are the ranks by the current scores s, and m is the DCG of the gains p in the teacher's
    order.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        teacher: t, ``[batch, list]``; if None, ``labels`` must be the teacher's scores.
        cost: ``"listnet"`` or ``"lambdarank"``.
        temperature: > 0, in units of t; the smaller it is, the more the teacher's first item
            outweighs the others. In a run with ``teacher=RUN``, t are the teacher's scores divided
            by their standard deviation within lists.
        alpha: from 0 to 1, the weight of the teacher; the labels have the weight 1 - alpha.
        gain: the gain of the labels in ``lambdarank_loss``; not used with ``cost="listnet"``.

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Hinton et al. (2015), section 2, for ``cost="listnet"``. The paper also divides the
    student's scores s by the temperature, and multiplies D by temperature^2; this loss does
    neither.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, -1.0]])
    >>> distil_loss(scores, labels, labels > -2, cost="lambdarank", temperature=1.0)
    tensor([0.2357])
    """
    check_choice("cost", cost, ["listnet", "lambdarank"])
    temperature = check_positive("temperature", temperature)
    alpha = check_share("alpha", alpha)
    gain = check_gain(gain, list(GAINS))
    terms = []
    if alpha > 0:
        if teacher is None:
            s, t = without_padding(scores, labels, mask)
        else:
            s, t = without_padding(scores, teacher, mask, called="teacher")
        distillation = cross_entropy if cost == "listnet" else _lambdarank_of_teacher
        terms.append(alpha * distillation(s, t / temperature, mask))
    if alpha < 1:
        label_loss = listnet_loss if cost == "listnet" else partial(lambdarank_loss, gain=gain)
        terms.append((1 - alpha) * label_loss(scores, labels, mask))
    return sum(terms[1:], terms[0])


def _lambdarank_of_teacher(scores: Scores, teacher: Scores, mask: Mask) -> PerList:
    """Return the LambdaRank loss, ``[batch]``, with softmax(teacher) as gains."""
    gain = teacher.masked_fill(~mask, -torch.inf).softmax(-1)
    gain = gain.masked_fill(~mask, 0)  # the softmax is NaN for a list without items
    rank_discounts = discounts(mask.shape[-1], scores)
    ideal = (gain.sort(-1, descending=True).values * rank_discounts).sum(-1, keepdim=True)
    discount = rank_discounts[rank_of_item(scores, mask) - 1]
    gain = gain / ideal.masked_fill(ideal <= 0, 1)
    weight = PairWeight(gain=gain, discount=discount, factors=(0.0, 1.0, 0.0))
    return sum_over_pairs(scores, teacher, mask, weight)
