"""Losses by the compiled loops of the CPU, against the same formula on whole tensors."""

import inspect
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import processes
import pytest
import torch
from ragged import random_lists, value_and_gradient

from ltr import losses
from ltr.kernels.dispatch import numba_works

NAMES = [name for name in vars(losses) if name.endswith("_loss")]
CUT: list[dict[str, Any]] = [{"k": 3}, {"k": 3, "pairs": "both"}, {"sigma": 4.0}]
NEURAL: list[dict[str, Any]] = [
    *({}, {"k": 1}, {"k": 5, "temperature": 0.1}, {"temperature": 1e-3}, {"temperature": 30.0}),
    *({"max_iter": 1}, {"max_iter": 2, "tol": 0.0}, {"tol": 0.0}, {"tol": 0.1}),
    {"max_iter": 200, "tol": 1e-12, "temperature": 0.3},
]
CASES: dict[str, list[dict[str, Any]]] = {
    "ranknet_loss": [{}, *CUT],
    "lambdarank_loss": [{}, *CUT],
    "lambda_loss": [
        {"variant": variant, **knobs}
        for variant in ("ndcg1", "ndcg2", "ndcg2++")
        for knobs in ({}, *CUT, {"mu": 2.5})
    ],
    "ranksvm_loss": [{}, {"squared": True}, {"pair_weight": "ndcg_beta"}],
    "rankboost_loss": [{}, {"pair_weight": "ndcg_beta"}],
    "approx_ndcg_loss": [{}, {"k": 4}, {"temperature": 0.1}],
    "lap_ndcg_loss": [{}, {"k": 4}, {"temperature": 0.1}],
    "svm_map_loss": [{}, {"relevant": 3}],
    "soft_ndcg_loss": [{}, {"k": 1}, {"k": 4, "sigma": 0.3}, {"discount": "linear"}],
    "neural_ndcg_loss": [
        {"transposed": transposed, **knobs} for transposed in (False, True) for knobs in NEURAL
    ],
    "neural_map_loss": [{}, {"k": 4, "relevant": 3}],
    "neural_mrr_loss": [{}],
    "neural_err_loss": [{}, {"temperature": 0.1}],
    "neural_precision_loss": [{}, {"k": 4, "max_iter": 3}],
    "ot_ndcg_loss": [{}, {"k": 4, "temperature": 0.5}],
    "listmle_loss": [{}],
    "p_listmle_loss": [{}, {"weight": "log2"}],
    "softsort_ndcg_loss": [
        *({}, {"k": 4}, {"temperature": 0.1}, {"max_iter": 1}, {"max_iter": 300, "tol": 1e-3}),
    ],
}
cases = pytest.mark.parametrize(
    ("name", "knobs"), [(name, knobs) for name, several in CASES.items() for knobs in several]
)


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every loss takes its plain path."""
    monkeypatch.setattr("ltr.kernels.dispatch.kernels_apply", lambda scores: False)
    monkeypatch.setattr("ltr.kernels.dispatch.numba_works", lambda: False)
    monkeypatch.setattr("ltr.kernels.neural_dcg.numba_works", lambda: False)


@pytest.mark.slow
@cases
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_both_paths_agree(
    name: str, knobs: dict[str, Any], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = partial(getattr(losses, name), **knobs)
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


PAIRWISE = ("ranknet_loss", "lambdarank_loss", "lambda_loss", "ranksvm_loss", "rankboost_loss")


@pytest.mark.parametrize("path", ["kernels", "plain", "off the CPU"])
def test_differences_beyond_the_largest_float_are_no_nan(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, mask = torch.tensor([[2.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    alike, near = [3e38, 3e38, -3e38], [60.0, 60.0, -60.0]  # of the same costs
    right, wrong = [3e38, 1.0, -3e38], [-3e38, 1.0, 3e38]
    apart = [1e26, 1.0, -1e26]  # where a cost overflows and no difference does
    cases = [(n, k) for n in PAIRWISE for k in CASES[n] if "sigma" not in k]
    cases += [("distil_loss", {"cost": "lambdarank"})]
    cases += [("listmle_loss", {})] if path == "kernels" else []
    for name, knobs in cases:
        with monkeypatch.context() as patch:
            if path != "kernels":
                plain(patch)
            if path == "off the CPU":
                patch.setattr(torch.compiler, "is_compiling", lambda: True)
            loss = partial(getattr(losses, name), **knobs)
            (value, slope), (same, pushed), (least, flat), (less, level), (large, _) = (
                value_and_gradient(loss, torch.tensor([s]), labels, mask)
                for s in (alike, near, right, apart, wrong)
            )
        torch.testing.assert_close((value, slope), (same, pushed))
        assert large.item() > 1e38
        if knobs.get("variant") != "ndcg1":  # which has a cost for each order
            assert not torch.cat([least, less, *flat, *level]).any()


NUMBERS = {"temperature", "max_iter", "tol", "sigma", "mu"}  # which choose no other code
EVERY = [
    *((n, knobs) for n in NAMES for knobs in CASES.get(n, [{}]) if not knobs.keys() & NUMBERS),
    *(("rankprop_loss", {"targets": "isotonic"}), ("distil_loss", {"cost": "lambdarank"})),
]


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
            loss = partial(getattr(losses, name), **knobs)
            value, gradient = value_and_gradient(loss, scores, labels, mask)
        if value.isnan().tolist() != [False, True, True, True] or gradient[0].isnan().any():
            wrong.append((name, knobs, value))
    assert not wrong


def test_a_batch_of_no_lists_has_no_values() -> None:
    scores, labels, mask = torch.zeros(0, 5), torch.zeros(0, 5), torch.ones(0, 5, dtype=torch.bool)
    for name, knobs in EVERY:
        value, _ = value_and_gradient(partial(getattr(losses, name), **knobs), scores, labels, mask)
        assert value.shape == (0,)


SWITCHES = [("neural_ndcg_loss", {"stochastic": True}), ("soft_ndcg_loss", {"normalise": True})]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), [*EVERY, *SWITCHES])
def test_nothing_waits_for_a_number(name: str, knobs: dict[str, Any]) -> None:
    if name == "svm_ndcg_loss" or knobs == {"targets": "isotonic"}:
        return  # they are found on the CPU
    # On the meta device there are no numbers: whoever asks for one, as .item() does, or for a shape
    # that depends on them, as indexing by a mask does, is told so. On a GPU it would wait.
    scores, labels, mask = (x.to("meta") for x in random_lists(0, torch.float32))
    scores.requires_grad_()
    loss = getattr(losses, name)
    steps = {"max_iter": 2} if "max_iter" in inspect.signature(loss).parameters else {}
    values = loss(scores, labels, mask, **knobs | steps)
    losses.mean_over_batch(values, labels, mask).backward()
    assert scores.grad is not None
    assert scores.grad.shape == scores.shape


COMPILED = """
import inspect, sys, torch
from functools import partial
from ragged import random_lists, value_and_gradient
from ltr import losses
data = random_lists(1, torch.float64, size=12)
called = set()

def backend(graph, _):
    parts = [part.graph for part in graph.modules() if isinstance(part, torch.fx.GraphModule)]
    called.update(str(node.target) for one in parts for node in one.nodes)
    return graph.forward

for name in sys.argv[1:]:
    called.clear()
    torch._dynamo.reset()  # all losses behind one decorator share its code
    loss = getattr(losses, name)
    if "max_iter" in inspect.signature(loss).parameters:
        loss = partial(loss, max_iter=2)  # the steps are unrolled
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    found, expected = value_and_gradient(compiled, *data), value_and_gradient(loss, *data)
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-9)
    by_operator = name in ("neural_ndcg_loss", "ot_ndcg_loss")
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
    done = processes.run(COMPILED, *CASES, env={"PYTHONPATH": paths})
    steps = [f"{name} 1 0" for name in ("listnet_loss", "lambdarank_loss", "neural_ndcg_loss")]
    assert done.stdout.splitlines() == [*CASES, *steps], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lambdarank_loss", "approx_ndcg_loss"])
def test_threads_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_lists(2, torch.float32, size=300)
    loss = getattr(losses, name)
    one = value_and_gradient(loss, *data)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    several = value_and_gradient(loss, *data)
    assert torch.equal(one[0], several[0])
    assert torch.equal(one[1], several[1])


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
import hashlib
import numpy as np
from ltr.kernels.ranks import soft_rank_lists

scores, weights = np.random.default_rng(0).normal(size=(2, 8, 40))
found = np.zeros((2, 2, 8, 40))
lists, mask = np.arange(8), np.ones((8, 40), dtype=bool)
for laplace in (False, True):
    for backward in (False, True):
        out = found[int(laplace), int(backward)]
        soft_rank_lists(lists, scores, mask, 0.1, laplace, weights, backward, out)
print(hashlib.sha256(found.tobytes()).hexdigest())
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
