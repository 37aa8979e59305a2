"""Network-NDCG: NDCG of lists that are sorted by a differentiable sorting network."""

from ltr.knobs import Gain
from ltr.losses.batch import ideal_order, without_padding
from ltr.losses.soft_permutation import negative_ndcg
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.relaxations.sorting_network import soft_sorted
from ltr.typing import Labels, Mask, PerList, Scores


def network_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    network: str = "bitonic",
    distribution: str = "cauchy",
    temperature: float = 0.1,
) -> PerList:
    r"""Return minus NDCG@k of each list, softly sorted by a differentiable sorting network.

    .. math::
        -\frac{1}{\mathrm{maxDCG}@k} \sum_{r \le k} (S g)_r \, d(r)

    where S = network_sort(s), g are the gains, and d(r) = 1/log2(1 + r). S is doubly stochastic, so
    no Sinkhorn scaling is needed. Only g is carried through the network, so a list of n items takes
    O(n log^2 n) time and memory with ``bitonic``, and O(n^2) with ``odd_even``. The loss approaches
    minus the exact NDCG@k as the temperature goes to 0. At a high temperature, part of each gain
    stays at the rank where it entered, and the loss is closer to -1 than minus the exact NDCG@k is.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        network: ``bitonic`` or ``odd_even``.
        distribution: ``cauchy``, ``reciprocal``, ``optimal`` or ``logistic``; see ``network_sort``.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to NDCG.

    Returns:
        One value per list, ``[batch]``, from -1 (best) to 0. For a list without a relevant item
        (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: the sorting is from Petersen et al. (2021 and 2022). S depends on the order in which
    items enter the network, which the papers do not specify. Here items enter in the ideal order:
    by descending gain, and by descending score if gains are equal. So the order in which items are
    given does not matter, and the loss does not jump where two scores cross.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> network_ndcg_loss(scores, labels, labels >= 0, k=1, temperature=1e-6)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    item_gains = gains(labels, mask, gain=gain)
    order = ideal_order(scores, item_gains, mask)
    values = item_gains.unsqueeze(-1)
    sorted_gains = soft_sorted(values, scores, mask, order, network, distribution, temperature)
    dcg = (sorted_gains.squeeze(-1) * discounts(mask.shape[-1], scores, k=k)).sum(-1)
    return negative_ndcg(dcg, item_gains, mask, k=k)
