"""PL-Rank-3: the policy gradient of the expected NDCG under the Plackett-Luce model."""

import torch
from torch import Tensor

from ltr.knobs import Gain, check_k, check_positive, positive_int
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ratio
from ltr.metrics.cumulative_gain import discounts, gains, ideal_dcg
from ltr.metrics.ordering import running_sums
from ltr.relaxations.neuralsort import uniform_noise
from ltr.relaxations.second_derivatives import once
from ltr.typing import Labels, Mask, PerList, Scores


def plrank_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    n_samples: int = 8,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> PerList:
    """Return minus the mean NDCG@k of each list over drawn rankings, ``[batch]``, -1 (best) to 0.

    Rankings are drawn from the Plackett-Luce model, rank by rank: each item j that is left is drawn
    with a probability in proportion to exp(m_j), with m = s / temperature. The paper has no
    temperature. As the temperature goes to 0, the value goes to minus the exact NDCG@k. Value and
    gradient are PL-Rank-3's unbiased estimates for minus the expected NDCG@k (Oosterhuis, 2022,
    "Learning-to-Rank at the Speed of Sampling"). The reward of item j at rank r is g_j d(r): g are
    the gains divided by maxDCG@k, and d(r) = 1/log2(1 + r), 0 beyond k. The gradient of the
    expected NDCG@k with respect to m_j is the mean over the rankings of

        sum over r > r_j of the rewards + exp(m_j) sum over r <= min(r_j, k) of (g_j d(r) - R_r)/Z_r

    where r_j is the rank of j, R_r the sum of the rewards from rank r on, and Z_r the sum of exp(m)
    over the items left at rank r. A list without a relevant item gives 0 without gradient. A list
    of n items takes time in proportion to ``n_samples`` (n + k log k), and memory for ``n_samples``
    n numbers.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table of the gains of the grades.
        n_samples: >= 1, the number of rankings to draw.
        temperature: > 0, in units of the scores; the larger, the more evenly items are drawn.
        generator: draws the rankings; None is torch's own.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> drawn = {"n_samples": 100_000, "generator": torch.Generator().manual_seed(0)}
    >>> round(plrank_loss(scores, labels, labels >= 0, **drawn).item(), 2)  # -(1 + 1/log2(3)) / 2
    -0.82
    """
    temperature = check_positive("temperature", temperature)
    n_samples = positive_int("n_samples", n_samples)
    scores, labels = without_padding(scores, labels, mask)
    k = check_k(k)
    of_item = gains(labels, mask, gain=gain)
    with torch.no_grad():
        m = scores.double() / temperature
        found, slope = _estimates(m, of_item.double(), mask, k, n_samples, generator)
        one = negative_ratio(torch.ones_like(found), ideal_dcg(of_item, mask, k=k).double())
        value = (one * found).to(scores.dtype)
        slope = (one.unsqueeze(-1) * slope / temperature).to(scores.dtype)
    # add a term of value 0 whose gradient is the estimate
    value = value + ((scores - scores.detach()) * slope).sum(-1)
    return once(value, "plrank, whose gradient is an estimate by draws,")


def _estimates(
    m: Scores,
    gain: Scores,
    mask: Mask,
    k: int | None,
    n_samples: int,
    generator: torch.Generator | None,
) -> tuple[PerList, Scores]:
    """Return the mean DCG@k of drawn rankings, ``[batch]``, and estimate its gradient for ``m``.

    The gradient, ``[batch, list]``, is that of the expected DCG@k.
    """
    of_rank = discounts(mask.shape[-1], m, k=k)[:k]
    # far below every number, but finite: sums of exponentials of -inf would be NaN
    least = torch.finfo(m.dtype).min / 4
    m = (m - m.masked_fill(~mask, least).logsumexp(-1, keepdim=True)).masked_fill(~mask, least)
    noise = uniform_noise(mask, n_samples, m, generator).masked_fill(~mask, 0.5)
    order = (m - (-noise.log()).log()).topk(len(of_rank), -1).indices  # Gumbel noise
    m, gain = (x.expand(n_samples, -1, -1) for x in (m, gain))
    top, own = m.gather(-1, order), gain.gather(-1, order)
    reward = own * of_rank
    from_here = running_sums(reward.flip(-1)).flip(-1)

    placed = torch.zeros_like(m, dtype=torch.bool).scatter(-1, order, True)
    others = m.masked_fill(placed, least).logsumexp(-1, keepdim=True)
    left = torch.cat([others, top.flip(-1)], -1).logcumsumexp(-1)[..., 1:].flip(-1)

    def running(values: Tensor) -> tuple[Tensor, Tensor]:
        """Return log sum over r <= min(r_j, k) of values_r / Z_r, for the top k and for others."""
        logs = torch.where(values > 0, values.log(), least) - left
        sums = logs.clamp(min=least).logcumsumexp(-1)
        return sums, sums[..., -1:]

    (direct, direct_below), (risk, risk_below) = (
        running(of_rank.expand_as(left)),
        running(from_here),
    )
    slope = gain * (m + direct_below).exp() - (m + risk_below).exp()
    of_placed = from_here - reward + own * (top + direct).exp() - (top + risk).exp()
    slope = slope.scatter(-1, order, of_placed).masked_fill(~mask, 0)
    return reward.sum(-1).mean(0), slope.mean(0)
