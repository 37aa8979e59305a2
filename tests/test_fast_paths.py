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
import processes
import pytest
import torch
from ragged import plain, ragged, random_lists, value_and_gradient
from test_losses_reference import LOSSES
from test_models import lists
from torch import Tensor
from torch.autograd import forward_ad

from ltr import losses
from ltr.kernels.compile import cache_on_disk
from ltr.kernels.dispatch import numba_works
from ltr.losses.mix import losses_by_name
from ltr.losses.pairs import PairWeight, sum_over_pairs
from ltr.models.layers import attend
from ltr.relaxations import learned_sorter, rank_distribution

ROWS: dict[str, list[dict[str, Any]]] = {name: rows for name, (_, _, rows) in LOSSES.items()}
STEPS: list[dict[str, Any]] = [
    *({"temperature": 1e-3}, {"temperature": 30.0}, {"max_iter": 1}, {"max_iter": 2, "tol": 0.0}),
    *({"tol": 0.0}, {"tol": 0.1}, {"max_iter": 200, "tol": 1e-12, "temperature": 0.3}),
]
MORE: dict[str, list[dict[str, Any]]] = {
    "neuralndcg": [*STEPS, {"stochastic": True}],
    "neuralndcg_t": STEPS,
    "softsortndcg": [{"max_iter": 1}, {"max_iter": 300, "tol": 1e-3}],
    "svmmap": [{}, {"relevant": 3}],
    "svmndcg": [{}, {"k": 1}, {"k": 7}],
}
CASES = [(name, knobs) for rows in (ROWS, MORE) for name in rows for knobs in rows[name]]
NO_KERNEL: list[tuple[str, dict[str, Any]]] = [
    *(("plrank", {}), ("rankprop", {"targets": "isotonic"})),
]
NUMBERS = {"temperature", "max_iter", "tol", "sigma", "mu"}  # which choose no other code
EVERY = [case for case in CASES + NO_KERNEL if not case[1].keys() & NUMBERS]
MIXED = ("mix", {"parts": {"neuralndcg": 1.0, "ranknet": 0.3, "listmle": 0.1}})


def bound(name: str, knobs: dict[str, Any]) -> partial[Tensor]:
    return partial(LOSSES[name][0] if name in LOSSES else losses_by_name()[name], **knobs)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), CASES)
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_both_paths_agree(
    name: str, knobs: dict[str, Any], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = bound(name, knobs)
    for dtype, near in ((torch.float64, 1e-11), (torch.float32, 2e-4)):
        scores, labels, mask = random_lists(0, dtype)
        with monkeypatch.context() as patch:
            found = value_and_gradient(loss, scale * scores, labels, mask)
            plain(patch)
            expected = value_and_gradient(loss, scale * scores, labels, mask)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype == dtype
            size = other.abs().max().clamp(min=1).item()
            torch.testing.assert_close(one, other, atol=near * size, rtol=near)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["kernels", "plain", "off the CPU"])
def test_differences_beyond_the_largest_float_are_no_nan(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, mask = torch.tensor([[2.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    alike, near = [3e38, 3e38, -3e38], [60.0, 60.0, -60.0]  # of the same costs
    right, wrong = [3e38, 1.0, -3e38], [-3e38, 1.0, 3e38]
    apart = [1e26, 1.0, -1e26]  # where a cost overflows and no difference does
    pairwise = ("ranknet", "lambdarank", "lambdaloss", "ranksvm", "rankboost")
    cases = [(n, k) for n, k in CASES if n.startswith(pairwise) and "sigma" not in k]
    cases += [("distil", {"cost": "lambdarank"})]
    cases += [("listmle", {})] if path == "kernels" else []
    for name, knobs in cases:
        with monkeypatch.context() as patch:
            if path != "kernels":
                plain(patch)
            if path == "off the CPU":
                patch.setattr(torch.compiler, "is_compiling", lambda: True)
            loss = bound(name, knobs)
            (value, slope), (same, pushed), (least, flat), (less, level), (large, _) = (
                value_and_gradient(loss, torch.tensor([s]), labels, mask)
                for s in (alike, near, right, apart, wrong)
            )
        torch.testing.assert_close((value, slope), (same, pushed))
        assert large.item() > 1e38
        if name != "lambdaloss ndcg1":  # which has a cost for each order
            assert not torch.cat([least, less, *flat, *level]).any()


@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False], ids=["kernels", "plain"])
def test_a_nan_makes_its_list_nan_and_no_other(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    nan, mask = math.nan, torch.ones(4, 5, dtype=torch.bool)
    scores = torch.tensor(
        [[0.3, -1, 2, 0.1, 1], [0.3, -1, 2, nan, 1], [nan, -1, 2, 0.1, 1], [nan] * 5]
    )
    labels = torch.tensor([0.0, 1, 2, 3, 0]).expand(4, 5)
    wrong = []
    for name, knobs in EVERY:
        with monkeypatch.context() as patch:
            if not fast:
                plain(patch)
            value, gradient = value_and_gradient(bound(name, knobs), scores, labels, mask)
            none, _ = value_and_gradient(bound(name, knobs), scores[:0], labels[:0], mask[:0])
        assert none.shape == (0,)
        if value.isnan().tolist() != [False, True, True, True] or gradient[0].isnan().any():
            wrong.append((name, knobs, value))
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), EVERY)
def test_nothing_waits_for_a_number(name: str, knobs: dict[str, Any]) -> None:
    if name in ("svmndcg", "softndcg", "softsortndcg") or knobs == {"targets": "isotonic"}:
        return  # they are found on the CPU
    # On the meta device there are no numbers: whoever asks for one, as .item() does, or for a shape
    # that depends on them, as indexing by a mask does, is told so. On a GPU it would wait.
    scores, labels, mask = (x.to("meta") for x in random_lists(0, torch.float32))
    scores.requires_grad_()
    loss = bound(name, knobs)
    steps = {"max_iter": 2} if "max_iter" in inspect.signature(loss).parameters else {}
    values = loss(scores, labels, mask, **steps)
    losses.mean_over_batch(values, labels, mask).backward()
    assert scores.grad is not None
    assert scores.grad.shape == scores.shape


APART = {"sodeep", "svmndcg"}  # which read a file, and look at numbers on the CPU
COMPILED = """
import inspect, sys, torch
from functools import partial
from ragged import random_lists, value_and_gradient
from ltr.losses.mix import losses_by_name
data = random_lists(1, torch.float64, size=12)
called = set()

def backend(graph, _):
    parts = [part.graph for part in graph.modules() if isinstance(part, torch.fx.GraphModule)]
    called.update(str(node.target) for one in parts for node in one.nodes)
    return graph.forward

for name in sys.argv[1:]:
    called.clear()
    torch._dynamo.reset()  # all losses behind one decorator share its code
    loss = losses_by_name()[name]
    if "max_iter" in inspect.signature(loss).parameters:
        loss = partial(loss, max_iter=2)  # the steps are unrolled
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    found, expected = value_and_gradient(compiled, *data), value_and_gradient(loss, *data)
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-9)
    by_operator = name in ("neuralndcg", "otndcg")
    assert ("ltr.neural_dcg.default" in called) == by_operator, called
    print(name)
torch.library.opcheck(torch.ops.ltr.neural_dcg.default, (*data, 3, 0.5, True, 4, 1e-6))
from some_steps import graphs
for found in graphs():
    print(*found)
"""


@pytest.mark.slow
def test_every_loss_compiles_into_one_graph() -> None:
    # in a process of its own, where shapes are not checked: the checks themselves do not compile
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    names = sorted(losses_by_name().keys() & dict(CASES).keys() - APART)
    done = processes.run(COMPILED, *names, env={"PYTHONPATH": paths})
    steps = [f"{name} 1 0" for name in ("listnet_loss", "lambdarank_loss", "neural_ndcg_loss")]
    assert done.stdout.splitlines() == [*names, *steps], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", ["kernels", "plain"])
def test_a_default_device_means_nothing_to_tensors_elsewhere(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "plain":
        plain(monkeypatch)
    given = ragged()
    wrong = []
    for name, knobs in [*EVERY, ("distil", {"alpha": 0}), ("distil", {"alpha": 0.3})]:
        expected = value_and_gradient(bound(name, knobs), *given)
        learned_sorter._read.cache_clear()
        leaf = given[0].clone().requires_grad_()
        torch.default_generator.manual_seed(0)
        with torch.device("meta"):  # where numbers would be lost
            values = bound(name, knobs)(leaf, *given[1:])
            losses.mean_over_batch(values, *given[1:]).backward()
        if not torch.equal(values.detach(), expected[0]) or not leaf.grad.isfinite().all():
            wrong.append((name, knobs))
    assert not wrong


@pytest.mark.parametrize("cost", ["hinge", "squared_hinge", "exponential", "logistic"])
def test_sigma_counts_for_every_cost_of_pairs(cost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, 0)

    def found(scores: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        weight = PairWeight(base=torch.ones_like(scores))
        loss = partial(sum_over_pairs, weight=weight, cost=cost, sigma=sigma)
        return value_and_gradient(loss, scores, labels, mask)

    by_loops, of_scaled = found(scores, 3.0), found(3 * scores, 1.0)
    expected = of_scaled[0], 3 * of_scaled[1]
    torch.testing.assert_close(tuple(by_loops), expected)
    plain(monkeypatch)
    torch.testing.assert_close(tuple(found(scores, 3.0)), expected)


def test_kernels_kept_by_several_threads_leave_the_folder_as_it_was() -> None:
    usual, meet, folders = numba.config.CACHE_DIR, threading.Barrier(2), []

    class Compiled:
        def enable_caching(self) -> None:
            folders.append(numba.config.CACHE_DIR)
            with suppress(threading.BrokenBarrierError):
                meet.wait(0.1)  # both are here at once if they can be

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: cache_on_disk(Compiled()), range(2)))
    assert usual == numba.config.CACHE_DIR
    assert folders[0] == folders[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lambdarank", "approxndcg"])
def test_threads_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_lists(2, torch.float32, size=300)
    one = value_and_gradient(bound(name, {}), *data)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    several = value_and_gradient(bound(name, {}), *data)
    torch.testing.assert_close(several, one, atol=0, rtol=0)


@pytest.mark.slow
def test_a_list_of_10000_items_needs_no_matrix() -> None:
    # a matrix of bits would have 12 MB, one of float32 400 MB
    torch.manual_seed(0)
    scores = torch.randn(1, 10_000, requires_grad=True)
    labels = torch.randint(0, 5, (1, 10_000)).float()
    mask = torch.ones(1, 10_000, dtype=torch.bool)
    with torch.profiler.profile(profile_memory=True) as profile:
        losses.lambdarank_loss(scores, labels, mask).sum().backward()
    assert max(event.cpu_memory_usage for event in profile.events()) < 1 << 20


def test_without_a_numba_that_works_losses_take_the_plain_path(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(x: float) -> float:
        raise TypeError("no\nsuch type")

    numba_works.cache_clear()
    monkeypatch.setattr("ltr.kernels.compile.exp", broken)
    monkeypatch.setattr("ltr.kernels.dispatch.value_op", None)
    try:
        for _ in range(2):
            value, _ = value_and_gradient(losses.ranknet_loss, *random_lists(0, torch.float64))
    finally:
        numba_works.cache_clear()
    assert value.isfinite().all()
    (told,) = caplog.messages
    assert "plain path" in told
    assert "\n" not in told


SLOPES = """
import numpy as np
from ltr.kernels.ranks import soft_rank_lists

scores, weights = np.random.default_rng(0).normal(size=(2, 8, 40))
found, lists, mask = np.zeros((2, 8, 40)), np.arange(8), np.ones((8, 40), dtype=bool)
for laplace in (False, True):
    soft_rank_lists(lists, scores, mask, 0.1, laplace, weights, True, found[int(laplace)])
print(found.tobytes().hex())
"""


@pytest.mark.slow
def test_code_from_the_disk_gives_the_bits_of_the_process_that_compiled_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):  # the first keeps its code on the disk
        kept = processes.run(SLOPES)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    env["NUMBA_CACHE_DIR"] = str(tmp_path / "file")  # no folder: it compiles
    compiled = subprocess.check_output([sys.executable, "-c", SLOPES], env=env, text=True)
    assert kept.stdout == compiled


def slopes(loss: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the loss, and that of its squares added to it."""
    scores = given[0].clone().requires_grad_()
    torch.manual_seed(0)
    values = loss(scores, *given[1:])
    (gradient,) = torch.autograd.grad(values.sum(), scores, create_graph=True)
    (penalised,) = torch.autograd.grad(values.sum() + 10 * gradient.square().sum(), scores)
    return gradient.detach(), penalised


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), [*EVERY, MIXED])
def test_a_penalty_of_the_gradient_counts_on_any_path(
    name: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, given = bound(name, knobs), ragged()
    if name == "plrank" or "targets" in knobs:
        with pytest.raises(
            NotImplementedError, match=r"no second derivative.*without create_graph"
        ):
            slopes(loss, *given)
        return
    gradient, found = slopes(loss, *given)
    plain(monkeypatch)
    expected = slopes(loss, *given)
    torch.testing.assert_close((gradient, found), expected, atol=1e-11, rtol=1e-9)


# One row for each loss and each of the ways in which it computes.
OF_FUNC = [
    *[(name, knobs) for name, knobs in EVERY if not {"k", "relevant", "levels"} & knobs.keys()],
    *[(name, {"k": 3}) for name in ("neuralndcg", "lambdarank", "lambdaloss ndcg1", "neuralmrr")],
    *[("distil", {"cost": cost, "alpha": 0.3}) for cost in ("listnet", "lambdarank")],
    MIXED,
]
DRAWS = {"listmle", "p_listmle", "plrank"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # of PyTorch itself
@pytest.mark.parametrize(("name", "knobs"), OF_FUNC)
def test_torch_func_gives_the_derivatives_of_autograd(name: str, knobs: dict[str, Any]) -> None:
    (scores, labels, mask), loss = ragged(), bound(name, knobs)
    twice = name != "plrank" and "isotonic" not in knobs.values()
    draws = name in DRAWS or "stochastic" in knobs or "listmle" in knobs.get("parts", ())
    random = {"randomness": "same"} if draws else {}

    def total(scores: Tensor) -> Tensor:
        torch.manual_seed(0)
        return loss(scores, labels, mask).sum()

    leaf, direction = scores.clone().requires_grad_(), scores.sin() + 0.3
    (gradient,) = torch.autograd.grad(total(leaf), leaf)
    near = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
    near(torch.func.grad(total)(scores), gradient)
    near(torch.func.jacfwd(total, **random)(scores), gradient)
    along = (gradient * direction).sum()
    near(torch.func.jvp(total, (scores,), (direction,))[1], along)
    with forward_ad.dual_level():
        near(forward_ad.unpack_dual(total(forward_ad.make_dual(scores, direction)))[1], along)
    batch = torch.stack([scores, -scores])
    if not random:
        each = torch.stack([loss(one, labels, mask) for one in batch])
        near(torch.func.vmap(lambda one: loss(one, labels, mask))(batch), each)
    else:
        with pytest.raises(NotImplementedError, match=r"^this loss draws .*randomness='same'"):
            torch.func.vmap(total)(batch)

    def of_list(*one: Tensor) -> Tensor:
        return loss(*(given.unsqueeze(0) for given in one)).squeeze(0)

    drawn = {"randomness": "different"} if random else {}
    found = torch.func.vmap(torch.func.grad(of_list), **drawn)(scores, labels, mask)
    if random:
        assert found.isfinite().all()
    else:
        near(found, gradient)
    if twice:
        torch.manual_seed(0)
        (slope,) = torch.autograd.grad(total(leaf), leaf, create_graph=True)
        (expected,) = torch.autograd.grad((slope * direction).sum() + 0 * leaf.sum(), leaf)
        hessian = torch.func.jacfwd(torch.func.jacrev(total), **random)(scores)
        near((hessian * direction).sum((-2, -1)), expected)
        return
    ways = torch.func.jacrev, partial(torch.func.jacfwd, randomness="same")
    for outer, inner in itertools.product(ways, repeat=2):
        with pytest.raises(NotImplementedError, match=r"no second derivative: take the first"):
            outer(inner(total))(scores)


@pytest.mark.slow
def test_ranks_of_a_long_list_are_differentiable_twice() -> None:
    # its recursion is computed in parts, and again for the gradient
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights, mask = scores.sin().unsqueeze(-1), torch.ones(1, 40, dtype=torch.bool)

    def value(scores: Tensor) -> Tensor:
        return (rank_distribution(scores, mask) * weights).sum()

    assert torch.autograd.gradgradcheck(value, scores.requires_grad_(), fast_mode=True)


def test_the_values_may_be_changed_in_place() -> None:
    scores, labels, mask = ragged()
    loss = losses.ranknet_loss
    expected, given = slopes(loss, scores, labels, mask)[0], scores.clone().requires_grad_()
    loss(given, labels, mask).mul_(2).sum().backward()
    torch.testing.assert_close(given.grad, 2 * expected)


def test_attention_refuses_a_second_derivative() -> None:
    packed, _, values = lists()
    items = packed.pack(values).requires_grad_()
    attended = attend(items, packed, heads=1, rate=0.0)
    with pytest.raises(NotImplementedError, match=r"no second derivative.*model=mlp"):
        torch.autograd.grad(attended.sum(), items, create_graph=True)
