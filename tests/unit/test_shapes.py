"""Tensors of other shapes: what losses, metrics and models take and return."""

import inspect
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import config as checking
from torch import Tensor

import ltr.losses
import ltr.metrics
from ltr.boosting import LossObjective
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.metrics import parse_metric
from ltr.metrics.spec import METRICS
from ltr.models import MLP
from ltr.parts.components import build_settings
from ltr.training.evaluation import predict
from ltr.training.trainer import TrainingStep
from tests.helpers.folders import write_folder
from tests.helpers.made_lists import make_lists
from tests.helpers.made_trees import tensors
from tests.helpers.ragged import NAMES
from tests.helpers.runs import compose

FUNCTIONS = [getattr(ltr.losses, name) for name in NAMES]
FUNCTIONS += [getattr(ltr.metrics, name) for name in METRICS]


@pytest.fixture(autouse=True)
def _as_in_production() -> Iterator[None]:
    """Jaxtyping, which checks shapes in tests alone, is off."""
    checking.update("jaxtyping_disable", True)
    yield
    checking.update("jaxtyping_disable", False)


SCORES = torch.tensor([[0.3, -1.0, 2.0, 0.1, 1.0]])
LABELS = torch.tensor([[0.0, 2.0, 1.0, 0.0, 1.0]])
MASK = torch.tensor([[True, True, True, True, False]])
WRONG = [
    ((SCORES[..., None], LABELS, MASK), "scores: .*got .*[1, 5, 1]"),
    ((SCORES[0], LABELS[0], MASK[0]), "scores: .*[1, list].* got .*[5]"),
    ((SCORES, LABELS[:, :4], MASK), "labels: expected .*[1, 5].* got .*[1, 4]"),
    ((SCORES, LABELS.repeat(3, 1), MASK), "labels: expected .*[1, 5].* got .*[3, 5]"),
    ((SCORES, LABELS, MASK[:, :1]), "mask: expected .*[1, 5].* got .*[1, 1]"),
    ((SCORES, LABELS, MASK.byte()), "mask: expected .*torch.bool.* got .*uint8"),
    ((SCORES, LABELS.to("meta"), MASK), "labels: expected .*cpu.* got .*meta"),
    ((SCORES, LABELS.tolist(), MASK), "labels: .*got .*list"),
]


def assert_refused_in_one_line(call: Callable[[], object], message: str) -> None:
    pattern = message.replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(ConfigError, match=pattern) as error:
        call()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("function", FUNCTIONS)
def test_losses_and_metrics_name_the_tensor_of_a_wrong_shape(function) -> None:
    for arguments, message in WRONG:
        assert_refused_in_one_line(lambda arguments=arguments: function(*arguments), message)
    assert function(SCORES, LABELS, MASK).shape[0] == 1
    assert [*inspect.signature(function).parameters][:3] == ["scores", "labels", "mask"]
    assert pickle.loads(pickle.dumps(function)) is function


# Losses that return another shape than one value per list


def item_losses(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return (scores - labels).masked_fill(~mask, 0).square()


def scalar(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return item_losses(scores, labels, mask).mean()


def number(scores: Tensor, labels: Tensor, mask: Tensor) -> float:
    return scalar(scores, labels, mask).item()


@pytest.mark.parametrize(
    ("loss", "shape"), [(scalar, "[]"), (item_losses, r"[3, \d+]"), (number, "float")]
)
def test_step_and_loss_objective_refuse_a_loss_of_a_wrong_shape(loss, shape) -> None:
    data = tensors(make_lists([4, 2, 5]))
    model = MLP(5, hidden_sizes=[3])
    settings = build_settings(compose("batch_size=64"))
    stepper = TrainingStep(model, loss, torch.optim.SGD(model.parameters()), settings)
    batch = data.batch(np.arange(3))
    message = f"the loss returned .*{shape}.*one value per list"
    assert_refused_in_one_line(lambda: stepper(batch), f"{message}.*[3]")
    objective = LossObjective(loss, data)
    assert_refused_in_one_line(lambda: objective(np.zeros(11)), message)


@pytest.mark.slow
def test_build_refuses_a_loss_or_metric_of_a_wrong_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{__name__}.scalar"
    write_folder(tmp_path, {"configs/loss/own.yaml": f"_target_: {name}\n_partial_: true\n"})
    monkeypatch.chdir(tmp_path)
    for override, source in (("loss=own", "the loss"), (f"metrics=[{name}]", name)):
        cfg = compose(override)
        message = f"{source} returned .*one value per list"
        assert_refused_in_one_line(lambda cfg=cfg: build(cfg), message)


@pytest.mark.parametrize(
    ("reshape", "shape"),
    [
        (lambda scores: scores[..., None], r"[3, \d+, 1]"),
        (lambda scores: scores[:, :1], "[3, 1]"),  # which was broadcast
        (lambda scores: (scores, 1), "tuple"),
    ],
)
def test_predict_refuses_a_model_of_a_wrong_shape(reshape, shape) -> None:
    class WrongShape(torch.nn.Linear):
        def forward(self, features, mask, ranks=None):
            return reshape(super().forward(features)[..., 0])

    data = tensors(make_lists([4, 2, 5]))
    message = f"expected one score per item from the model.*{shape}"
    with torch.inference_mode():
        assert_refused_in_one_line(lambda: predict(WrongShape(5, 1), data), message)


def test_teachers_and_metrics_of_a_wrong_shape_are_named() -> None:
    teacher = partial(ltr.losses.mix_loss, parts={"distil": 1}, teacher=LABELS[0])
    assert_refused_in_one_line(lambda: teacher(SCORES, LABELS, MASK), "teacher: .*[5]")
    lists = [tensor.repeat(3, 1) for tensor in (SCORES, LABELS, MASK)]
    for function in (scalar, number, lambda *tensors: item_losses(*tensors).sum(-1).numpy()):
        metric = ltr.metrics.Metric("mine", own=function)
        assert_refused_in_one_line(lambda metric=metric: metric(*lists), "mine returned .*[3]")
    assert parse_metric("ndcg@5")(SCORES, LABELS, MASK).shape == (1,)
