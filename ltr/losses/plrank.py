"""PL-Rank-3: the policy gradient of the expected NDCG under the Plackett-Luce model."""

import torch
from torch import Tensor

from ltr.knobs import Gain, check_k, check_positive, positive_int
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ratio
from ltr.metrics.cumulative_gain import discounts, gains, ideal_dcg
from ltr.metrics.ordering import running_sums
from ltr.relaxations.neuralsort import uniform_noise
from ltr.relaxations.second_derivatives import forbid_second_derivative
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
    r"""Return minus the mean NDCG@k of each list over random rankings.

    Rankings are drawn from the Plackett-Luce model, rank by rank: each rank gets one of the items
    that are left. The probability of item j is proportional to exp(m_j), where
    m = s / temperature. As the temperature goes to 0, the value goes to minus the exact NDCG@k.

    The value and the gradient are unbiased estimates of minus the expected NDCG@k and of its
    gradient. PL-Rank-3 estimates the derivative of the expected NDCG@k with respect to m_j as the
    mean over the rankings of

    .. math::
        \sum_{r > r_j} \rho_r + e^{m_j} \sum_{r \le \min(r_j, k)} \frac{g_j d(r) - R_r}{Z_r}

    where g are the gains divided by maxDCG@k, d(r) is 0 beyond k, rho_r = g d(r) is the reward of
    the item at rank r, r_j is the rank of j, R_r the sum of the rewards from rank r on, and Z_r the
    sum of exp(m) over the items left at rank r.

    A list of n items takes O(``n_samples`` (n + k log k)) time and O(``n_samples`` n) memory.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        n_samples: >= 1, the number of rankings to draw.
        temperature: > 0, in units of the scores; a larger value draws the items more evenly.
        generator: draws the rankings; None: torch's own generator.

    Returns:
        One value per list, ``[batch]``, from -1 (best) to 0. For a list without a relevant item,
        the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.
        NotImplementedError: a second derivative is taken.

    Source: Oosterhuis (2022), "Learning-to-Rank at the Speed of Sampling". The paper has no
    temperature.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> drawn = {"n_samples": 100_000, "generator": torch.Generator().manual_seed(0)}
    >>> round(plrank_loss(scores, labels, labels >= 0, **drawn).item(), 2)  # -(1 + 1/log2(3)) / 2
    -0.82
    """
    temperature = check_positive("temperature", temperature)
    n_samples = positive_int("n_samples", n_samples)
    scores, labels = without_padding(scores, labels, mask)
    k = check_k(k)
    item_gains = gains(labels, mask, gain=gain)
    with torch.no_grad():
        m = scores.double() / temperature
        dcg, slope = _estimates(m, item_gains.double(), mask, k, n_samples, generator)
        ideal = ideal_dcg(item_gains, mask, k=k).double()
        scale = negative_ratio(torch.ones_like(dcg), ideal)
        value = (scale * dcg).to(scores.dtype)
        slope = (scale.unsqueeze(-1) * slope / temperature).to(scores.dtype)
    # The added term has the value 0, and its gradient is the estimate.
    value = value + ((scores - scores.detach()) * slope).sum(-1)
    return forbid_second_derivative(
        value, "plrank, whose gradient is an estimate from random rankings,"
    )


def _estimates(
    m: Scores,
    gain: Scores,
    mask: Mask,
    k: int | None,
    n_samples: int,
    generator: torch.Generator | None,
) -> tuple[PerList, Scores]:
    """Return the mean DCG@k of random rankings, ``[batch]``, and the estimated gradient.

    The gradient, ``[batch, list]``, is that of the expected DCG@k with respect to ``m``.
    """
    rank_discounts = discounts(mask.shape[-1], m, k=k)[:k]
    # This is far below every number, but finite: sums of exponentials of -inf would be NaN.
    least = torch.finfo(m.dtype).min / 4
    m = (m - m.masked_fill(~mask, least).logsumexp(-1, keepdim=True)).masked_fill(~mask, least)
    noise = uniform_noise(mask, n_samples, m, generator).masked_fill(~mask, 0.5)
    order = (m - (-noise.log()).log()).topk(len(rank_discounts), -1).indices  # Gumbel noise
    m = m.expand(n_samples, -1, -1)
    gain = gain.expand(n_samples, -1, -1)
    m_top = m.gather(-1, order)
    gain_top = gain.gather(-1, order)
    reward = gain_top * rank_discounts
    reward_to_go = running_sums(reward.flip(-1)).flip(-1)

    in_top = torch.zeros_like(m, dtype=torch.bool).scatter(-1, order, True)
    log_z_below = m.masked_fill(in_top, least).logsumexp(-1, keepdim=True)
    log_z = torch.cat([log_z_below, m_top.flip(-1)], -1).logcumsumexp(-1)[..., 1:].flip(-1)

    def log_running_sums(values: Tensor) -> Tensor:
        """Return log sum over q <= r of values_q / Z_q at each rank r of the top k."""
        logs = torch.where(values > 0, values.log(), least) - log_z
        return logs.clamp(min=least).logcumsumexp(-1)

    log_direct = log_running_sums(rank_discounts.expand_as(log_z))
    log_risk = log_running_sums(reward_to_go)
    # For items below the top k, the sums go over all ranks of the top k.
    slope = gain * (m + log_direct[..., -1:]).exp() - (m + log_risk[..., -1:]).exp()
    slope_top = reward_to_go - reward
    slope_top = slope_top + gain_top * (m_top + log_direct).exp() - (m_top + log_risk).exp()
    slope = slope.scatter(-1, order, slope_top).masked_fill(~mask, 0)
    return reward.sum(-1).mean(0), slope.mean(0)
