"""deterministic=true: what it sets and puts back, and the same bits of two runs on a GPU."""

import os

import pytest
import torch
from test_trainer import assert_same_run, train
from torch import Tensor

from ltr.errors import ConfigError
from ltr.metrics import ordering
from ltr.metrics.ordering import running_sums
from ltr.training.device import deterministic

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is there, and was not used yet."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)
    monkeypatch.setenv(WORKSPACE, "")  # it is put back after the test
    monkeypatch.delenv(WORKSPACE)


def flags() -> tuple[bool, bool, bool]:
    cudnn = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark


def test_a_gpu_is_told_and_everything_is_put_back(gpu) -> None:
    before = flags()
    with deterministic(False):
        assert flags() == before
        assert WORKSPACE not in os.environ
    with deterministic(True):
        assert flags() == (True, True, False)
        assert os.environ[WORKSPACE] == ":4096:8"
    assert flags() == before


def test_a_gpu_that_was_used_is_refused_unless_its_workspace_is_set(gpu, monkeypatch) -> None:
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

    def slope(sums: Tensor) -> Tensor:
        return torch.autograd.grad((sums * weights).sum(), values)[0]

    plain, doubled = running_sums(values), ordering._sums_by_doubling(values)
    torch.testing.assert_close(doubled, plain, atol=1e-14, rtol=0)
    torch.testing.assert_close(slope(doubled), slope(plain), atol=1e-14, rtol=0)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("loss", ["neuralndcg", "lambdarank", "listnet"])
def test_two_runs_on_a_gpu_are_the_same_bits(tiny, tmp_path, loss, monkeypatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":4096:8")  # this process may have used the GPU
    args = (*tiny, f"loss={loss}", "model.dropout=0.3", "device=cuda", "deterministic=true")
    for name in ("one", "two"):
        train(tmp_path / name, *args)
    assert_same_run(tmp_path / "one", tmp_path / "two")
