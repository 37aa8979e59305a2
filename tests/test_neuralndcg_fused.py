"""NeuralNDCG as it is computed on the CPU, against the composition of its matrices."""

import math
from functools import partial
from typing import Any

import processes
import pytest
import torch
from ragged import ragged, random_lists, value_and_gradient
from test_fast_paths import plain
from torch import Tensor

from ltr.errors import ConfigError
from ltr.kernels.neural_dcg import neural_dcg
from ltr.losses import neural_ndcg_loss
from ltr.losses.soft_permutation import negative_ndcg, soft_dcg
from ltr.metrics.cumulative_gain import dcg
from ltr.relaxations import sinkhorn, stochastic_neural_sort


def composed(*data: Tensor, **knobs: Any) -> Tensor:
    """By the plain path, one matrix after the other."""
    with pytest.MonkeyPatch.context() as patch:
        plain(patch)
        return neural_ndcg_loss(*data, **knobs)


KNOBS: list[dict[str, Any]] = [
    {},
    {"k": 1},
    {"k": 5, "temperature": 0.1},
    {"temperature": 1e-3},
    {"temperature": 30.0},
    {"max_iter": 1},
    {"max_iter": 2, "tol": 0.0},
    {"tol": 0.0},
    {"tol": 0.1},
    {"max_iter": 200, "tol": 1e-12, "temperature": 0.3},
]


@pytest.mark.slow
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("knobs", KNOBS, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_plain_formula(seed: int, knobs: dict[str, Any], transposed: bool) -> None:
    data = random_lists(seed, torch.float64)
    loss = partial(neural_ndcg_loss, transposed=transposed, **knobs)
    matrices = partial(composed, transposed=transposed, **knobs)
    value, gradient = value_and_gradient(loss, *data)
    expected, slopes = value_and_gradient(matrices, *data)
    torch.testing.assert_close(value, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(gradient, slopes, atol=1e-11, rtol=1e-9)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_float32_is_float64_rounded(temperature: float, transposed: bool) -> None:
    scores, labels, mask = random_lists(2, torch.float32, size=120)
    loss = partial(neural_ndcg_loss, temperature=temperature, transposed=transposed)
    value, gradient = value_and_gradient(loss, scores, labels, mask)
    assert value.dtype == gradient.dtype == torch.float32
    exact, slopes = value_and_gradient(loss, scores.double(), labels.double(), mask)
    torch.testing.assert_close(value.double(), exact, atol=3e-7, rtol=0)
    torch.testing.assert_close(gradient.double(), slopes, atol=3e-7, rtol=1e-5)
    matrices = partial(composed, temperature=temperature, transposed=transposed)
    expected, plain_slopes = value_and_gradient(matrices, scores, labels, mask)
    torch.testing.assert_close(value, expected, atol=2e-6, rtol=0)
    torch.testing.assert_close(gradient, plain_slopes, atol=3e-5, rtol=1e-4)


def test_float32_keeps_the_floor_of_float32() -> None:
    # column 1 is about e^-50 next to a row sum of 1: float64 would scale it, float32 leaves it
    scores = torch.tensor([[0.0, 1e-6, 60.0]])
    data = torch.tensor([[3.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    for temperature in (1.0, 0.3, 1e-2):
        loss = partial(neural_ndcg_loss, temperature=temperature)
        value, gradient = value_and_gradient(loss, scores, *data)
        expected, slopes = value_and_gradient(
            partial(composed, temperature=temperature), scores, *data
        )
        torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(gradient, slopes, atol=1e-6, rtol=1e-3)


def test_stochastic_is_the_mean_over_the_same_draws() -> None:
    scores, labels, mask = random_lists(3, torch.float64)

    def drawn_alike(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        scores = scores.masked_fill(~mask, 0)
        drawn = stochastic_neural_sort(scores, mask, temperature=0.5, n_samples=3)
        found = torch.stack([soft_dcg(sinkhorn(soft, mask), labels, mask, k=4) for soft in drawn])
        return negative_ndcg(found.mean(0), labels, mask, k=4)

    loss = partial(neural_ndcg_loss, k=4, temperature=0.5, stochastic=True, n_samples=3)
    for found, expected in zip(
        value_and_gradient(loss, scores, labels, mask),
        value_and_gradient(drawn_alike, scores, labels, mask),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_band_that_is_computed_again_changes_nothing(
    dtype: torch.dtype, transposed: bool
) -> None:
    data = random_lists(4, dtype)
    knobs = {"k": 7, "temperature": 0.5, "transposed": transposed, "max_iter": 9, "tol": 1e-6}
    found = value_and_gradient(partial(neural_dcg, **knobs, kept=0), *data)
    expected = value_and_gradient(partial(neural_dcg, **knobs), *data)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("temperature", [1.0, 300.0])
def test_a_list_of_several_hundred_items_is_the_plain_formula(temperature: float) -> None:
    scores, labels, mask = (x[:1] for x in random_lists(7, torch.float64, size=650))
    knobs: dict[str, Any] = {"k": 10, "temperature": temperature, "max_iter": 30, "tol": 1e-6}
    expected, slopes = value_and_gradient(partial(composed, **knobs), scores, labels, mask)
    for kept in (0, 1 << 22):
        loss = partial(neural_dcg, **knobs, transposed=False, kept=kept)
        value, gradient = value_and_gradient(loss, scores, labels, mask)
        ideal = dcg(labels, labels, mask, k=10)
        torch.testing.assert_close(-value / ideal, expected, atol=1e-11, rtol=0)
        torch.testing.assert_close(-gradient / ideal, slopes, atol=1e-11, rtol=1e-8)


@pytest.mark.slow
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_lists(5, torch.float32, size=240)
    one = value_and_gradient(neural_ndcg_loss, *data)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    several = value_and_gradient(neural_ndcg_loss, *data)
    assert torch.equal(one[0], several[0])
    assert torch.equal(one[1], several[1])


def test_a_list_with_nan_is_nan_and_leaves_the_others() -> None:
    scores, labels, mask = ragged()
    expected = neural_ndcg_loss(scores, labels, mask)
    for junk in (math.nan, math.inf):
        scores[0, 2] = junk
        value = neural_ndcg_loss(scores, labels, mask)
        assert value[0].isnan()
        assert torch.equal(value[1:], expected[1:])


def test_a_value_alone_needs_no_slope() -> None:
    data = random_lists(6, torch.float64)
    expected, _ = value_and_gradient(neural_ndcg_loss, *data)
    found = neural_ndcg_loss(*data)
    assert not found.requires_grad
    assert torch.equal(found, expected)


LONG = """
import resource, torch
from ltr.losses import neural_ndcg_loss
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
for size in (50, 6000):
    scores = torch.rand(1, size, generator=generator).requires_grad_()
    labels = torch.randint(0, 5, (1, size), generator=generator).float()
    mask = torch.ones(1, size, dtype=torch.bool)
    neural_ndcg_loss(scores, labels, mask, k=10, max_iter=2, temperature=1e3).sum().backward()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_long_list_needs_no_square_of_its_length() -> None:
    done = processes.run(LONG)
    assert done.returncode == 0, done.stderr
    short, long = map(int, done.stdout.split())
    assert (long - short) / 1024 < 6000**2 * 8 / 2**20 / 10  # MiB; a tenth of one matrix


def test_bad_knobs_end_with_the_remedy() -> None:
    data = ragged()
    for temperature in (0.0, math.nan, -1.0):
        with pytest.raises(ConfigError, match=r"is out of range: write a finite number above 0"):
            neural_ndcg_loss(*data, temperature=temperature)
    with pytest.raises(ConfigError, match=r"^tol=-1.0 is out of range: write a number >= 0$"):
        neural_ndcg_loss(*data, tol=-1.0)
