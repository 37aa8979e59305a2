"""Losses on pairs of items: RankNet, LambdaRank, LambdaLoss, RankSVM and RankBoost.

For a list without pairs, the value and its gradient are 0. Items with equal scores are ranked in
their given order. If ``k`` is None, all pairs count. Otherwise ``pairs="any"`` counts the pairs
with at least one item in the current top k, and ``pairs="both"`` counts those with both items in
the top k, as Pobrotyn and Bialobrzeski (2021) do. Only pairs with one item in the top k and one
below rank k can move a relevant item into the top k.
"""

import torch

from ltr.errors import ConfigError
from ltr.knobs import Gain, check_choice, check_positive
from ltr.losses.batch import without_padding
from ltr.losses.pairs import PairWeight, pairs_counted, sum_over_pairs
from ltr.metrics.cumulative_gain import discounts, gains, ideal_dcg
from ltr.metrics.ordering import rank_of_item, ranks_like
from ltr.metrics.per_list import nan_below_0
from ltr.typing import Labels, Mask, PerList, Scores


def ranknet_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    sigma: float = 1.0,
    pairs: str = "any",
    pair_weight: str | None = None,
) -> PerList:
    r"""Return the RankNet loss of each list.

    .. math::
        \ell(s, y) = \sum_{y_i > y_j} w_{ij} \log\left(1 + e^{-\sigma (s_i - s_j)}\right)

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1; None: all pairs count.
        sigma: > 0, slope of the logistic function, in units of 1 / score.
        pairs: which pairs count if there is a cutoff: those with at least one item in the current
            top k (``"any"``), or those with both items in it (``"both"``).
        pair_weight: the weights w_ij, as in ``ranksvm_loss``; for ``"mean"``, pairs that do not
            count because of the cutoff are not included in the number of pairs.

    Returns:
        One value per list, ``[batch]``, >= 0. For a list without pairs, the value and its gradient
        are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Burges et al. (2005), eq. 3; "RankNet and LambdaRank" (daxpy.xyz, 2021), where sigma is
    called alpha. In the paper, pairs of items with equal labels count too; here they do not.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> ranknet_loss(scores, labels, labels >= 0)  # log(1 + exp(2)) + log(1 + exp(1))
    tensor([3.4402])
    """
    scores, labels = without_padding(scores, labels, mask)
    weight = _pair_weight(scores, labels, mask, pair_weight, k, pairs)
    return sum_over_pairs(scores, labels, mask, weight, sigma=sigma, k=k, pairs=pairs)


def lambdarank_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    sigma: float = 1.0,
    pairs: str = "any",
) -> PerList:
    r"""Return the LambdaRank loss of each list.

    .. math::
        \ell(s, y) = \sum_{y_i > y_j} |\Delta_{ij}|
        \log\left(1 + e^{-\sigma (s_i - s_j)}\right), \qquad
        |\Delta_{ij}| = \frac{|g_i - g_j| \, |d(r_i) - d(r_j)|}{\mathrm{maxDCG}@k}

    where Delta_ij is the change of NDCG@k if items i and j swap their current ranks r; the gradient
    treats this change as a constant. g is the gain, which is 2^y - 1 in the papers. The discount
    d(r) is 1/log2(1 + r) up to rank k, and 0 beyond.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1; None: all pairs count.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        sigma: > 0, slope of the logistic function, in units of 1 / score.
        pairs: which pairs count if there is a cutoff: those with at least one item in the current
            top k (``"any"``), or those with both items in it (``"both"``).

    Returns:
        One value per list, ``[batch]``, >= 0. For a list without pairs, the value and its gradient
        are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Burges et al. (2006); Burges (2010), section 4.1.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> lambdarank_loss(scores, labels, labels >= 0, k=1)  # |1 - 0| * log(1 + exp(2)), one pair
    tensor([2.1269])
    """
    scores, labels = without_padding(scores, labels, mask)
    discount = discounts(mask.shape[-1], scores, k=k)[rank_of_item(scores, mask) - 1]
    item_gains = _normalised_gains(labels, mask, k, gain)
    weight = PairWeight(gain=item_gains, discount=discount, factors=(0.0, 1.0, 0.0))
    return sum_over_pairs(scores, labels, mask, weight, sigma=sigma, k=k, pairs=pairs)


def lambda_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    variant: str = "ndcg2++",
    k: int | None = None,
    gain: Gain = "exp2",
    sigma: float = 1.0,
    mu: float = 10.0,
    pairs: str = "any",
) -> PerList:
    r"""Return the LambdaLoss of each list.

    .. math::
        \ell(s, y) = \sum_{i,j} w_{ij} \log\left(1 + e^{-\sigma (s_i - s_j)}\right), \qquad
        G = \frac{g(y)}{\mathrm{maxDCG}@k}

    The weights w depend on the current ranks r, but the gradient treats them as constants.
    In the variant ``ndcg1``, the sum is over all i != j, whatever their labels, and

    .. math::
        w_{ij} = G_i \, d(r_i)

    In ``ndcg2``, the sum is over the pairs with y_i > y_j, and

    .. math::
        w_{ij} = \delta_{ij} |G_i - G_j|, \qquad
        \delta_{ij} = |d(|r_i - r_j|) - d(|r_i - r_j| + 1)|

    In ``ndcg2++``, the sum is over the same pairs, and

    .. math::
        w_{ij} = (\rho_{ij} + \mu \, \delta_{ij}) |G_i - G_j|, \qquad
        \rho_{ij} = |d(r_i) - d(r_j)|

    With mu = 0 this would be LambdaRank. With a cutoff k, a pair counts only if at least one of its
    two items is in the current top k. So an item i below the top k is paired only with items j in
    the top k that have lower labels; this holds for ``ndcg1`` too. The cutoff applies to maxDCG as
    well, but not to the discounts d.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        variant: ``"ndcg1"``, ``"ndcg2"`` or ``"ndcg2++"``.
        k: cutoff rank >= 1; None: all pairs count.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        sigma: > 0, slope of the logistic function, in units of 1 / score.
        mu: > 0, weight of delta in ``ndcg2++`` (10 in the paper).
        pairs: which pairs count if there is a cutoff: those described above (``"any"``), or those
            with both items in the current top k (``"both"``).

    Returns:
        One value per list, ``[batch]``, >= 0. For a list without a relevant item, the value and its
        gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Wang et al. (2018), sections 4 and 5; NDCG-Loss1 is eq. 12. In the paper the gain is
    2^y - 1, the logarithm has base 2, and there is no cutoff. There, the sum of NDCG-Loss1 includes
    terms with i = j, but these have no gradient.

    >>> scores, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> lambda_loss(scores, labels, labels >= 0, variant="ndcg1")  # log(1 + e) / log2(1 + 2)
    tensor([0.8286])
    >>> lambda_loss(scores, labels, labels >= 0, mu=1.0)  # 2 (1 - 1 / log2(1 + 2)) log(1 + e)
    tensor([0.9694])
    """
    check_choice("variant", variant, ["ndcg1", "ndcg2", "ndcg2++"])
    mu = check_positive("mu", mu)
    scores, labels = without_padding(scores, labels, mask)
    item_gains = _normalised_gains(labels, mask, k, gain)
    ranks = rank_of_item(scores, mask)
    rank_discounts = discounts(mask.shape[-1] + 1, scores)
    discount = rank_discounts[ranks - 1]
    ordered = variant != "ndcg1"
    if ordered:
        weight = PairWeight(
            gain=item_gains,
            discount=discount,
            ranks=ranks,
            steps=rank_discounts[:-1] - rank_discounts[1:],
            factors=(0.0, 1.0, float(mu)) if variant == "ndcg2++" else (0.0, 0.0, 1.0),
        )
    else:
        weight = PairWeight(base=item_gains * discount)
    return sum_over_pairs(
        scores, labels, mask, weight, sigma=sigma, k=k, pairs=pairs, ordered=ordered
    )


def _normalised_gains(labels: Labels, mask: Mask, k: int | None, gain: Gain) -> Scores:
    """Return g_j / maxDCG@k for each item, ``[batch, list]``; 0 without a relevant item."""
    item_gains = gains(labels, mask, gain=gain)
    ideal = ideal_dcg(item_gains, mask, k=k).unsqueeze(-1)
    return item_gains / ideal.masked_fill(ideal <= 0, 1)


def ranksvm_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    squared: bool = False,
    pair_weight: str | None = None,
) -> PerList:
    r"""Return the RankSVM loss of each list.

    .. math::
        \ell(s, y) = \sum_{y_i > y_j} w_{ij} \max(0, 1 - (s_i - s_j))

    With ``squared``, the maximum is squared. The margin is 1 in units of the scores. With a linear
    model and the trainer's ``l2`` or ``l1`` penalty, this is a support vector machine.

    With ``pair_weight="mean"``, a list with many pairs counts no more than other lists. With
    ``pair_weight="ndcg_beta"``, the loss is RankSVMndcg, an upper bound on 1 - NDCG_beta.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        squared: use the squared hinge.
        pair_weight: None for w_ij = 1; ``"mean"`` for w_ij = 1 / the number of pairs of the list,
            which makes the loss a mean over pairs; ``"ndcg_beta"`` for w_ij = (y_i - y_j) /
            DCG_beta, where DCG_beta is the sum over ranks r of y_r (n - r) in the ideal order.

    Returns:
        One value per list, ``[batch]``, >= 0. For a list without pairs, the value and its gradient
        are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Joachims (2002); Chapelle and Keerthi (2010) for the squared hinge. ``"mean"`` gives the
    query-level weights of IR-SVM (Cao et al., 2006), which the paper also multiplies by the largest
    number of pairs of any list. RankSVMndcg is from Jin et al. (2018); see also Team Macrohard
    (n.d.), eq. 18 to 20.

    >>> scores, labels = torch.tensor([[0.0, 2.0, 0.5]]), torch.tensor([[2.0, 0.0, 0.0]])
    >>> ranksvm_loss(scores, labels, labels >= 0)  # (1 + 2) + (1 + 0.5)
    tensor([4.5000])
    >>> ranksvm_loss(scores, labels, labels >= 0, pair_weight="mean")  # (3 + 1.5) / 2
    tensor([2.2500])
    """
    scores, labels = without_padding(scores, labels, mask)
    weight = _pair_weight(scores, labels, mask, pair_weight)
    cost = "squared_hinge" if squared else "hinge"
    return sum_over_pairs(scores, labels, mask, weight, cost=cost)


def rankboost_loss(
    scores: Scores, labels: Labels, mask: Mask, *, pair_weight: str | None = None
) -> PerList:
    r"""Return the RankBoost loss of each list.

    .. math::
        \ell(s, y) = \sum_{y_i > y_j} w_{ij} \, e^{-(s_i - s_j)}

    Where s_j - s_i exceeds 30, the exponential continues as its tangent. With
    ``pair_weight="ndcg_beta"``, the loss is RankBoostndcg.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        pair_weight: the weights w_ij, as in ``ranksvm_loss``.

    Returns:
        One value per list, ``[batch]``, >= 0. For a list without pairs, the value and its gradient
        are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Freund et al. (2003), section 3. Here the loss is minimised by gradient descent instead
    of boosting. RankBoostndcg is from Jin et al. (2018); see also Team Macrohard (n.d.), eq. 18 and
    19.

    >>> scores, labels = torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([[2.0, 0.0, 0.0]])
    >>> rankboost_loss(scores, labels, labels >= 0)  # exp(2) + exp(0)
    tensor([8.3891])
    >>> rankboost_loss(scores, labels, labels >= 0, pair_weight="ndcg_beta")  # 2 / (2 (3 - 1)) each
    tensor([4.1945])
    """
    scores, labels = without_padding(scores, labels, mask)
    weight = _pair_weight(scores, labels, mask, pair_weight)
    return sum_over_pairs(scores, labels, mask, weight, cost="exponential")


def _pair_weight(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    pair_weight: str | None,
    k: int | None = None,
    pairs: str = "any",
) -> PairWeight:
    """Return the weight for the knob ``pair_weight``; ``labels`` must be 0 on padding.

    None gives 1, and ``"mean"`` gives 1 / the number of counted pairs. ``"ndcg_beta"`` gives
    (y_i - y_j) / DCG_beta, with DCG_beta = sum over ranks r of y_r (n - r) in the ideal order. The
    weights of the pairs in the wrong order then add up to 1 - NDCG_beta.
    """
    if pair_weight is None:
        return PairWeight(base=torch.ones_like(scores))
    if pair_weight == "mean":
        counted = pairs_counted(scores, labels, mask, k, pairs).clamp(min=1)
        return PairWeight(base=torch.ones_like(scores) / counted)
    if pair_weight != "ndcg_beta":
        raise ConfigError(
            f"pair_weight={pair_weight!r} is not known: write mean, ndcg_beta, or null (None in "
            "Python) to give every pair the weight 1"
        )
    labels = nan_below_0(labels)
    items_below = (mask.sum(-1, keepdim=True) - ranks_like(mask)).clamp(min=0)
    # Padding has the label 0, so it adds nothing to the sum, wherever the sort puts it.
    ideal = (labels.sort(-1, descending=True).values * items_below).sum(-1, keepdim=True)
    return PairWeight(gain=labels / ideal.masked_fill(ideal <= 0, 1), factors=(1.0, 0.0, 0.0))
