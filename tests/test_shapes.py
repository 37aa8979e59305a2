"""What comes in another shape than ``[batch, list]``, or goes out in another than ``[batch]``."""

import inspect
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose, make_lists
from folders import write_folder
from jaxtyping import config as checking
from made_trees import tensors
from ragged import NAMES
from torch import Tensor

import ltr.losses
import ltr.metrics
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.metrics import parse_metric
from ltr.metrics.spec import METRICS
from ltr.models import MLP
from ltr.models.rounds import LossObjective
from ltr.scorers.parts import make_settings
from ltr.training.evaluation import predict
from ltr.training.trainer import TrainingStep

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
    ((SCORES[..., None], LABELS, MASK), "scores: .*[1, 5, 1]"),
    ((SCORES[0], LABELS[0], MASK[0]), "scores: .*[5] .*[1, list]"),
    ((SCORES, LABELS[:, :4], MASK), "labels: .*[1, 4].*[1, 5]"),
    ((SCORES, LABELS.repeat(3, 1), MASK), "labels: .*[3, 5].*[1, 5]"),
    ((SCORES, LABELS, MASK[:, :1]), "mask: .*[1, 1].*[1, 5]"),
    ((SCORES, LABELS, MASK.byte()), "mask: .*uint8.*torch.bool"),
    ((SCORES, LABELS.to("meta"), MASK), "labels: .*meta.*cpu"),
    ((SCORES, LABELS.tolist(), MASK), "labels: .*list"),
]


def in_one_line(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", r"\[").replace("]", r"\]")) as error:
        call()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_loss_and_metric_says_which_of_its_tensors_is_wrong(function) -> None:
    for given, said in WRONG:
        in_one_line(lambda given=given: function(*given), said)
    assert function(SCORES, LABELS, MASK).shape[0] == 1
    assert [*inspect.signature(function).parameters][:3] == ["scores", "labels", "mask"]
    assert pickle.loads(pickle.dumps(function)) is function


# A loss of one's own: what it is to return


def of_items(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return (scores - labels).masked_fill(~mask, 0).square()


def scalar(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return of_items(scores, labels, mask).mean()


def number(scores: Tensor, labels: Tensor, mask: Tensor) -> float:
    return scalar(scores, labels, mask).item()


@pytest.mark.parametrize(
    ("loss", "came"), [(scalar, "[]"), (of_items, r"[3, \d+]"), (number, "float")]
)
def test_a_loss_of_ones_own_is_refused_at_the_first_batch(loss, came) -> None:
    data, model = tensors(make_lists([4, 2, 5])), MLP(5, hidden_sizes=[3])
    settings = make_settings(compose("batch_size=64"))
    stepper = TrainingStep(model, loss, torch.optim.SGD(model.parameters()), settings)
    batch = data.batch(np.arange(3))
    in_one_line(lambda: stepper(batch), f"the loss returned .*{came}.*one value per list.*[3]")
    objective = LossObjective(loss, data)
    in_one_line(lambda: objective(np.zeros(11)), f"the loss returned .*{came}.*one value per list")


@pytest.mark.slow
def test_and_before_data_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{__name__}.scalar"
    write_folder(tmp_path, {"configs/loss/own.yaml": f"_target_: {name}\n_partial_: true\n"})
    monkeypatch.chdir(tmp_path)
    for given, said in (("loss=own", "the loss"), (f"metrics=[{name}]", name)):
        cfg = compose(given)
        in_one_line(lambda cfg=cfg: build(cfg), f"{said} returned .*one value per list")


@pytest.mark.parametrize(
    ("returned", "came"),
    [
        (lambda scores: scores[..., None], r"[3, \d+, 1]"),
        (lambda scores: scores[:, :1], "[3, 1]"),  # which was broadcast
        (lambda scores: (scores, 1), "tuple"),
    ],
)
def test_a_model_of_ones_own_returns_one_score_for_each_item(returned, came) -> None:
    class Own(torch.nn.Linear):
        def forward(self, features, mask, ranks=None):
            return returned(super().forward(features)[..., 0])

    data, said = tensors(make_lists([4, 2, 5])), f"the model returned .*{came}.*one score per item"
    with torch.inference_mode():
        in_one_line(lambda: predict(Own(5, 1), data), said)


def test_a_teacher_and_a_metric_of_ones_own_in_another_shape_are_named() -> None:
    teacher = partial(ltr.losses.mix_loss, parts={"distil": 1}, teacher=LABELS[0])
    in_one_line(lambda: teacher(SCORES, LABELS, MASK), "teacher: .*[5]")
    lists = [given.repeat(3, 1) for given in (SCORES, LABELS, MASK)]
    for function in (scalar, number, lambda *given: of_items(*given).sum(-1).numpy()):
        metric = ltr.metrics.Metric("mine", own=function)
        in_one_line(lambda metric=metric: metric(*lists), "mine returned .*[3]")
    assert parse_metric("ndcg@5")(SCORES, LABELS, MASK).shape == (1,)
