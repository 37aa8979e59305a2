"""Soft permutations: the paper's table, limits, scaling, and what is drawn."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import references
import torch
from ragged import ragged, random_lists, stochastic_neural_sort
from torch import Tensor

from ltr.metrics.ordering import order_by_score
from ltr.relaxations import (
    neural_sort,
    ot_sort,
    rank_distribution,
    sinkhorn,
    soft_sort,
)
from ltr.relaxations.neuralsort import uniform_noise

NAN = math.nan


def five_lists(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Scores and mask of lists of 7, 4, 1, 0 and 3 items, padded on every side and between."""
    scores = torch.randn(5, 7, dtype=dtype, generator=torch.Generator().manual_seed(0))
    rows = ("1111111", "0011110", "0000010", "0000000", "1001001")
    return scores, torch.tensor([[place == "1" for place in row] for row in rows])


@pytest.mark.parametrize("junk", [NAN, math.inf, -math.inf, 1e30])
def test_padding_is_never_read(junk: float) -> None:
    scores, mask = five_lists()
    poisoned = scores.masked_fill(~mask, junk).requires_grad_()
    soft = neural_sort(poisoned, mask)
    assert torch.equal(soft, neural_sort(scores, mask))
    block = (torch.arange(7) < mask.sum(-1, keepdim=True))[:, :, None] & mask[:, None, :]
    filled = torch.where(block, soft, junk)
    for first in ("columns", "rows"):
        scaled = sinkhorn(filled, mask, first=first)
        assert torch.equal(scaled, sinkhorn(soft, mask, first=first))
        (gradient,) = torch.autograd.grad(scaled.square().sum(), poisoned, retain_graph=True)
        assert torch.equal(gradient != 0, mask & (gradient != 0))  # NaN is not 0
        assert gradient[mask].isfinite().all()


# The NeuralNDCG paper, Table 1: y sorted by NeuralSort of s (no Sinkhorn scaling), as printed.
TABLE_1 = {
    0.01: ["4", "4", "3", "2", "0.99992", "0.00012339"],
    0.1: ["3.9995", "3.8909", "2.8239", "1.9730", "0.9989", "0.3136"],
    1.0: ["3.3893", "2.9820", "2.4965", "2.0191", "1.6097", "1.2815"],
}


@pytest.mark.parametrize("temperature", TABLE_1)
def test_table_1_of_the_paper(temperature: float) -> None:
    scores = torch.tensor([[0.5, 0.2, 0.1, 0.01, 0.65, 0.3]], dtype=torch.float64)
    labels = torch.tensor([4.0, 2, 1, 0, 4, 3], dtype=torch.float64)
    soft = neural_sort(scores, torch.ones(1, 6, dtype=torch.bool), temperature=temperature)
    for value, printed in zip((soft[0] @ labels).tolist(), TABLE_1[temperature], strict=True):
        decimals = len(printed.partition(".")[2])
        # "4" is 3.9999...: the paper prints it rounded to what its neighbours show
        assert abs(value - float(printed)) <= 0.5 * 10.0 ** -(decimals or 4) * 1.001


def test_a_shift_of_the_scores_changes_nothing() -> None:
    scores = torch.tensor([[0.3, 0.71, -1.57, 0.52]]) + 1e4  # rounded to 1e-3
    expected = neural_sort((scores - 1e4).double(), scores > 0).float()
    torch.testing.assert_close(neural_sort(scores, scores > 0), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("first", ["columns", "rows"])
@pytest.mark.parametrize(
    ("max_iter", "tol"), [(1, 1e-6), (3, 1e-6), (30, 1e-6), (500, 1e-12), (30, 0.01)]
)
def test_sinkhorn_is_repeated_division_list_by_list(max_iter: int, tol: float, first: str) -> None:
    scores, mask = five_lists()
    soft = neural_sort(scores, mask, temperature=0.3).requires_grad_()
    scale = partial(sinkhorn, mask=mask, max_iter=max_iter, tol=tol, first=first)
    found = scale(soft)
    for matrix, scaled, real in zip(soft.detach(), found.detach(), mask, strict=True):
        block = np.s_[: int(real.sum())]
        given = matrix[block][:, real].numpy()
        if len(given):
            turn = np.asarray if first == "columns" else np.transpose
            expected = turn(references.sinkhorn(turn(given), max_iter, tol))
            np.testing.assert_allclose(scaled[block][:, real], expected, atol=1e-12, rtol=0)
        scaled[block] = scaled[block].masked_fill(real, 0)
        assert not scaled.any()
    assert torch.autograd.gradcheck(scale, soft.detach().requires_grad_(), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("first", ["columns", "rows"])
def test_a_column_that_underflowed_stays_finite(dtype: torch.dtype, first: str) -> None:
    smallest = torch.finfo(dtype).tiny
    for value in (0.0, smallest / 4, smallest, smallest**0.5 / 2, smallest**0.5 * 2):
        matrix = torch.tensor([[[1.0, 0, 0.5], [0.5, 0, 0.5], [0.25, 0, 0.5]]], dtype=dtype)
        matrix[:, :, 1] = value
        matrix.requires_grad_()
        scaled = sinkhorn(matrix, torch.ones(1, 3, dtype=torch.bool), first=first)
        (gradient,) = torch.autograd.grad((scaled * torch.arange(3)).sum(), matrix)
        assert scaled.isfinite().all()
        assert gradient.isfinite().all()
        if value == 0:
            assert (scaled[:, :, 1] == 0).all()


def test_autocast_does_not_reach_the_sums() -> None:
    scores, mask = five_lists(torch.float32)
    soft, weights = neural_sort(scores, mask).requires_grad_(), torch.arange(7.0)
    (expected,) = torch.autograd.grad((sinkhorn(soft, mask) * weights).sum(), soft)
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad((sinkhorn(soft, mask) * weights).sum(), soft)
    assert torch.equal(found, expected)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SORTS = {
    "neuralsort": lambda scores, mask: neural_sort(scores, mask, temperature=1e-4),
    "softsort": lambda scores, mask: soft_sort(scores, mask, temperature=1e-4),
    "ot": lambda scores, mask: ot_sort(scores, mask, temperature=1e-5),
    "rank_binomial": lambda scores, mask: rank_distribution(scores, mask, sigma=1e-4),
    "stochastic": lambda scores, mask: stochastic_neural_sort(
        scores, mask, temperature=1e-4, beta=1e-6, n_samples=2, generator=seeded()
    ).mean(0),
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


def test_drawn_scores_are_of_the_plackett_luce_model() -> None:
    scores, n = torch.tensor([[-2.0, -1.0, 1.0]], dtype=torch.float64), 4000
    knobs = {"temperature": 1e-6, "n_samples": n, "generator": seeded()}
    soft = stochastic_neural_sort(scores, scores < 2, **knobs)
    positive, orders = [1.0, 2.0, 4.0], soft[:, 0].argmax(-1).tolist()
    for order in itertools.permutations(range(3)):
        p = positive[order[0]] / 7 * positive[order[1]] / (7 - positive[order[0]])
        found = orders.count(list(order)) / n
        assert found == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("counted", [True, False], ids=["CPU", "off the CPU"])
def test_noise_is_drawn_for_items_and_by_the_generator_alone(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, mask = random_lists(0, torch.float64)
    like = torch.zeros((), dtype=torch.float64)
    before, first = torch.get_rng_state(), uniform_noise(mask, 3, like, seeded())[0]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: not counted)
    noise = uniform_noise(mask, 3, like, seeded())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(noise[0], first)  # the same stream
    moved = torch.nn.functional.pad(mask, (2, 3)) if counted else mask.flip(-1)
    assert torch.equal(uniform_noise(moved, 3, like, seeded())[:, moved], noise[:, mask])
    assert (noise[:, ~mask] == 0).all()
    assert len(noise[:, mask].unique()) == noise[:, mask].numel()
    torch.manual_seed(0)
    assert torch.equal(uniform_noise(mask, 3, like), noise)
