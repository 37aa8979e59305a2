"""Losses by the compiled loops of the CPU, against the same formula on whole tensors.

Second derivatives are those of the plain path by any path, or an error in one line.
"""

import inspect
import itertools
import math
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from ltr import losses
from ltr.kernels.compile import cache_on_disk
from ltr.kernels.dispatch import _numba_works
from ltr.losses.pairs import PairWeight, sum_over_pairs
from ltr.models.layers import attend
from ltr.relaxations import learned_sorter, rank_distribution
from tests.helpers import processes
from tests.helpers.loss_cases import CASES, EVERY, MIXED, bind_loss, draws
from tests.helpers.packed_lists import packed_lists
from tests.helpers.paths import ROOT
from tests.helpers.ragged import plain, ragged, random_lists, value_and_gradient


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), CASES)
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_losses_agree_on_both_paths(
    name: str, knobs: dict[str, Any], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = bind_loss(name, knobs)
    for dtype, near in ((torch.float64, 1e-11), (torch.float32, 2e-4)):
        scores, labels, mask = random_lists(0, dtype)
        with monkeypatch.context() as patch:
            by_kernel = value_and_gradient(loss, scale * scores, labels, mask)
            plain(patch)
            by_formula = value_and_gradient(loss, scale * scores, labels, mask)
        for actual, expected in zip(by_kernel, by_formula, strict=True):
            assert actual.dtype == expected.dtype == dtype
            size = expected.abs().max().clamp(min=1).item()
            torch.testing.assert_close(actual, expected, atol=near * size, rtol=near)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["kernels", "plain", "off the CPU"])
def test_pairwise_losses_of_huge_differences_are_no_nan(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = torch.tensor([[2.0, 1.0, 0.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    tied = [3e38, 3e38, -3e38]
    tied_and_near = [60.0, 60.0, -60.0]  # of the same costs
    right_order = [3e38, 1.0, -3e38]
    wrong_order = [-3e38, 1.0, 3e38]
    costs_overflow = [1e26, 1.0, -1e26]  # but no difference does
    pairwise = ("ranknet", "lambdarank", "lambdaloss", "ranksvm", "rankboost")
    cases = [
        (name, knobs) for name, knobs in CASES if name.startswith(pairwise) and "sigma" not in knobs
    ]
    cases.append(("distil", {"cost": "lambdarank"}))
    if path == "kernels":
        cases.append(("listmle", {}))
    for name, knobs in cases:
        with monkeypatch.context() as patch:
            if path != "kernels":
                plain(patch)
            if path == "off the CPU":
                patch.setattr(torch.compiler, "is_compiling", lambda: True)
            measure = partial(_measure_list, bind_loss(name, knobs), labels, mask)
            torch.testing.assert_close(measure(tied), measure(tied_and_near))
            wrong_value, _ = measure(wrong_order)
            assert wrong_value.item() > 1e38
            if name != "lambdaloss ndcg1":  # which has a cost for each order
                for scores in (right_order, costs_overflow):
                    value, gradient = measure(scores)
                    assert not value.any()
                    assert not gradient.any()


def _measure_list(
    loss: partial[Tensor], labels: Tensor, mask: Tensor, scores: list[float]
) -> tuple[Tensor, Tensor]:
    value, gradient = value_and_gradient(loss, torch.tensor([scores]), labels, mask)
    return value, gradient


@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False], ids=["kernels", "plain"])
def test_losses_of_a_nan_score_are_nan_in_its_list_alone(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = math.nan
    mask = torch.ones(4, 5, dtype=torch.bool)
    scores = torch.tensor(
        [[0.3, -1, 2, 0.1, 1], [0.3, -1, 2, nan, 1], [nan, -1, 2, 0.1, 1], [nan] * 5]
    )
    labels = torch.tensor([0.0, 1, 2, 3, 0]).expand(4, 5)
    wrong = []
    for name, knobs in EVERY:
        with monkeypatch.context() as patch:
            if not fast:
                plain(patch)
            loss = bind_loss(name, knobs)
            value, gradient = value_and_gradient(loss, scores, labels, mask)
            no_value, _ = value_and_gradient(loss, scores[:0], labels[:0], mask[:0])
        assert no_value.shape == (0,)
        if value.isnan().tolist() != [False, True, True, True] or gradient[0].isnan().any():
            wrong.append((name, knobs, value))
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), EVERY)
def test_losses_never_wait_for_a_number(name: str, knobs: dict[str, Any]) -> None:
    if name in ("svmndcg", "softndcg", "softsortndcg") or knobs == {"targets": "isotonic"}:
        return  # they are found on the CPU
    # On the meta device there are no numbers: whoever asks for one, as .item() does, or for a shape
    # that depends on them, as indexing by a mask does, is told so. On a GPU it would wait.
    scores, labels, mask = (tensor.to("meta") for tensor in random_lists(0, torch.float32))
    scores.requires_grad_()
    loss = bind_loss(name, knobs)
    few_steps = {"max_iter": 2} if "max_iter" in inspect.signature(loss).parameters else {}
    values = loss(scores, labels, mask, **few_steps)
    losses.mean_over_batch(values, labels, mask).backward()
    assert scores.grad is not None
    assert scores.grad.shape == scores.shape


@pytest.mark.slow
@pytest.mark.parametrize("path", ["kernels", "plain"])
def test_losses_ignore_the_default_device(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    scores, labels, mask = ragged()
    wrong = []
    for name, knobs in [*EVERY, ("distil", {"alpha": 0}), ("distil", {"alpha": 0.3})]:
        loss = bind_loss(name, knobs)
        expected = value_and_gradient(loss, scores, labels, mask)
        learned_sorter._read.cache_clear()
        leaf = scores.clone().requires_grad_()
        torch.default_generator.manual_seed(0)
        with torch.device("meta"):  # where numbers would be lost
            values = loss(leaf, labels, mask)
            losses.mean_over_batch(values, labels, mask).backward()
        if not torch.equal(values.detach(), expected[0]) or not leaf.grad.isfinite().all():
            wrong.append((name, knobs))
    assert not wrong


@pytest.mark.parametrize("cost", ["hinge", "squared_hinge", "exponential", "logistic"])
def test_sum_over_pairs_applies_sigma_to_every_cost(
    cost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, 0)

    def measure(scores: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        weight = PairWeight(base=torch.ones_like(scores))
        loss = partial(sum_over_pairs, weight=weight, cost=cost, sigma=sigma)
        value, gradient = value_and_gradient(loss, scores, labels, mask)
        return value, gradient

    value, gradient = measure(3 * scores, 1.0)
    expected = value, 3 * gradient
    torch.testing.assert_close(measure(scores, 3.0), expected)
    plain(monkeypatch)
    torch.testing.assert_close(measure(scores, 3.0), expected)


def test_cache_on_disk_in_threads_restores_the_folder() -> None:
    original = numba.config.CACHE_DIR
    barrier = threading.Barrier(2)
    folders = []

    class Compiled:
        def enable_caching(self) -> None:
            folders.append(numba.config.CACHE_DIR)
            with suppress(threading.BrokenBarrierError):
                barrier.wait(0.1)  # both are here at once if they can be

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: cache_on_disk(Compiled()), range(2)))
    assert original == numba.config.CACHE_DIR
    assert folders[0] == folders[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lambdarank", "approxndcg"])
def test_losses_are_equal_for_any_number_of_threads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random_lists(2, torch.float32, size=300)
    by_one_thread = value_and_gradient(bind_loss(name, {}), *data)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    by_three_threads = value_and_gradient(bind_loss(name, {}), *data)
    torch.testing.assert_close(by_three_threads, by_one_thread, atol=0, rtol=0)


@pytest.mark.slow
def test_lambdarank_of_10000_items_needs_no_matrix() -> None:
    # a matrix of bits would have 12 MB, one of float32 400 MB
    torch.manual_seed(0)
    scores = torch.randn(1, 10_000, requires_grad=True)
    labels = torch.randint(0, 5, (1, 10_000)).float()
    mask = torch.ones(1, 10_000, dtype=torch.bool)
    with torch.profiler.profile(profile_memory=True) as profile:
        losses.lambdarank_loss(scores, labels, mask).sum().backward()
    assert max(event.cpu_memory_usage for event in profile.events()) < 1 << 20


def test_losses_without_numba_take_the_plain_path(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(x: float) -> float:
        raise TypeError("no\nsuch type")

    _numba_works.cache_clear()
    monkeypatch.setattr("ltr.kernels.compile.exp", broken)
    monkeypatch.setattr("ltr.losses.pairs._sum_by_loop", None)
    try:
        for _ in range(2):
            value, _ = value_and_gradient(losses.ranknet_loss, *random_lists(0, torch.float64))
    finally:
        _numba_works.cache_clear()
    assert value.isfinite().all()
    (message,) = caplog.messages
    assert "computed without it" in message
    assert "\n" not in message


SOFT_RANK_GRADIENTS = """
import numpy as np
from ltr.kernels.ranks import soft_rank_lists

scores, weights = np.random.default_rng(0).normal(size=(2, 8, 40))
lists = np.arange(8)
mask = np.ones((8, 40), dtype=bool)
gradients = np.zeros((2, 8, 40))
for laplace in (False, True):
    soft_rank_lists(lists, scores, mask, 0.1, laplace, weights, True, gradients[int(laplace)])
print(gradients.tobytes().hex())
"""


@pytest.mark.slow
def test_kernels_from_disk_give_the_bits_of_compiled_ones(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):  # the first saves its code on the disk
        from_disk = processes.run(SOFT_RANK_GRADIENTS)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env["NUMBA_CACHE_DIR"] = str(tmp_path / "file")  # no folder: it compiles
    command = [sys.executable, "-c", SOFT_RANK_GRADIENTS]
    compiled = subprocess.check_output(command, env=env, text=True)
    assert from_disk.stdout == compiled


def penalised_gradients(
    loss: Any, scores: Tensor, labels: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of the loss, and that of the loss plus a penalty of its squared gradient."""
    scores = scores.clone().requires_grad_()
    torch.manual_seed(0)
    values = loss(scores, labels, mask)
    (gradient,) = torch.autograd.grad(values.sum(), scores, create_graph=True)
    (penalised,) = torch.autograd.grad(values.sum() + 10 * gradient.square().sum(), scores)
    return gradient.detach(), penalised


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), [*EVERY, MIXED])
def test_losses_have_second_derivatives_on_both_paths(
    name: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = bind_loss(name, knobs)
    lists = ragged()
    if name == "plrank" or "targets" in knobs:
        with pytest.raises(
            NotImplementedError, match=r"no second derivative.*without create_graph"
        ):
            penalised_gradients(loss, *lists)
        return
    gradients = penalised_gradients(loss, *lists)
    plain(monkeypatch)
    expected = penalised_gradients(loss, *lists)
    torch.testing.assert_close(gradients, expected, atol=1e-11, rtol=1e-9)


# One row for each loss and each of the ways in which it computes.
FUNC_CASES: list[tuple[str, dict[str, Any]]] = [
    *[(name, knobs) for name, knobs in EVERY if not {"k", "relevant", "levels"} & knobs.keys()],
    *[(name, {"k": 3}) for name in ("neuralndcg", "lambdarank", "lambdaloss ndcg1", "neuralmrr")],
    *[("distil", {"cost": cost, "alpha": 0.3}) for cost in ("listnet", "lambdarank")],
    MIXED,
]


def _total_loss(name: str, knobs: dict[str, Any], lists: tuple[Tensor, ...]) -> Any:
    """The function of the scores that sums the losses of ``lists``; its draws are seeded."""
    loss = bind_loss(name, knobs)
    _, labels, mask = lists

    def total(scores: Tensor) -> Tensor:
        torch.manual_seed(0)
        return loss(scores, labels, mask).sum()

    return total


assert_near = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
OF_PYTORCH = "ignore:.*torch.jit.script.*:DeprecationWarning"


@pytest.mark.slow
@pytest.mark.filterwarnings(OF_PYTORCH)
@pytest.mark.parametrize(("name", "knobs"), FUNC_CASES)
def test_torch_func_gives_first_derivatives_of_autograd(name: str, knobs: dict[str, Any]) -> None:
    lists = ragged()
    scores = lists[0]
    total = _total_loss(name, knobs, lists)
    random = {"randomness": "same"} if draws(bind_loss(name, knobs)) else {}
    leaf = scores.clone().requires_grad_()
    direction = scores.sin() + 0.3
    (gradient,) = torch.autograd.grad(total(leaf), leaf)
    assert_near(torch.func.grad(total)(scores), gradient)
    assert_near(torch.func.jacfwd(total, **random)(scores), gradient)
    along = (gradient * direction).sum()
    assert_near(torch.func.jvp(total, (scores,), (direction,))[1], along)
    with forward_ad.dual_level():
        dual = total(forward_ad.make_dual(scores, direction))
        assert_near(forward_ad.unpack_dual(dual)[1], along)


@pytest.mark.slow
@pytest.mark.filterwarnings(OF_PYTORCH)
@pytest.mark.parametrize(("name", "knobs"), FUNC_CASES)
def test_torch_func_vmap_gives_each_list_of_a_batch(name: str, knobs: dict[str, Any]) -> None:
    lists = ragged()
    scores, labels, mask = lists
    loss = bind_loss(name, knobs)
    total = _total_loss(name, knobs, lists)
    batch = torch.stack([scores, -scores])

    def list_loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return loss(scores.unsqueeze(0), labels.unsqueeze(0), mask.unsqueeze(0)).squeeze(0)

    if draws(bind_loss(name, knobs)):
        with pytest.raises(NotImplementedError, match=r"^this loss draws .*randomness='same'"):
            torch.func.vmap(total)(batch)
        list_gradients = torch.func.vmap(torch.func.grad(list_loss), randomness="different")
        assert list_gradients(scores, labels, mask).isfinite().all()
        return
    expected = torch.stack([loss(batch_scores, labels, mask) for batch_scores in batch])
    batched = torch.func.vmap(lambda batch_scores: loss(batch_scores, labels, mask))(batch)
    assert_near(batched, expected)
    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(total(leaf), leaf)
    list_gradients = torch.func.vmap(torch.func.grad(list_loss))
    assert_near(list_gradients(scores, labels, mask), gradient)


@pytest.mark.slow
@pytest.mark.filterwarnings(OF_PYTORCH)
@pytest.mark.parametrize(("name", "knobs"), FUNC_CASES)
def test_torch_func_gives_second_derivatives_of_autograd_or_refuses(
    name: str, knobs: dict[str, Any]
) -> None:
    lists = ragged()
    scores = lists[0]
    total = _total_loss(name, knobs, lists)
    if name == "plrank" or "isotonic" in knobs.values():
        jacobians = torch.func.jacrev, partial(torch.func.jacfwd, randomness="same")
        for outer, inner in itertools.product(jacobians, repeat=2):
            with pytest.raises(
                NotImplementedError, match=r"no second derivative: compute only the first"
            ):
                outer(inner(total))(scores)
        return
    random = {"randomness": "same"} if draws(bind_loss(name, knobs)) else {}
    leaf = scores.clone().requires_grad_()
    direction = scores.sin() + 0.3
    (gradient,) = torch.autograd.grad(total(leaf), leaf, create_graph=True)
    (expected,) = torch.autograd.grad((gradient * direction).sum() + 0 * leaf.sum(), leaf)
    hessian = torch.func.jacfwd(torch.func.jacrev(total), **random)(scores)
    assert_near((hessian * direction).sum((-2, -1)), expected)


@pytest.mark.slow
def test_rank_distribution_of_a_long_list_is_differentiable_twice() -> None:
    # its recursion is computed in parts, and again for the gradient
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = scores.sin().unsqueeze(-1)
    mask = torch.ones(1, 40, dtype=torch.bool)

    def value(scores: Tensor) -> Tensor:
        return (rank_distribution(scores, mask) * weights).sum()

    assert torch.autograd.gradgradcheck(value, scores.requires_grad_(), fast_mode=True)


def test_loss_values_may_be_changed_in_place() -> None:
    scores, labels, mask = ragged()
    loss = losses.ranknet_loss
    expected, _ = penalised_gradients(loss, scores, labels, mask)
    leaf = scores.clone().requires_grad_()
    loss(leaf, labels, mask).mul_(2).sum().backward()
    torch.testing.assert_close(leaf.grad, 2 * expected)


def test_attend_refuses_a_second_derivative() -> None:
    packed, _, values = packed_lists()
    items = packed.pack(values).requires_grad_()
    attended = attend(items, packed, heads=1, rate=0.0)
    with pytest.raises(NotImplementedError, match=r"second derivative of attention.*model=mlp"):
        torch.autograd.grad(attended.sum(), items, create_graph=True)
