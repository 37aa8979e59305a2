"""NDCG of a soft permutation: the one composition of NeuralNDCG, OT-NDCG and SoftSort-NDCG."""

from ltr.metrics.cumulative_gain import dcg, discounts, gains
from ltr.typing import Labels, Mask, Matrix, PerList


def minus_soft_ndcg(soft: Matrix, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Minus sum over ranks r <= k of (S g)_r d(r) / maxDCG@k of each list, ``[batch]``.

    g = 2^y - 1, d(r) = 1/log2(1 + r). A list without a relevant item gives 0 without gradient.

    Args:
        soft: ``[batch, rank, item]``, the soft permutation S.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.

    Raises:
        ConfigError: ``k`` is out of range.
    """
    return minus_normalised(soft_dcg_of(soft, labels, mask, k=k), labels, mask, k=k)


def soft_dcg_of(soft: Matrix, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), ``[batch]``."""
    sorted_gains = (soft * gains(labels, mask).unsqueeze(-2)).sum(-1)
    return (sorted_gains * discounts(mask.shape[-1], soft, k=k)).sum(-1)


def minus_normalised(found: PerList, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Minus ``found`` over maxDCG@k; 0 without gradient for a list without a relevant item."""
    ideal = dcg(labels, labels, mask, k=k)
    relevant = ideal > 0
    return (-found / ideal.masked_fill(~relevant, 1)).masked_fill(~relevant, 0)
