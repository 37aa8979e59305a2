"""Soft permutations against their formulas, the paper's table, and their limits."""

import math

import pytest
import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.metrics.ordering import order_by_score
from ltr.relaxations import neural_sort, sinkhorn
from ltr.relaxations.neuralsort import sum_of_distances

NAN = math.nan


def ragged(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Scores and mask of lists of 7, 4, 1, 0 and 3 items, padded on every side and between."""
    scores = torch.randn(5, 7, dtype=dtype, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor(
        [
            [1, 1, 1, 1, 1, 1, 1],
            [0, 0, 1, 1, 1, 1, 0],
            [0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 0, 0, 0, 0],
            [1, 0, 0, 1, 0, 0, 1],
        ],
        dtype=torch.bool,
    )
    return scores, mask


def place(blocks: list[Tensor], mask: Tensor) -> Tensor:
    """Put the n x n block of each list at its first n ranks and its real items; 0 elsewhere."""
    size = mask.shape[-1]
    out = []
    for block, real in zip(blocks, mask, strict=True):
        columns = torch.zeros(len(block), size, dtype=block.dtype)
        columns = columns.index_copy(1, real.nonzero()[:, 0], block)
        out.append(torch.nn.functional.pad(columns, (0, 0, 0, size - len(block))))
    return torch.stack(out)


def plain_neural_sort(scores: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """Equation 3, list by list and row by row."""
    blocks = []
    for listed, real in zip(scores, mask, strict=True):
        s = listed[real]
        n = len(s)
        distances = (s[:, None] - s[None, :]).abs().sum(1)
        rows = [
            (((n + 1 - 2 * i) * s - distances) / temperature).softmax(0) for i in range(1, n + 1)
        ]
        blocks.append(torch.stack(rows) if rows else s.new_zeros(0, 0))
    return place(blocks, mask)


def plain_sinkhorn(matrix: Tensor, mask: Tensor, max_iter: int, tol: float, first: str) -> Tensor:
    """Divide by column and row sums, list by list, until the paper's stopping rule holds."""
    blocks = []
    for listed, real in zip(matrix, mask, strict=True):
        block = listed[: int(real.sum())][:, real]
        for _ in range(max_iter if len(block) else 0):
            for dim in (0, 1) if first == "columns" else (1, 0):
                block = block / block.sum(dim, keepdim=True)
            if max((block.sum(dim) - 1).abs().max() for dim in (0, 1)) < tol:
                break
        blocks.append(block)
    return place(blocks, mask)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_neural_sort_is_equation_3(temperature: float) -> None:
    scores, mask = ragged()
    scores.requires_grad_()
    weights = torch.rand(5, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = neural_sort(scores, mask, temperature=temperature)
    expected = plain_neural_sort(scores, mask, temperature)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    (gradient,) = torch.autograd.grad((found * weights).sum(), scores)
    (plain,) = torch.autograd.grad((expected * weights).sum(), scores)
    torch.testing.assert_close(gradient, plain, atol=1e-12 / temperature, rtol=1e-9)


def test_neural_sort_outside_of_the_lists() -> None:
    scores, mask = ragged()
    found = neural_sort(scores, mask)
    sizes = mask.sum(-1)
    real_ranks = torch.arange(1, 8) <= sizes[:, None]
    assert (found.masked_select(~mask[:, None, :]) == 0).all()
    assert (found.masked_select(~real_ranks[:, :, None]) == 0).all()
    torch.testing.assert_close(found.sum(-1), real_ranks.double())


@pytest.mark.parametrize("junk", [NAN, math.inf, -math.inf, 1e30])
def test_padding_is_never_read(junk: float) -> None:
    scores, mask = ragged()
    poisoned = scores.masked_fill(~mask, junk).requires_grad_()
    soft = neural_sort(poisoned, mask)
    assert torch.equal(soft, neural_sort(scores, mask))
    block = (torch.arange(7) < mask.sum(-1, keepdim=True))[:, :, None] & mask[:, None, :]
    filled = torch.where(block, soft, junk)
    for first in ("columns", "rows"):
        scaled = sinkhorn(filled, mask, first=first)
        assert torch.equal(scaled, sinkhorn(soft, mask, first=first))
        assert (scaled.masked_select(~block) == 0).all()
        (gradient,) = torch.autograd.grad(scaled.square().sum(), poisoned, retain_graph=True)
        assert gradient.isfinite().all()
        assert (gradient.masked_select(~mask) == 0).all()


# The NeuralNDCG paper, Table 1: y sorted by NeuralSort of s (no Sinkhorn scaling), as printed. Its
# printed sums are left out: those of rows 0.01 and 0.1 are of rounded entries, that of row 1 lacks
# its first entry.
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


def test_neural_sort_at_low_temperature_is_the_permutation() -> None:
    scores, mask = ragged()
    order = order_by_score(scores, mask)
    expected = torch.nn.functional.one_hot(order, 7).double() * (
        torch.arange(1, 8) <= mask.sum(-1, keepdim=True)
    ).unsqueeze(-1)
    soft = neural_sort(scores, mask, temperature=1e-4)
    torch.testing.assert_close(soft, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(sinkhorn(soft, mask), expected, atol=1e-12, rtol=0)


def test_equal_scores_share_ranks() -> None:
    scores = torch.tensor([[0.3, 0.7, 0.3, 0.3, 0.1]])
    soft = neural_sort(scores, torch.ones(1, 5, dtype=torch.bool), temperature=1e-6)
    third = 1 / 3
    torch.testing.assert_close(soft[0, 1:4], torch.tensor([[third, 0, third, third, 0]] * 3))


def test_a_shift_of_the_scores_changes_nothing() -> None:
    scores = torch.tensor([[0.3, 0.71, -1.57, 0.52]]) + 1e4  # rounded to 1e-3
    mask = torch.ones(1, 4, dtype=torch.bool)
    expected = neural_sort((scores - 1e4).double(), mask).float()
    torch.testing.assert_close(neural_sort(scores, mask), expected, atol=1e-6, rtol=0)


def test_sum_of_distances_has_the_gradient_of_the_plain_sum() -> None:
    scores = torch.tensor([[0.3, 0.7, 0.3, -2.0, 0.7, 5.0]], dtype=torch.float64).requires_grad_()
    mask = torch.ones(1, 6, dtype=torch.bool)
    weights = torch.arange(1.0, 7, dtype=torch.float64)
    plain = (scores[0, :, None] - scores[0, None, :]).abs().sum(1)
    found = sum_of_distances(scores, mask)[0]
    torch.testing.assert_close(found, plain)
    (gradient,) = torch.autograd.grad(found @ weights, scores)
    (expected,) = torch.autograd.grad(plain @ weights, scores)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("first", ["columns", "rows"])
@pytest.mark.parametrize(
    ("max_iter", "tol"), [(1, 1e-6), (3, 1e-6), (30, 1e-6), (500, 1e-12), (30, 0.05)]
)
def test_sinkhorn_is_repeated_division(max_iter: int, tol: float, first: str) -> None:
    scores, mask = ragged()
    soft = neural_sort(scores, mask, temperature=0.3).requires_grad_()
    weights = torch.rand(5, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = sinkhorn(soft, mask, max_iter=max_iter, tol=tol, first=first)
    expected = plain_sinkhorn(soft, mask, max_iter, tol, first)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    (gradient,) = torch.autograd.grad((found * weights).sum(), soft)
    (plain,) = torch.autograd.grad((expected * weights).sum(), soft)
    torch.testing.assert_close(gradient, plain, atol=1e-12, rtol=1e-10)


def test_sinkhorn_of_any_positive_matrix() -> None:
    matrix = (
        torch.rand(4, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 7
    )
    mask = torch.ones(4, 9, dtype=torch.bool)
    scaled = sinkhorn(matrix, mask, max_iter=200, tol=1e-12)
    torch.testing.assert_close(scaled.sum(-1), torch.ones(4, 9, dtype=torch.float64))
    torch.testing.assert_close(scaled.sum(-2), torch.ones(4, 9, dtype=torch.float64))
    transposed = sinkhorn(matrix.mT, mask, max_iter=3)
    assert torch.equal(transposed.mT, sinkhorn(matrix, mask, max_iter=3, first="rows"))


def test_sinkhorn_agrees_with_finite_differences() -> None:
    matrix = (
        torch.rand(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    )
    mask = torch.tensor([[True, True, True], [True, False, True]])
    for first in ("columns", "rows"):
        assert torch.autograd.gradcheck(
            lambda m, first=first: sinkhorn(m, mask, max_iter=4, tol=0.0, first=first),
            matrix.requires_grad_(),
        )


def test_a_list_stops_by_itself() -> None:
    scores, mask = ragged()
    soft = neural_sort(scores, mask, temperature=0.3)
    together = sinkhorn(soft, mask, tol=0.01)
    for i in range(len(soft)):
        alone = sinkhorn(soft[i : i + 1], mask[i : i + 1], tol=0.01)
        assert torch.equal(together[i : i + 1], alone)
    assert not torch.equal(together, sinkhorn(soft, mask, tol=0.01, max_iter=1))
    assert not torch.equal(together, sinkhorn(soft, mask, tol=1e-9))


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-8, 1e-3, 1.0])
def test_near_ties_at_low_temperature_stay_finite(dtype: torch.dtype, temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(8, 60, generator=generator) * 1e-3).tanh().to(dtype).requires_grad_()
    mask = torch.rand(8, 60, generator=generator) < 0.7
    scaled = sinkhorn(neural_sort(scores, mask, temperature=temperature), mask)
    (gradient,) = torch.autograd.grad((scaled * torch.arange(60)).sum(), scores)
    assert scaled.isfinite().all()
    assert gradient.isfinite().all()


def test_dtype() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    for given, expected in (
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ):
        assert neural_sort(torch.tensor([[0.5, 1.0]], dtype=given), mask).dtype == expected


def test_autocast_does_not_reach_the_sums() -> None:
    soft = neural_sort(*ragged(torch.float32)).requires_grad_()
    mask = ragged()[1]
    weights = torch.arange(7.0)
    (expected,) = torch.autograd.grad((sinkhorn(soft, mask) * weights).sum(), soft)
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad((sinkhorn(soft, mask) * weights).sum(), soft)
    assert torch.equal(found, expected)


def test_bad_knobs_end_with_the_remedy() -> None:
    scores, mask = torch.tensor([[1.0]]), torch.tensor([[True]])
    for temperature in (0.0, -1.0, NAN, math.inf):
        with pytest.raises(ConfigError, match=r"^temperature=.* write a finite number above 0$"):
            neural_sort(scores, mask, temperature=temperature)
    for max_iter, tol in ((0, 1e-6), (30, -1.0), (30, NAN)):
        with pytest.raises(ConfigError, match=r"^(max_iter=0|tol=.*) is out of range: write an? "):
            sinkhorn(scores[None], mask, max_iter=max_iter, tol=tol)
    with pytest.raises(
        ConfigError, match=r"^first=both is not known: choose one of columns, rows$"
    ):
        sinkhorn(scores[None], mask, first="both")
