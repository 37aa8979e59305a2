"""Steps: what is read late, compiled or of fixed shape is what the plain way gives."""

from typing import Any

import pytest
import torch
from some_steps import LISTS, SETTINGS
from test_trainer import assert_same_run, count_calls, model_of, train
from torch.utils._python_dispatch import TorchDispatchMode

from ltr.data.batches import ItemTensors, train_batches
from ltr.data.transforms import no_transform
from ltr.errors import TrainingError
from ltr.losses import lambdarank_loss
from ltr.models import MLP
from ltr.training.network import Step


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the figures of four steps together, as on a GPU those of fifty."""
    original = Step.__init__

    def init(self: Step, *args: Any) -> None:
        original(self, *args)
        assert self.window == 1, "on the CPU every step is read at once"
        self.window = 4

    monkeypatch.setattr(Step, "__init__", init)


@pytest.mark.slow
def test_reading_late_changes_nothing(tiny, tmp_path, request) -> None:
    args = (*tiny, "loss=listnet", "model.dropout=0.3", "clip=0.5")
    train(tmp_path / "plain", *args)
    request.getfixturevalue("late")
    train(tmp_path / "late", *args)
    assert_same_run(tmp_path / "plain", tmp_path / "late")


@pytest.mark.slow
def test_read_late_a_bad_loss_still_changes_no_weight(tiny, tmp_path, monkeypatch, request) -> None:
    args = (*tiny, "loss=listnet")
    found = []
    for folder in ("plain", "late"):
        with monkeypatch.context() as patch:
            kept = model_of(patch)
            count_calls(patch, 6, lambda value: value * float("nan"))
            message = "epoch 2, step 1: the loss or its gradient is not finite .* query id q"
            with pytest.raises(TrainingError, match=message) as error:
                train(tmp_path / folder, *args)
        found.append((str(error.value), kept["model"].state_dict()))
        if folder == "plain":
            request.getfixturevalue("late")
    assert found[0][0] == found[1][0]
    assert all(torch.equal(found[0][1][key], found[1][1][key]) for key in found[0][1])


class Waits(TorchDispatchMode):
    """The operators for whose result the host waits."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in ("_local_scalar_dense", "nonzero", "is_nonzero", "equal"):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def test_a_step_on_a_gpu_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)  # no kernel of the CPU
    model, data = MLP(LISTS.width, hidden_sizes=(4,)), ItemTensors(LISTS, no_transform(LISTS))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    stepper = Step(model, lambdarank_loss, optimizer, SETTINGS)
    stepper.window = 50  # as on a GPU
    batches = train_batches(data, batch_size=3, list_size=8, seed=0, epoch=0, fixed=True)
    stepper(next(batches))  # makes the state of the optimiser
    with Waits() as waits:
        stepper(next(batches))
    assert waits.found == []
    with waits:
        stepper._figures[0].sum().item()
    assert waits.found == ["_local_scalar_dense"]
