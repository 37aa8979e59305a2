"""NeuralNDCG's kernels: the loop of the CPU against the plain path, and Triton's."""

import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from jaxtyping import config as checking
from torch import Tensor

from ltr.kernels.dispatch import accelerated
from ltr.kernels.neural_dcg import neural_dcg, triton_is_faster
from ltr.losses import neural_ndcg_loss
from ltr.losses.soft_permutation import negative_ndcg, soft_dcg
from ltr.metrics.cumulative_gain import dcg, gains
from ltr.relaxations import sinkhorn
from tests.helpers import processes
from tests.helpers.paths import ROOT
from tests.helpers.ragged import plain, random_lists, stochastic_neural_sort, value_and_gradient


def composed(*data: Tensor, **knobs: Any) -> Tensor:
    """Return the loss by the plain path."""
    with pytest.MonkeyPatch.context() as patch:
        plain(patch)
        return neural_ndcg_loss(*data, **knobs)


def test_neural_ndcg_in_float32_keeps_the_floor_of_float32() -> None:
    # column 1 is about e^-50 next to a row sum of 1: float64 would scale it, float32 leaves it
    scores = torch.tensor([[0.0, 1e-6, 60.0]])
    data = torch.tensor([[3.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    for temperature in (1.0, 0.3, 1e-2):
        actual, expected = (
            value_and_gradient(partial(loss, temperature=temperature), scores, *data)
            for loss in (neural_ndcg_loss, composed)
        )
        torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-3)


def test_stochastic_neural_ndcg_is_mean_over_draws() -> None:
    scores, labels, mask = random_lists(3, torch.float64)

    def mean_over_draws(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        scores = scores.masked_fill(~mask, 0)
        drawn = stochastic_neural_sort(scores, mask, temperature=0.5, n_samples=3)
        item_gains = gains(labels, mask)
        dcg = torch.stack([soft_dcg(sinkhorn(soft, mask), item_gains, k=4) for soft in drawn])
        return negative_ndcg(dcg.mean(0), item_gains, mask, k=4)

    loss = partial(neural_ndcg_loss, k=4, temperature=0.5, stochastic=True, n_samples=3)
    actual = value_and_gradient(loss, scores, labels, mask)
    expected = value_and_gradient(mean_over_draws, scores, labels, mask)
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 300.0])
def test_neural_dcg_kernel_on_long_list_equals_plain_formula(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, mask = (x[:1] for x in random_lists(7, torch.float64, size=650))
    knobs: dict[str, Any] = {"k": 10, "temperature": temperature, "max_iter": 30, "tol": 1e-6}
    expected, slopes = value_and_gradient(partial(composed, **knobs), scores, labels, mask)

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        by_kernel = accelerated(neural_dcg)(lambda *_: torch.zeros(0))
        return by_kernel(scores, gains(labels, mask), mask, 10, temperature, False, 30, 1e-6)

    for max_stored in (0, 1 << 22):
        monkeypatch.setattr("ltr.kernels.neural_dcg.MAX_STORED", max_stored)
        value, gradient = value_and_gradient(loss, scores, labels, mask)
        ideal = dcg(labels, labels, mask, k=10)
        torch.testing.assert_close(-value / ideal, expected, atol=1e-11, rtol=0)
        torch.testing.assert_close(-gradient / ideal, slopes, atol=1e-11, rtol=1e-8)


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
def test_neural_ndcg_memory_is_below_square_of_list_length() -> None:
    process = processes.run(LONG)
    assert process.returncode == 0, process.stderr
    short, long = map(int, process.stdout.split())
    assert (long - short) / 1024 < 6000**2 * 8 / 2**20 / 10  # MiB; a tenth of one matrix


def run_triton(program: str, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a new process with the environment variables ``env``.

    A forked process has imported Triton, which reads ``env`` only at its import. At its end, Triton
    also reports what pytest still holds.
    """
    paths = os.pathsep.join([str(ROOT), *sys.path])
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=600, check=False,
        env=os.environ | {"PYTHONPATH": paths} | env,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process


needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

INTERPRETED = """
import torch
from tests.helpers.ragged import random_lists
from ltr.kernels.neural_dcg import neural_dcg, value_and_grad_on_gpu
from ltr.metrics.cumulative_gain import gains
torch.set_num_threads(1)

def check(lists, near, *knobs):
    scores, labels, mask = lists
    of_item = gains(labels, mask)
    value, slope = value_and_grad_on_gpu(scores, True, of_item, mask, *knobs)
    expected, slopes = neural_dcg(scores.double(), True, of_item.double(), mask, *knobs)
    assert ((value - expected).abs() <= near * expected).all(), knobs
    largest = slopes.abs().amax(-1, keepdim=True)  # of which the CPU's kernel is right to 1e-6
    assert ((slope - slopes).abs() <= near * largest + 1e-6).all(), knobs
    print("agrees")

scores, labels, mask = random_lists(0, torch.float64)
mask[2, 1:], mask[2, 0] = False, True
labels[2, 0] = 1
lists = scores.masked_fill(~mask, 0), labels.masked_fill(~mask, 0), mask
check(lists, 1e-12, None, 0.3, False, 3, 0.1)
check(lists, 1e-12, 3, 1e-3, True, 2, 1e-6)

generator = torch.Generator().manual_seed(0)
apart = (0.05 + 0.05 * torch.rand(24, generator=generator)).cumsum(0)  # at 1e-3: no slope
near = torch.randn(24, generator=generator).sort().values
near[:18] /= 1e4  # gaps that temperatures of 1e-6 tell apart
scores, labels = torch.stack([apart, near]), torch.randint(0, 5, (2, 24), generator=generator)
lists = scores, labels.float(), scores == scores
for i, power in enumerate((-6, -3, 0, 4)):
    check(lists, 3e-5, None, 10.0**power, i % 2 == 1, 2, 0.0)
"""


@needs_triton
@pytest.mark.slow
def test_triton_kernel_equals_cpu_at_all_temperatures() -> None:
    process = run_triton(INTERPRETED, TRITON_INTERPRET="1")
    assert process.stdout.split() == ["agrees"] * 6


def test_worthwhile_is_false_for_few_long_lists() -> None:
    for lists, size in ((64, 1), (64, 2048), (1, 1000), (132, 2000)):
        assert triton_is_faster(lists, size, processors=132)
    for lists, size, processors in ((64, 2049, 132), (16, 2000, 132), (1, 2048, 1), (8, 2048, 1)):
        assert not triton_is_faster(lists, size, processors=processors)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's compilers, on a GPU
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@needs_triton
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1, 16, 240, 1000])
def test_neural_ndcg_on_gpu_equals_cpu(
    size: int, dtype: torch.dtype, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which a compiler cannot follow
    data = random_lists(0, dtype, size=size)
    loss = partial(neural_ndcg_loss, k=10, transposed=transposed)
    expected = value_and_gradient(loss, *data)
    near = 1e-9 if dtype == torch.float64 else 1e-4
    for function in (loss, loss, loss, torch.compile(loss, fullgraph=True)):
        scores, labels, mask = (x.cuda() for x in data)
        scores.requires_grad_()
        values = function(scores, labels, mask)
        weights = torch.arange(1, 8, dtype=dtype, device="cuda")
        (slope,) = torch.autograd.grad((values * weights).sum(), scores)
        torch.testing.assert_close(values.cpu(), expected[0], atol=near, rtol=0)
        torch.testing.assert_close(slope.cpu(), expected[1], atol=near, rtol=near)
