"""PL-Rank-3: the policy gradient of the NDCG expected under the Plackett-Luce model."""

import torch
from torch import Tensor

from ltr.knobs import check_positive, positive_int
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ratio
from ltr.metrics.cumulative_gain import dcg, discounts, gains
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
    n_samples: int = 8,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> PerList:
    """Minus the mean NDCG@k of drawn rankings of each list, ``[batch]``, from -1 (best) to 0.

    A ranking is drawn from the Plackett-Luce model: the item of each rank in turn from those left,
    item j with a probability in proportion to exp(m_j), m = s / temperature (the paper has none;
    the value goes to the exact NDCG@k as it goes to 0). Value and gradient are PL-Rank-3's unbiased
    estimates of the expected NDCG@k and of its gradient (Oosterhuis, 2022, "Learning-to-Rank at the
    Speed of Sampling"). With the reward g_j d(r) of item j at rank r, g = 2^y - 1 over maxDCG@k,
    d(r) = 1/log2(1 + r) up to k, the slope by m_j is the mean over the rankings of

        sum over r > r_j of the rewards + exp(m_j) sum over r <= min(r_j, k) of (g_j d(r) - R_r)/Z_r

    where r_j is the rank of j, R_r the rewards from rank r on and Z_r the sum of exp(m) over the
    items left at rank r. A list without a relevant item gives 0 without gradient. A list takes
    ``n_samples`` (n + k log k) time and ``n_samples`` n numbers.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        n_samples: >= 1, drawn rankings.
        temperature: > 0, in units of the scores; larger draws more evenly.
        generator: draws the rankings; None is torch's own.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> drawn = {"n_samples": 100_000, "generator": torch.Generator().manual_seed(0)}
    >>> round(plrank_loss(scores, labels, labels >= 0, **drawn).item(), 2)  # -(1 + 1/log2(3)) / 2
    -0.82
    """
    check_positive("temperature", temperature)
    positive_int("n_samples", n_samples)
    scores, labels = without_padding(scores, labels, mask)
    with torch.no_grad():
        m = scores.double() / temperature
        found, slope = _estimates(m, gains(labels, mask).double(), mask, k, n_samples, generator)
        one = negative_ratio(torch.ones_like(found), dcg(labels, labels, mask, k=k).double())
        value = (one * found).to(scores.dtype)
        slope = (one.unsqueeze(-1) * slope / temperature).to(scores.dtype)
    # 0 in value, with the estimate as its gradient
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
    """Mean DCG@k of drawn rankings, ``[batch]``, and the slope of its expectation by ``m``."""
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
        """log sum over r <= min(r_j, k) of values_r / Z_r: of the items placed, and of others."""
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
