"""SoftSort, optimal-transport sorting, stochastic NeuralSort and the rank distribution."""

import itertools
import math
from functools import partial

import pytest
import torch
from ragged import ragged
from torch import Tensor

from ltr.errors import ConfigError
from ltr.metrics.ordering import order_by_score
from ltr.relaxations import (
    neural_sort,
    ot_sort,
    rank_distribution,
    sampled_rank_distribution,
    sinkhorn,
    soft_sort,
    stochastic_neural_sort,
)
from ltr.relaxations.noise import uniform_noise


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mean_of_draws(scores: Tensor, mask: Tensor, temperature: float) -> Tensor:
    return stochastic_neural_sort(
        scores, mask, temperature=temperature, beta=1e-6, n_samples=2, generator=seeded()
    ).mean(0)


SORTS = {
    "softsort": lambda scores, mask: soft_sort(scores, mask, temperature=1e-4),
    "ot": lambda scores, mask: ot_sort(scores, mask, temperature=1e-5),
    "rank_binomial": lambda scores, mask: rank_distribution(scores, mask, sigma=1e-4),
    "sampled": lambda scores, mask: sampled_rank_distribution(
        scores, mask, sigma=1e-6, n_samples=3, generator=seeded()
    ),
    "stochastic": partial(mean_of_draws, temperature=1e-4),
}


@pytest.mark.parametrize("sort", SORTS)
def test_the_limit_is_the_permutation_and_nothing_stands_outside(sort: str) -> None:
    scores, _, mask = ragged()
    mask = torch.cat([mask, torch.zeros(1, 8, dtype=torch.bool)])
    scores = torch.cat([scores, scores[:1]]).masked_fill(~mask, math.nan)
    real_ranks = torch.arange(1, 9) <= mask.sum(-1, keepdim=True)
    order = order_by_score(scores.masked_fill(~mask, 0), mask)
    expected = torch.nn.functional.one_hot(order, 8).double() * real_ranks.unsqueeze(-1)
    found = SORTS[sort](scores, mask)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    assert (found[~(real_ranks.unsqueeze(-1) & mask.unsqueeze(-2))] == 0).all()


def test_softsort_is_equation_4() -> None:
    scores, _, mask = ragged()
    found = soft_sort(scores, mask, temperature=0.3)
    for n, real in enumerate(mask):
        s = scores[n][real]
        plain = -(s.sort(descending=True).values[:, None] - s[None, :]).abs() / 0.3
        torch.testing.assert_close(found[n][: len(s)][:, real], plain.softmax(-1))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_ot_is_the_transport_with_entropy(temperature: float) -> None:
    """Against Sinkhorn's iterations in the logarithm on the cost itself."""
    scores, _, mask = ragged()
    found = ot_sort(3.0 * scores + 7, mask, temperature=temperature, max_iter=3000, tol=1e-13)
    for n, real in enumerate(mask):
        s = scores[n][real]
        deviation = (s.var(correction=0) + 1e-6 / 9).sqrt()
        x = ((s - s.mean()) / deviation).sigmoid()
        places = torch.linspace(1, 0, len(s), dtype=torch.float64)
        logits = -((places[:, None] - x[None, :]) ** 2) / temperature
        for _ in range(5000):
            logits = logits - logits.logsumexp(0, keepdim=True)
            logits = logits - logits.logsumexp(1, keepdim=True)
        torch.testing.assert_close(found[n][: len(s)][:, real], logits.exp(), atol=1e-9, rtol=0)


def by_subsets(beats: Tensor) -> list[float]:
    """P(exactly r of the contests are lost), summed over all sets of winners."""
    found = [0.0] * (len(beats) + 1)
    for won in itertools.product([0, 1], repeat=len(beats)):
        found[sum(won)] += math.prod(
            p if w else 1 - p for w, p in zip(won, beats.tolist(), strict=True)
        )
    return found


def test_rank_distribution_is_the_sum_over_sets_of_winners() -> None:
    scores, _, mask = ragged()
    found = rank_distribution(scores, mask, sigma=0.6)
    for n, real in enumerate(mask):
        s = scores[n][real]
        for j, column in enumerate(found[n][: len(s)][:, real].T):
            others = torch.cat([s[:j], s[j + 1 :]])
            beats = 0.5 * torch.erfc(-(others - s[j]) / (0.6 * math.sqrt(2)) / math.sqrt(2))
            assert column.tolist() == pytest.approx(by_subsets(beats), abs=1e-12)


def test_rank_distribution_of_long_lists_has_the_same_gradient() -> None:
    """Beyond 32 items parts of the recursion are computed again for the gradient."""
    scores = torch.randn(1, 40, dtype=torch.float64, generator=seeded(), requires_grad=True)
    mask = torch.ones(1, 40, dtype=torch.bool)
    mask[0, [3, 20]] = False
    weights = torch.rand(40, 40, dtype=torch.float64, generator=seeded(1))
    found = rank_distribution(scores, mask)
    (gradient,) = torch.autograd.grad((found * weights).sum(), scores)
    step = 1e-6 * torch.randn(1, 40, dtype=torch.float64, generator=seeded(2))
    ahead, behind = (rank_distribution(scores + sign * step, mask) for sign in (1, -1))
    expected = ((ahead - behind) * weights).sum().item() / 2
    assert (gradient * step).sum().item() == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(found.sum(-2), mask.double())


@pytest.mark.slow
def test_rank_distribution_is_near_the_sampled_one_and_exact_for_two_items() -> None:
    scores = torch.tensor([[0.5, 0.1, -0.3, 0.4, 1.2]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, True, True], [True, False, False, True, False]])
    scores = scores.expand(2, 5)
    sampled = sampled_rank_distribution(scores, mask, sigma=0.5, n_samples=4000, generator=seeded())
    soft = rank_distribution(scores, mask, sigma=0.5)
    noise = 4 * math.sqrt(0.25 / 4000)
    assert (sampled[1] - soft[1]).abs().max() < noise
    assert (sampled[0] - soft[0]).abs().max() < 0.15 + noise
    ranks = torch.arange(1.0, 6, dtype=torch.float64)
    assert (ranks @ sampled[0] - ranks @ soft[0]).abs().max() < 4 * math.sqrt(2 / 4000)
    torch.testing.assert_close(sampled[0].sum(-1), torch.ones(5, dtype=torch.float64))
    normalised = sinkhorn(soft, mask)
    assert (normalised - sampled)[0].abs().sum() < 0.9 * (soft - sampled)[0].abs().sum()


def test_stochastic_neural_sort_draws_from_the_plackett_luce_model() -> None:
    scores = torch.tensor([[-2.0, -1.0, 1.0]], dtype=torch.float64)
    mask = torch.ones(1, 3, dtype=torch.bool)
    n = 4000
    soft = stochastic_neural_sort(
        scores, mask, temperature=1e-6, n_samples=n, beta=1.0, generator=seeded()
    )
    positive = [1.0, 2.0, 4.0]
    orders = soft[:, 0].argmax(-1).tolist()
    for order in itertools.permutations(range(3)):
        p = positive[order[0]] / 7 * positive[order[1]] / (7 - positive[order[0]])
        found = orders.count(list(order)) / n
        assert found == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / n))


def test_without_noise_it_is_neural_sort_of_the_logarithms() -> None:
    scores, _, mask = ragged()
    found = mean_of_draws(scores, mask, temperature=0.7)
    lowest = scores.masked_fill(~mask, math.inf).amin(-1, keepdim=True)
    expected = neural_sort((1 + (scores - lowest).clamp(min=0)).log(), mask, temperature=0.7)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_noise_is_drawn_for_items_and_by_the_generator_alone() -> None:
    _, _, mask = ragged()
    like = torch.zeros((), dtype=torch.float64)
    before = torch.get_rng_state()
    noise = uniform_noise(mask, 3, like, seeded())
    assert torch.equal(torch.get_rng_state(), before)
    padded = torch.nn.functional.pad(mask, (2, 3))
    assert torch.equal(uniform_noise(padded, 3, like, seeded())[..., 2:-3], noise)
    assert (noise[:, ~mask] == 0).all()
    assert len(noise[:, mask].unique()) == noise[:, mask].numel()
    torch.manual_seed(0)
    assert torch.equal(uniform_noise(mask, 3, like), noise)


def test_bad_knobs_end_with_the_remedy() -> None:
    scores, _, mask = ragged()
    with pytest.raises(ConfigError, match=r"^temperature=0.0 is out of range: write a finite"):
        soft_sort(scores, mask, temperature=0.0)
    with pytest.raises(ConfigError, match=r"^temperature=0.0 is out of range: write a finite"):
        ot_sort(scores, mask, temperature=0.0)
    with pytest.raises(ConfigError, match=r"^sigma=-1.0 is out of range: write a finite"):
        rank_distribution(scores, mask, sigma=-1.0)
    with pytest.raises(ConfigError, match=r"^n_samples=0 is out of range: write an integer >= 1$"):
        stochastic_neural_sort(scores, mask, n_samples=0)
    with pytest.raises(ConfigError, match=r"^beta=0.0 is out of range: write a finite"):
        stochastic_neural_sort(scores, mask, beta=0.0)
    with pytest.raises(ConfigError, match=r"^n_samples=0 is out of range: write an integer >= 1$"):
        sampled_rank_distribution(scores, mask, n_samples=0)
