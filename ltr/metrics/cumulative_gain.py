"""DCG and NDCG, exact."""

from collections.abc import Sequence

import torch

from ltr.metrics.checks import check_choice
from ltr.metrics.convention import SHORT
from ltr.metrics.gains import discounts, gains
from ltr.metrics.ordering import at_ranks
from ltr.metrics.special_lists import float_type, settle
from ltr.typing import Labels, Mask, PerList, Scores


def dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: str | Sequence[float | int] = "exp2",
    discount: str = "log2",
    ties: str = "file",
) -> PerList:
    """Discounted cumulative gain of each list, ``[batch]``.

    DCG@k = sum over ranks r <= k of g(y_r) d(r), y_r the label of the item at rank r when the items
    stand in descending order of score (Järvelin and Kekäläinen, 2002; the NeuralNDCG paper, eq. 1).
    A ``k`` beyond the end is the whole list. A list of no items gives 0; a list in which a real
    item is scored NaN gives NaN (looking for it would stop a GPU, so nothing is raised). float64
    where an input is float64, else float32.

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        gain: g: ``exp2`` is 2^y - 1 (the industry's DCG), ``linear`` is y (the traditional DCG), a
            list is the gains of the grades 0, 1, 2, ....
        discount: d: ``log2`` is 1/log2(1+r), ``letor`` is 1 for r <= 2 and 1/log2(r) beyond.
        ties: ``file``: items with equal scores keep the order in which they are given;
            ``averaged``: the expected value over all orders of them, as scikit-learn has it.

    Raises:
        ConfigError: ``k`` < 1, an unknown gain, discount or tie rule, or a label without a gain.

    >>> scores, labels = torch.tensor([[0.2, 0.1, 0.9]]), torch.tensor([[3.0, 1.0, 2.0]])
    >>> mask = torch.tensor([[True, False, True]])
    >>> dcg(scores, labels, mask, k=1, gain="linear").tolist()  # the item with label 2 is on top
    [2.0]
    >>> dcg(scores, labels, mask, discount="letor").tolist()  # 2**2 - 1 + 2**3 - 1
    [10.0]
    """
    of_item = gains(labels.to(float_type(scores, labels)), mask, gain=gain)
    of_rank = at_ranks(of_item, scores, mask, ties=ties)
    value = (of_rank * discounts(scores.shape[-1], of_rank, k=k, discount=discount)).sum(-1)
    return value.masked_fill((scores.isnan() & mask).any(-1), torch.nan)


def ndcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    gain: str | Sequence[float | int] = "exp2",
    discount: str = "log2",
    ties: str = "file",
    short: str = "scored",
) -> PerList:
    """Normalised discounted cumulative gain of each list, from 0 to 1, ``[batch]``.

    NDCG@k = DCG@k / maxDCG@k, the DCG@k of the items in descending order of label (the NeuralNDCG
    paper, eq. 2). Everything else is as in ``dcg``.

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a relevant item (or without any), from 0 to 1;
            ``"skip"`` gives NaN, which the mean leaves out.
        gain: as in ``dcg``.
        discount: as in ``dcg``.
        ties: as in ``dcg``.
        short: a list of fewer than ``k`` items: ``scored`` as any other, or ``zero``, as the LETOR
            script has it. Whether it is empty comes first.

    Raises:
        ConfigError: ``k`` < 1, an unknown gain, discount, tie rule or ``short``, another ``empty``,
            or a label without a gain.

    >>> scores, mask = torch.tensor([[0.9, 0.2]]), torch.tensor([[True, True]])
    >>> ndcg(scores, torch.tensor([[1.0, 2.0]]), mask, k=1).tolist()  # (2**1 - 1) / (2**2 - 1)
    [0.3333333432674408]
    >>> ndcg(scores, torch.tensor([[0.0, 0.0]]), mask, empty=0.5).tolist()
    [0.5]
    """
    check_choice("short", short, list(SHORT))
    found = dcg(scores, labels, mask, k=k, gain=gain, discount=discount, ties=ties)
    ideal = dcg(labels, labels, mask, k=k, gain=gain, discount=discount).to(found.dtype)
    value = found / ideal
    if short == "zero" and k is not None:
        value = value.masked_fill(mask.sum(-1) < k, 0)
    return settle(value, scores, mask, without=ideal <= 0, empty=empty)
