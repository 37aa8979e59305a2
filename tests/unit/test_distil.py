"""Runs that learn from another run: its scores (``loss=distil``), or its weights."""

import json
import logging
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ltr.boosting.objective import LossObjective
from ltr.cli.keys import resolved
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.errors import CheckpointError, ConfigError
from ltr.experiment.build import Experiment, build
from ltr.experiment.other_run import OtherRun
from ltr.lab.tables import runs as runs_module
from ltr.lab.tables.spec import read_table
from ltr.lab.tables.table import make_table
from ltr.losses import distil_loss, lambdarank_loss, listnet_loss, mix_loss
from ltr.models import Linear
from ltr.parts.scorer import Scorer
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.hooks import OnEpoch
from ltr.training.interruption import Interrupted
from ltr.training.trainer import TrainingStep
from tests.helpers.folders import refused
from tests.helpers.made_lists import make_lists
from tests.helpers.made_table import train_here, write_data
from tests.helpers.orders import table_of
from tests.helpers.runs import CHOICES, assert_same_run, compose, identity, run, train
from tests.helpers.some_steps import SETTINGS


@pytest.mark.parametrize(
    ("cost", "knobs", "labelled"),
    [
        ("listnet", {}, listnet_loss),
        ("lambdarank", {}, lambdarank_loss),
        ("lambdarank", {"gain": "linear"}, partial(lambdarank_loss, gain="linear")),
    ],
)
def test_distil_loss_mixes_teacher_and_labels_by_alpha(cost, knobs, labelled) -> None:
    generator = torch.Generator().manual_seed(1)
    scores, teacher = torch.randn(2, 2, 5, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    labels = torch.tensor([[0.0, 2, 1, 0, 0], [1.0, 0, 0, 2, 0]], dtype=torch.float64)
    teacher = teacher.masked_fill(~mask, torch.nan)  # junk on the padding
    from_teacher = distil_loss(scores, teacher, mask, cost=cost)  # its scores as labels
    loss = distil_loss(scores, labels, mask, teacher=teacher, cost=cost, alpha=0.25, **knobs)
    torch.testing.assert_close(loss, 0.25 * from_teacher + 0.75 * labelled(scores, labels, mask))
    mixed = mix_loss(
        scores, labels, mask, teacher=teacher, parts={"distil": 0.25, "listnet": 2.0},
        knobs={"distil": {"cost": cost}},
    )  # fmt: skip
    expected = 0.25 * from_teacher + 2 * listnet_loss(scores, labels, mask)
    torch.testing.assert_close(mixed, expected)


def test_train_batches_keep_teacher_scores_with_their_items() -> None:
    lists = make_lists([9, 4, 7, 12])
    lists = replace(lists, teacher=lists.features[:, 1].copy())  # any column tells the item
    bag = lists.subset(np.array([0, 2, 2, 3]))
    data = ItemTensors(bag, no_transform(bag))
    for fixed in (False, True):
        settings = {"batch_size": 3, "list_size": 6, "seed": 1, "epoch": 0, "fixed": fixed}
        for batch in train_batches(data, **settings):
            assert torch.equal(batch.teacher, batch.features[..., 1])


def test_networks_and_trees_read_the_teacher() -> None:
    lists = make_lists([5, 3])
    data = ItemTensors(replace(lists, teacher=lists.features[:, 1].copy()), no_transform(lists))
    teachers = []

    def loss(scores, labels, mask, *, teacher):
        teachers.append(teacher[mask].tolist())
        return (scores * teacher).masked_fill(~mask, 0).sum(-1)

    model = Linear(5)
    stepper = TrainingStep(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), SETTINGS)
    stepper(data.batch(np.array([0, 1])))
    LossObjective(loss, data).gradient(np.zeros(8))
    assert sorted(teachers[0]) == sorted(teachers[1]) == sorted(lists.features[:, 1].tolist())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss=distil"], "teacher=RUN"),
        (["loss=mix", "loss.parts.distil=1"], "teacher=RUN"),
        (["loss=listnet", "teacher=outputs/x"], "loss=distil"),
        (["loss=mix", "teacher=outputs/x"], "loss=distil"),
        (["loss=distil", "loss.alpha=2.0", "teacher=outputs/x"], "alpha=2.0"),
    ],
)
def test_build_requires_loss_and_teacher_together(overrides, message) -> None:
    assert message in refused(lambda: build(compose(*overrides)), ConfigError)


@pytest.fixture
def student(tiny: list[str], tmp_path: Path) -> list[str]:
    """Train a teacher; return the overrides of a run that learns from it."""
    data = [
        override for override in tiny if "model." not in override and "fc_sizes" not in override
    ]
    linear = [*data, "model=linear"]
    train(tmp_path / "teacher", *linear, "epochs=2", "loss=listnet", "transform=standardise")
    return [*linear, "loss=distil", f"teacher={tmp_path}/teacher"]


def transform_train(experiment: Experiment, lists: Lists) -> Lists:
    """Return the training lists after all that changes them."""
    for transform in experiment.list_transforms:
        lists = transform(lists)
    return lists


@pytest.mark.slow
def test_teacher_scores_train_by_its_own_transform(student, tmp_path) -> None:
    experiment = build(compose(*student, "transform=none"))
    lists = experiment.dataset.split("train")
    taught = transform_train(experiment, lists)
    assert {field.name for field in fields(Lists)} == {field.name for field in fields(taught)}
    best = load_checkpoint(tmp_path / "teacher" / "best.pt")
    mean, scale = (np.array(best["transform"][key], np.float32) for key in ("mean", "scale"))
    (weight,) = (tensor for tensor in best["model"].values() if tensor.dim() == 2)
    by_hand = ((lists.features - mean) * scale) @ weight.numpy()[0]
    scores_of_lists = np.split(by_hand, lists.offsets[1:-1])
    squares = [(scores - scores.mean()) ** 2 for scores in scores_of_lists]
    deviation = np.sqrt(np.concatenate(squares).mean())
    expected = np.diff(by_hand) / deviation
    np.testing.assert_allclose(np.diff(taught.teacher), expected, rtol=1e-4, atol=1e-4)

    narrow = Lists(
        lists.features[:, :3], lists.labels, lists.offsets, lists.qids, digest=lists.digest
    )  # of the same items
    assert "5 features" in refused(lambda: transform_train(experiment, narrow))


@pytest.mark.slow
def test_identity_and_resume_depend_on_the_teacher(student, tmp_path) -> None:
    teacher = tmp_path / "teacher" / "best.pt"
    identity_before = identity(compose(*student))
    train(tmp_path / "uninterrupted", *student)

    def stop(epoch, row):
        if epoch == 1:
            raise Interrupted(2)

    (tmp_path / "cut").mkdir()
    with pytest.raises(Interrupted):
        run(compose(*student), tmp_path / "cut", CHOICES, hooks=[OnEpoch(stop)])
    train(tmp_path / "cut", *student, f"resume={tmp_path}/cut")
    assert_same_run(tmp_path / "uninterrupted", tmp_path / "cut")

    content = load_checkpoint(teacher)
    content["model"] = {name: tensor + 1 for name, tensor in content["model"].items()}
    (teacher.parent / "results.json").unlink()  # it would say that the file is another one
    save_checkpoint(teacher, content)
    assert identity(compose(*student)) != identity_before
    message = refused(lambda: train(tmp_path / "cut", *student, f"resume={tmp_path}/cut"))
    assert "the files of teacher have changed" in message
    nowhere = compose(*student[:-1], f"teacher={tmp_path}/nowhere")
    assert "nowhere" in refused(lambda: identity(nowhere), CheckpointError)


TABLE = """
title: Taught
settings: [model=linear, epochs=2, dataset=letor]
folds: all
metrics: [ndcg@5]
conventions: [paper]
published: {}
rows:
  student: [loss=rmse]
  pupil: [loss=distil, teacher=big one]
  big one: [loss=listnet]
"""


def test_table_rows_include_their_teacher(tmp_path) -> None:
    (tmp_path / "taught.yaml").write_text(TABLE)
    table = read_table(f"{tmp_path}/taught.yaml")
    assert list(table.select_rows(["pupil"]).rows) == ["pupil", "big one"]
    chained = TABLE.replace("big one: [loss=listnet]", "big one: [loss=distil, teacher=student]")
    (tmp_path / "taught.yaml").write_text(chained)
    message = refused(lambda: read_table(f"{tmp_path}/taught.yaml"), ConfigError)
    assert "pupil: teacher: unknown name big one" in message


@pytest.mark.slow
def test_table_trains_teachers_first(tmp_path, monkeypatch) -> None:
    (tmp_path / "taught.yaml").write_text(TABLE)
    waves = []

    def record_and_train(runs, *args):
        waves.append([run.label for run in runs])
        return train_here(runs, *args)

    monkeypatch.setattr(runs_module, "execute", record_and_train)
    arguments = [
        f"table={tmp_path}/taught.yaml", "seeds=2", f"output_dir={tmp_path}/out",
        *write_data(tmp_path),
    ]  # fmt: skip
    assert make_table(table_of(arguments))
    assert waves == [["student"] * 2 + ["big one"] * 2, ["pupil"] * 2]
    learned = {}
    for results in (tmp_path / "out" / "runs").glob("*/results.json"):
        protocol = json.loads(results.read_text())["protocol"]
        if protocol["teacher"] is not None:
            learned[protocol["seed"]] = Path(protocol["teacher"]).name
    assert {seed: f"seed{seed}" in name for seed, name in learned.items()} == {1: True, 2: True}
    assert make_table(table_of(arguments))  # all runs are finished
    assert len(waves) == 2


COLUMNS = ("dataset=table", "dataset.query=query", "dataset.label=label")
CUT = (*COLUMNS, "dataset.path=a.csv")


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        (("dataset=mq2008",), ("dataset=mq2008", "dataset.fold=3"), "set dataset.fold="),
        (CUT, (*CUT, "dataset.seed=1", "dataset.features=[a]"), "set dataset.seed=0, as in"),
        (CUT, (*CUT, "dataset.fractions=[0.6,0.2,0.2]"), "set dataset.fractions=null, as"),
        (("dataset=mq2008",), ("dataset=mq2007", "dataset.fold=3"), None),
        (
            CUT,
            (*COLUMNS, "dataset.path=b.csv", "dataset.seed=1"),
            None,
        ),
        ((), ("dataset.seed=1",), None),  # synthetic lists are drawn, not cut
    ],
)
def test_init_from_refuses_a_run_that_may_have_seen_test(theirs, ours, message, caplog) -> None:
    train = make_lists([3, 4])
    config = compose(*theirs)
    config.dataset.cache_dir = None
    node: Any = {"dataset": dict(config.dataset)}
    dataset = resolved(compose(*ours).dataset)
    initial = OtherRun("init_from", "outputs/x", load=lambda: None, dataset=dataset)

    def check(digest: str) -> None:
        scorer = Scorer(torch.nn.Module(), no_transform(train), None, node, {"train": digest})
        initial.check(scorer, train)

    check(train.digest)  # the same lists, however they are named
    assert not caplog.records
    if message is None:
        check("other")
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
    else:
        assert message in refused(lambda: check("other"), ConfigError)
