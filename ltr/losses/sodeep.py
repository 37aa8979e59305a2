"""SoDeep-NDCG: NDCG with ranks from a network that was taught to sort."""

from ltr.knobs import check_positive
from ltr.losses.approxndcg import negative_ndcg_at
from ltr.losses.batch import without_padding
from ltr.relaxations import learned_ranks
from ltr.typing import Labels, Mask, PerList, Scores


def sodeep_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    cut_slope: float = 10.0,
    sorter: str | None = None,
) -> PerList:
    """Minus NDCG@k by learned soft ranks of each list, ``[batch]``, from about -1 (best) to 0.

    Minus sum over items j of g_j t(r_j) / log2(1 + r_j) / maxDCG@k, g = 2^y - 1, with the ranks r =
    learned_ranks(s) and the truncation t(r) = sigmoid(cut_slope (k + 1/2 - r)), 1 without k, of
    ``approx_ndcg_loss`` (Engilberge et al., 2019, section 3, of other metrics; NDCG here, as labels
    are graded). It does not go to the exact NDCG: the sorter is as good as it was taught. A list
    without a relevant item gives 0 without gradient. Neither the unit of the scores nor a shift of
    them matters.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        cut_slope: > 0, steepness of the truncation, in units of 1 / rank; not used without ``k``.
        sorter: a file of ``python -m ltr.relaxations.teach_sorter``; None: the package's own.

    Raises:
        ConfigError: a knob is out of range, or ``sorter`` cannot be read.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> sodeep_loss(scores, labels, mask).round(decimals=1)  # -(3 / 2 + 1) / (3 + 1 / log2(3))
    tensor([-0.7000])
    """
    check_positive("cut_slope", cut_slope)
    scores, labels = without_padding(scores, labels, mask)
    ranks = learned_ranks(scores, mask, sorter=sorter)
    return negative_ndcg_at(ranks, labels, mask, k=k, cut_slope=cut_slope)
