"""Soft permutations: a published table, limits, scaling, draws; the learned sorter.

For the network of ``loss=sodeep``: how well it sorts, its file, and the command that trains it.
"""

import itertools
import math
import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.cli.keys import resolved
from ltr.errors import ConfigError
from ltr.experiment.identity import settings_of
from ltr.losses import network_ndcg_loss, sodeep_loss
from ltr.losses.batch import ideal_order
from ltr.losses.soft_permutation import negative_ndcg, soft_dcg
from ltr.metrics.cumulative_gain import gains
from ltr.metrics.ordering import order_by_score, rank_of_item
from ltr.relaxations import (
    learned_ranks,
    learned_sorter,
    network_sort,
    neural_sort,
    ot_sort,
    rank_distribution,
    sinkhorn,
    soft_sort,
    sorting_network,
)
from ltr.relaxations.neuralsort import uniform_noise
from ltr.relaxations.optimal_transport import squashed_scores, standardise_scores
from tests.helpers import references
from tests.helpers.paths import ROOT
from tests.helpers.ragged import ragged, random_lists, stochastic_neural_sort
from tests.helpers.runs import compose


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_neural_sort_and_sinkhorn_never_read_padding(junk: float) -> None:
    scores, _, mask = random_lists(0, torch.float64, size=7)
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


# Pobrotyn and Bialobrzeski (2021), Table 1: y sorted by NeuralSort of s, unscaled, as printed.
TABLE_1 = {
    0.01: ["4", "4", "3", "2", "0.99992", "0.00012339"],
    0.1: ["3.9995", "3.8909", "2.8239", "1.9730", "0.9989", "0.3136"],
    1.0: ["3.3893", "2.9820", "2.4965", "2.0191", "1.6097", "1.2815"],
}


@pytest.mark.parametrize("temperature", TABLE_1)
def test_neural_sort_reproduces_table_1_of_the_paper(temperature: float) -> None:
    scores = torch.tensor([[0.5, 0.2, 0.1, 0.01, 0.65, 0.3]], dtype=torch.float64)
    labels = torch.tensor([4.0, 2, 1, 0, 4, 3], dtype=torch.float64)
    soft = neural_sort(scores, torch.ones(1, 6, dtype=torch.bool), temperature=temperature)
    for value, printed in zip((soft[0] @ labels).tolist(), TABLE_1[temperature], strict=True):
        decimals = len(printed.partition(".")[2])
        # "4" is 3.9999...: the paper prints it rounded to what its neighbours show
        assert abs(value - float(printed)) <= 0.5 * 10.0 ** -(decimals or 4) * 1.001


@pytest.mark.parametrize("sort", [neural_sort, network_sort])
def test_soft_sort_ignores_shift_of_scores(sort: Callable[..., torch.Tensor]) -> None:
    scores = torch.tensor([[0.3, 0.71, -1.57, 0.52]]) + 1e4  # rounded to 1e-3
    expected = sort((scores - 1e4).double(), scores > 0).float()
    torch.testing.assert_close(sort(scores, scores > 0), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("first", ["columns", "rows"])
@pytest.mark.parametrize(
    ("max_iter", "tol"), [(1, 1e-6), (3, 1e-6), (30, 1e-6), (500, 1e-12), (30, 0.01)]
)
def test_sinkhorn_equals_repeated_division_of_each_list(
    max_iter: int, tol: float, first: str
) -> None:
    scores, _, mask = random_lists(0, torch.float64, size=7)
    soft = neural_sort(scores, mask, temperature=0.3).requires_grad_()
    scale = partial(sinkhorn, mask=mask, max_iter=max_iter, tol=tol, first=first)
    scaled_lists = scale(soft)
    for matrix, scaled, real in zip(soft.detach(), scaled_lists.detach(), mask, strict=True):
        block = np.s_[: int(real.sum())]
        real_block = matrix[block][:, real].numpy()
        if len(real_block):
            turn = np.asarray if first == "columns" else np.transpose
            expected = turn(references.sinkhorn(turn(real_block), max_iter, tol))
            np.testing.assert_allclose(scaled[block][:, real], expected, atol=1e-12, rtol=0)
        scaled[block] = scaled[block].masked_fill(real, 0)
        assert not scaled.any()
    assert torch.autograd.gradcheck(scale, soft.detach().requires_grad_(), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("first", ["columns", "rows"])
def test_sinkhorn_of_underflowed_column_is_finite(dtype: torch.dtype, first: str) -> None:
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


def test_sinkhorn_sums_ignore_autocast() -> None:
    scores, _, mask = random_lists(0, torch.float32, size=7)
    soft = neural_sort(scores, mask).requires_grad_()
    weights = torch.arange(7.0)
    (expected,) = torch.autograd.grad((sinkhorn(soft, mask) * weights).sum(), soft)
    with torch.autocast("cpu", torch.bfloat16):
        (actual,) = torch.autograd.grad((sinkhorn(soft, mask) * weights).sum(), soft)
    assert torch.equal(actual, expected)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SORTS = {
    "neuralsort": lambda scores, mask: neural_sort(scores, mask, temperature=1e-4),
    "softsort": lambda scores, mask: soft_sort(scores, mask, temperature=1e-4),
    "ot": lambda scores, mask: ot_sort(scores, mask, temperature=1e-5),
    "bitonic": lambda scores, mask: network_sort(scores, mask, temperature=1e-12),
    "odd-even": lambda scores, mask: network_sort(
        scores, mask, temperature=1e-12, network="odd_even"
    ),
    "rank_binomial": lambda scores, mask: rank_distribution(scores, mask, sigma=1e-4),
    "stochastic": lambda scores, mask: stochastic_neural_sort(
        scores, mask, temperature=1e-4, beta=1e-6, n_samples=2, generator=seeded()
    ).mean(0),
}


@pytest.mark.parametrize("sort", SORTS)
def test_soft_permutation_has_the_permutation_as_limit_and_is_0_outside(sort: str) -> None:
    scores, _, mask = ragged()
    mask = torch.cat([mask, torch.zeros(1, 8, dtype=torch.bool)])
    scores = torch.cat([scores, scores[:1]]).masked_fill(~mask, math.nan)
    real_ranks = torch.arange(1, 9) <= mask.sum(-1, keepdim=True)
    order = order_by_score(scores.masked_fill(~mask, 0), mask)
    expected = torch.nn.functional.one_hot(order, 8).double() * real_ranks.unsqueeze(-1)
    actual = SORTS[sort](scores, mask)
    torch.testing.assert_close(actual, expected, atol=1e-9, rtol=0)
    assert (actual[~(real_ranks.unsqueeze(-1) & mask.unsqueeze(-2))] == 0).all()


NETWORKS = list(itertools.product(sorting_network._NETWORKS, sorting_network._DISTRIBUTIONS))


@pytest.mark.parametrize(("network", "distribution"), NETWORKS)
def test_network_sort_is_doubly_stochastic_and_mostly_monotonic(
    network: str, distribution: str
) -> None:
    scores, _, mask = random_lists(0, torch.float64, size=13)
    sort = partial(network_sort, network=network, distribution=distribution, temperature=0.3)
    soft = sort(scores, mask)
    real_ranks = torch.arange(1, 14) <= mask.sum(-1, keepdim=True)
    torch.testing.assert_close(soft.sum(-1), real_ranks.double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(soft.sum(-2), mask.double(), atol=1e-12, rtol=0)
    assert (soft >= 0).all()

    def outputs(scores: torch.Tensor) -> torch.Tensor:
        return (sort(scores, mask) @ scores.masked_fill(~mask, 0).unsqueeze(-1)).sum(0)

    slopes = torch.autograd.functional.jacobian(outputs, scores)
    assert (slopes.min() >= -1e-12) == (distribution != "logistic")


@pytest.mark.parametrize("network", sorting_network._NETWORKS)
def test_network_ndcg_is_of_the_matrix_and_continuous(network: str) -> None:
    scores, labels, mask = random_lists(0, torch.float64, size=13)
    order = ideal_order(scores, labels, mask)
    gain = gains(labels, mask)
    dcg = soft_dcg(network_sort(scores, mask, order=order, network=network), gain, k=3)
    loss = partial(network_ndcg_loss, labels=labels, mask=mask, network=network)
    torch.testing.assert_close(loss(scores, k=3), negative_ndcg(dcg, gain, mask, k=3))
    best_two = order_by_score(scores, mask)[:, :2]  # they cross
    tied = scores.scatter(-1, best_two, scores.gather(-1, best_two[:, :1]).expand(-1, 2))
    ahead, behind = (
        tied.scatter_add(-1, best_two, torch.tensor([[h, -h]]).double().expand(len(mask), -1))
        for h in (1e-9, -1e-9)
    )
    torch.testing.assert_close(loss(ahead), loss(behind), atol=1e-7, rtol=0)


# Petersen et al. (2022): how far a soft maximum is from the maximum, for slope 1 at 0
@pytest.mark.parametrize(
    ("distribution", "slope", "error"),
    [("reciprocal", 1.0, 1 / 4), ("cauchy", 1 / math.pi, 1 / math.pi**2), ("optimal", 1.0, 1 / 16)],
)
def test_network_sort_maximum_has_error_of_the_paper(
    distribution: str, slope: float, error: float
) -> None:
    gaps = torch.logspace(-2, 6, 99, dtype=torch.float64)
    scores = torch.stack([torch.zeros_like(gaps), gaps], -1)
    soft = network_sort(scores, scores >= 0, distribution=distribution, temperature=slope)
    errors = gaps - (soft[:, 0] * scores).sum(-1)
    assert errors.max().item() == pytest.approx(error, rel=1e-5)


@pytest.mark.slow
def test_drawn_scores_follow_the_plackett_luce_model() -> None:
    scores = torch.tensor([[-2.0, -1.0, 1.0]], dtype=torch.float64)
    n = 4000
    knobs = {"temperature": 1e-6, "n_samples": n, "generator": seeded()}
    soft = stochastic_neural_sort(scores, scores < 2, **knobs)
    strengths = [1.0, 2.0, 4.0]
    orders = soft[:, 0].argmax(-1).tolist()
    for order in itertools.permutations(range(3)):
        p = strengths[order[0]] / 7 * strengths[order[1]] / (7 - strengths[order[0]])
        frequency = orders.count(list(order)) / n
        assert frequency == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("counted", [True, False], ids=["CPU", "off the CPU"])
def test_uniform_noise_is_drawn_for_items_by_the_generator_only(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, mask = random_lists(0, torch.float64)
    like = torch.zeros((), dtype=torch.float64)
    state = torch.get_rng_state()
    first_sample = uniform_noise(mask, 3, like, seeded())[0]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: not counted)
    noise = uniform_noise(mask, 3, like, seeded())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(noise[0], first_sample)  # the same stream
    moved = torch.nn.functional.pad(mask, (2, 3)) if counted else mask.flip(-1)
    assert torch.equal(uniform_noise(moved, 3, like, seeded())[:, moved], noise[:, mask])
    assert (noise[:, ~mask] == 0).all()
    assert len(noise[:, mask].unique()) == noise[:, mask].numel()
    torch.manual_seed(0)
    assert torch.equal(uniform_noise(mask, 3, like), noise)


@pytest.mark.parametrize("size", [2, 10, 100, 1000])
def test_learned_ranks_are_near_those_of_sorting(size: int) -> None:
    scores = torch.randn(4, size, generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[0, size // 2 :] = False
    for rescaled in (scores, 100 * scores - 7):  # neither unit nor shift matters
        ranks = learned_ranks(rescaled, mask)
        error = (ranks - rank_of_item(scores, mask)).abs()[mask].mean().item()
        assert error < 0.1 + 0.03 * size
        assert ranks[mask].min() >= 1
        assert (ranks[0] <= max(1, size // 2)).all()


def test_learned_ranks_draw_nothing_when_reading_the_network() -> None:
    state = torch.get_rng_state()
    learned_sorter._read.cache_clear()
    learned_ranks(torch.ones(1, 3), torch.ones(1, 3) > 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_learned_ranks_first_call_in_another_mode_leaves_no_trace() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5]], requires_grad=True)
    mask = torch.ones(1, 3, dtype=torch.bool)
    expected = learned_ranks(scores, mask)

    def sum_of_ranks(scores: torch.Tensor) -> torch.Tensor:
        return learned_ranks(scores, mask).sum()

    def call_in(mode: str) -> None:
        if mode == "torch.func":
            torch.func.grad(sum_of_ranks)(scores.detach())
            return
        with torch.inference_mode() if mode == "inference" else torch.device("meta"):
            sum_of_ranks(scores.detach())

    for mode in ("inference", "torch.func", "default device"):
        learned_sorter._read.cache_clear()
        call_in(mode)
        ranks = learned_ranks(scores, mask)
        assert torch.equal(ranks, expected), mode
        (slope,) = torch.autograd.grad(ranks[0, 0], scores)
        assert (slope != 0).all(), mode


def test_squashed_scores_are_equal_for_tied_items() -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype, size in itertools.product((torch.float32, torch.float64), range(2, 20)):
        scores = (1.2 * torch.randn(8, size, generator=generator)).round().to(dtype)
        mask = torch.ones(8, size, dtype=torch.bool)
        squashed = squashed_scores(scores.requires_grad_(), mask)
        tied = scores.unsqueeze(-1) == scores.unsqueeze(-2)
        assert (squashed.unsqueeze(-1) == squashed.unsqueeze(-2))[tied].all()
        weights = torch.arange(1.0, size + 1).to(dtype)
        (slope,) = torch.autograd.grad((squashed * weights).sum(), scores)
        plain = standardise_scores(scores, mask).sigmoid() / (size - 1)
        (expected,) = torch.autograd.grad((plain * weights).sum(), scores)
        torch.testing.assert_close((squashed, slope), (plain, expected))


@pytest.mark.slow
def test_teach_sorter_is_reproducible_and_sodeep_takes_its_file(tmp_path: Path) -> None:
    main = runpy.run_path(str(ROOT / "examples" / "teach_sorter.py"))["main"]

    def quick(output: Path, *more: str) -> None:
        main([str(output), "--steps=3", "--items=64", "--longest=8", *more])

    quick(tmp_path / "new" / "a.json")
    quick(tmp_path / "b.json")
    quick(tmp_path / "c.json", "--seed=1")
    a, b, c = ((tmp_path / name).read_bytes() for name in ("new/a.json", "b.json", "c.json"))
    assert a == b != c
    data = torch.randn(2, 5), torch.tensor([[1.0, 0, 2, 0, 0]]).expand(2, 5), torch.ones(2, 5) > 0
    paths = None, str(tmp_path / "b.json"), str(tmp_path / "c.json")
    values = [sodeep_loss(*data, sorter=path) for path in paths]
    assert len({value.sum().item() for value in values}) == 3
    # a file that becomes another is read anew, and a run with it is another run
    cfg = compose("loss=sodeep", f"loss.sorter={paths[1]}")
    settings = settings_of(resolved(cfg), {})
    (tmp_path / "b.json").write_bytes(c + b" ")
    assert torch.equal(sodeep_loss(*data, sorter=paths[1]), values[2])
    assert settings != settings_of(resolved(cfg), {})
    assert settings_of(resolved(compose("loss=sodeep")), {})["origins"] != settings["origins"]
    mix = ["loss=mix", "loss.parts.sodeep=1"]
    assert (
        settings_of(resolved(compose(*mix)), {})["origins"]
        == settings_of(resolved(compose("loss=sodeep")), {})["origins"]
    )
    mine = compose(*mix, f"+loss.knobs.sodeep.sorter={paths[1]}")
    assert (
        settings_of(resolved(mine), {})["origins"]
        != settings_of(resolved(compose(*mix)), {})["origins"]
    )
    with pytest.raises(SystemExit):
        quick(tmp_path / "b.json")


def test_learned_ranks_refuse_unreadable_file_with_remedy(tmp_path: Path) -> None:
    for number, content in enumerate(("{", '{"weights": {"item.weight": [[1.0]]}}')):
        (tmp_path / f"{number}.json").write_text(content)
    for path in (tmp_path / "0.json", tmp_path / "1.json", tmp_path / "none", "/dev/zero", "."):
        with pytest.raises(ConfigError, match=r"^sorter=.* cannot be read .*teach_sorter"):
            learned_ranks(torch.zeros(1, 2), torch.ones(1, 2) > 0, sorter=path)
