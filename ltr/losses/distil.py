"""Distil: learn from the softened scores of another model, with or without the labels."""

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
    """Return the distillation loss of each list, ``[batch]``, >= 0.

    The loss is alpha D(t) + (1 - alpha) L(y), where t are the teacher's scores, y the labels, and
    p = softmax(t / temperature):

    - ``cost="listnet"``: D = -sum over items j of p_j log softmax(s)_j, the softened cross entropy
      of Hinton et al. (2015, section 2). Unlike in the paper, the student's scores s are not
      divided by the temperature, and D has no factor temperature^2. L is ``listnet_loss``.
    - ``cost="lambdarank"``: D = sum over the pairs t_i > t_j of |p_i - p_j| |d(r_i) - d(r_j)| / m
      log(1 + exp(-(s_i - s_j))). This is LambdaRank with p as gains: r are the current ranks by s,
      d(r) = 1/log2(1 + r), and m is the DCG of the gains p in the teacher's order. L is
      ``lambdarank_loss`` with ``gain``.

    Args:
        teacher: t, ``[batch, list]``; if None, ``labels`` must be the teacher's scores.
        cost: ``"listnet"`` or ``"lambdarank"``.
        temperature: > 0, in units of t; the smaller it is, the more the teacher's first item
            outweighs the others. In a run with ``teacher=RUN``, t are the teacher's scores divided
            by their standard deviation within lists.
        alpha: from 0 to 1, the weight of the teacher; the labels have the weight 1 - alpha.
        gain: of the labels in ``lambdarank_loss``; ``cost="listnet"`` has none.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, -1.0]])
    >>> distil_loss(scores, labels, labels > -2, cost="lambdarank", temperature=1.0)
    tensor([0.2357])
    """
    check_choice("cost", cost, ["listnet", "lambdarank"])
    temperature = check_positive("temperature", temperature)
    alpha = check_share("alpha", alpha)
    gain = check_gain(gain, list(GAINS))
    parts = []
    if alpha > 0:
        given, called = (labels, "labels") if teacher is None else (teacher, "teacher")
        s, t = without_padding(scores, given, mask, called=called)
        softened = cross_entropy if cost == "listnet" else _teachers_lambdas
        parts.append(alpha * softened(s, t / temperature, mask))
    if alpha < 1:
        of_labels = listnet_loss if cost == "listnet" else partial(lambdarank_loss, gain=gain)
        parts.append((1 - alpha) * of_labels(scores, labels, mask))
    return sum(parts[1:], parts[0])


def _teachers_lambdas(scores: Scores, teacher: Scores, mask: Mask) -> PerList:
    gain = teacher.masked_fill(~mask, -torch.inf).softmax(-1)
    gain = gain.masked_fill(~mask, 0)  # the softmax is NaN for a list of no items
    of_rank = discounts(mask.shape[-1], scores)
    ideal = (gain.sort(-1, descending=True).values * of_rank).sum(-1, keepdim=True)
    discount = of_rank[rank_of_item(scores, mask) - 1]
    gain = gain / ideal.masked_fill(ideal <= 0, 1)
    weight = PairWeight(gain=gain, discount=discount, factors=(0.0, 1.0, 0.0))
    return sum_over_pairs(scores, teacher, mask, weight)
