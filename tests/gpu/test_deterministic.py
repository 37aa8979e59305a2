"""Numbers on a GPU: deterministic=true and precision=tf32, how far they reach."""

import os
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from ltr import losses
from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError
from ltr.metrics import ordering
from ltr.metrics.ordering import running_sums
from ltr.models import MLP
from ltr.training.device import deterministic
from ltr.training.evaluation import predict
from tests.helpers.runs import assert_same_run, train
from tests.helpers.some_steps import LISTS, SETTINGS, figures

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is there, and was not used yet."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)
    monkeypatch.setenv(WORKSPACE, "")  # it is put back after the test
    monkeypatch.delenv(WORKSPACE)


@pytest.mark.slow
def test_deterministic_sets_up_a_gpu_and_restores_everything(gpu) -> None:
    with deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled()
        assert WORKSPACE not in os.environ
    with deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ[WORKSPACE] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()


def test_deterministic_refuses_a_used_gpu_without_a_workspace(gpu, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    with (
        pytest.raises(ConfigError, match=rf"^deterministic=true: .* set {WORKSPACE}=:4096:8"),
        deterministic(True),
    ):
        pass
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with deterministic(True):
        assert os.environ[WORKSPACE] == ":16:8"


@pytest.mark.parametrize("items", [1, 2, 3, 8, 13])
def test_sums_by_doubling_are_running_sums(items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(3, items, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, items, dtype=torch.float64)

    def gradient(sums: Tensor) -> Tensor:
        return torch.autograd.grad((sums * weights).sum(), values)[0]

    expected = running_sums(values)
    doubled = ordering._sums_by_doubling(values)
    torch.testing.assert_close(doubled, expected, atol=1e-14, rtol=0)
    torch.testing.assert_close(gradient(doubled), gradient(expected), atol=1e-14, rtol=0)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("loss", ["neuralndcg", "lambdarank", "listnet"])
def test_deterministic_runs_on_a_gpu_are_the_same_bits(tiny, tmp_path, loss, monkeypatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":4096:8")  # this process may have used the GPU
    args = (*tiny, f"loss={loss}", "model.dropout=0.3", "device=cuda", "deterministic=true")
    for name in ("one", "two"):
        train(tmp_path / name, *args)
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_tf32_is_allowed_in_steps_and_prediction_alone(monkeypatch) -> None:
    data = ItemTensors(LISTS, no_transform(LISTS))
    tf32_allowed: list[bool] = []
    forward = MLP.forward

    def record(_: Any = None) -> None:
        tf32_allowed.append(torch.backends.cuda.matmul.allow_tf32)

    def watched(*args: Any) -> Tensor:
        scores = forward(*args)
        record()
        if scores.requires_grad:
            scores.register_hook(record)
        return scores

    monkeypatch.setattr(MLP, "forward", watched)
    steps_by_precision = []
    for precision in ("float32", "tf32"):
        make = partial(MLP, LISTS.width, hidden_sizes=(4,))
        steps = figures(make, losses.listnet_loss, replace(SETTINGS, precision=precision))
        assert len(tf32_allowed) == 2 * len(steps) > 0, "forward and backward"
        predict(make().requires_grad_(False), data, precision=precision)
        assert {*tf32_allowed} == {precision == "tf32"}
        assert not torch.backends.cuda.matmul.allow_tf32
        tf32_allowed.clear()
        steps_by_precision.append(steps)
    assert torch.equal(*steps_by_precision), "on a CPU there is no TF32"
