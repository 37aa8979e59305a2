"""The trainer: it learns, stops on NaN, resumes to the same bits, reads late, records crossfit."""

import itertools
import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import ltr.parts.components
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, TrainingError
from ltr.experiment.build import build
from ltr.experiment.run_folder import RunFolder
from ltr.losses import lambdarank_loss
from ltr.metrics import Convention, parse_metric
from ltr.metrics.crossfit import HALVINGS, Crossfit, Halves, crossfit_of_halves
from ltr.models import MLP
from ltr.parts.components import build_settings
from ltr.training.checkpoint import load_checkpoint, read_half_choices
from ltr.training.evaluation import metrics_of_scores
from ltr.training.interruption import Interrupted
from ltr.training.monitor import Monitor, value_that_chooses
from ltr.training.trainer import TrainingStep
from tests.helpers.made_lists import make_lists
from tests.helpers.runs import assert_same_run, compose, run, train
from tests.helpers.some_steps import LISTS, SETTINGS


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(path)["model"]


def in_place_of(monkeypatch: pytest.MonkeyPatch, part: str, instead: Callable[[Any], Any]) -> None:
    """Train with ``instead`` of what the config of ``part`` makes, untried."""
    original = ltr.parts.components.build_part

    def build_part(node, name):
        if name == part:
            return instead(ltr.parts.components.bind_part(node, name))
        return original(node, name)

    monkeypatch.setattr(ltr.parts.components, "build_part", build_part)


def count_calls(monkeypatch: pytest.MonkeyPatch, at: int, action: Any) -> None:
    """Do ``action`` when the loss is called for the ``at``-th time in training."""
    calls = itertools.count(1)

    def counted(function):
        def loss(scores, labels, mask):
            value = function(scores, labels, mask)
            return action(value) if next(calls) == at else value

        return loss

    in_place_of(monkeypatch, "loss", counted)


def model_of(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The model of the run that comes, also where it fails."""
    kept: list[nn.Module] = []

    def keeping(make):
        return lambda width: kept.append(make(width)) or kept[-1]

    in_place_of(monkeypatch, "model", keeping)
    return kept


@pytest.mark.slow
def test_it_learns_and_keeps_what_it_says(tiny, tmp_path) -> None:
    out = tmp_path / "run"
    got = train(out, *tiny, "loss=listnet", "epochs=15", "optimizer.lr=0.01")
    results, history = RunFolder(out).results, RunFolder(out).history
    assert got["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.1
    assert history.loss.iloc[-1] < history.loss.iloc[1] - 0.1
    assert history.epoch.tolist() == list(range(16))
    best = history["vali_ndcg@5"].iloc[1:]
    assert got["vali_ndcg@5"] == best.max() == results["vali"]["ndcg@5"]
    assert results["selected_epoch"] == best.idxmax()
    queries = pd.read_csv(out / "queries.csv")
    assert len(queries) == 8
    assert queries["ndcg@10"].mean() == pytest.approx(results["test"]["ndcg@10"])
    assert results["convention"]["empty"] == 1
    assert results["convention"]["text"].startswith("empty list = 1 (no label > 0;")
    assert results["parameters"] == sum(w.numel() for w in weights(out / "best.pt").values())
    assert {"choices", "seed", "data", "protocol", "versions", "commit", "device"} <= results.keys()
    assert list(out.glob("events.out.tfevents.*"))
    assert not list(out.glob(".*part"))


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_goes_on_to_the_same_bits(tiny, tmp_path, monkeypatch) -> None:
    args = (*tiny, "loss=listnet", "model.dropout=0.3")
    train(tmp_path / "whole", *args)

    def terminate(value):
        os.kill(os.getpid(), signal.SIGTERM)
        return value

    for at in (1, 5, 8):  # first, last and inside of epochs of five
        cut = tmp_path / f"cut at {at}"
        with monkeypatch.context() as patch:
            count_calls(patch, at, terminate)
            with pytest.raises(Interrupted, match=r"SIGTERM"):
                train(cut, *args)
        done = load_checkpoint(cut / "last.pt")["progress"]
        assert done["epoch"] * 5 + done["step"] == at
        torch.manual_seed(99)  # what the process did in between must not matter
        train(cut, *args, f"resume='{cut}'")
        assert_same_run(tmp_path / "whole", cut)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draws",
    [
        ["loss=listnet", "model.dropout=0.3", "augment.noise=0.1"],
        ["loss=listmle", "model.dropout=0"],
    ],
    ids=lambda draws: draws[0],
)
def test_a_run_that_dies_goes_on_to_the_same_bits(tiny, tmp_path, monkeypatch, draws) -> None:
    args = (*tiny, *draws, "schedule=cosine", "warmup=1")
    train(tmp_path / "whole", *args)

    def die(value):
        raise KeyError("lost")

    with monkeypatch.context() as patch:
        count_calls(patch, 8, die)
        with pytest.raises(KeyError):
            train(tmp_path / "cut", *args)
    torch.manual_seed(99)
    train(tmp_path / "cut", *args, f"resume={tmp_path / 'cut'}")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_the_schedule_begins_after_the_warmup(tiny, tmp_path) -> None:
    cosine = ("schedule=cosine", "warmup=2", "epochs=4", "optimizer.lr=0.01")
    train(tmp_path / "cosine", *tiny, "loss=listnet", *cosine)
    rates = RunFolder(tmp_path / "cosine").history["lr"].to_list()[1:]
    assert rates[1] == 0.01  # the end of the warmup
    assert rates[3] < rates[2] < 0.01
    step = ("schedule=step", "schedule.step_size=1", "warmup=2", "epochs=4", "optimizer.lr=0.01")
    train(tmp_path / "step", *tiny, "loss=listnet", *step)
    assert RunFolder(tmp_path / "step").history["lr"].to_list()[2:] == [0.01, 0.01, 0.001]


@pytest.mark.slow
def test_resuming_a_finished_run_changes_nothing_and_more_epochs_go_on(tiny, tmp_path) -> None:
    args = (*tiny, "loss=listnet", "schedule=constant")
    train(tmp_path / "long", *args, "epochs=5")
    short = tmp_path / "short"
    train(short, *args, "epochs=3")
    before, whole = (short / "last.pt").read_bytes(), (short / "history.csv").read_text()
    lines = whole.splitlines()[:-1]
    (short / "history.csv").write_text("\n".join(lines))  # killed before it was written
    train(short, *args, "epochs=3", f"resume={short}")
    assert (short / "history.csv").read_text() == whole
    assert (short / "last.pt").read_bytes() == before
    train(short, *args, "epochs=5", f"resume={short}")
    assert_same_run(tmp_path / "long", short)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "spoil", "step"),
    [
        (7, lambda value: value * float("inf"), "epoch 2, step 2"),
        (1, lambda value: value + (value - value.detach()).sqrt(), "step 1"),  # an infinite slope
    ],
)
def test_what_is_not_finite_stops_before_the_update(
    tiny, tmp_path, monkeypatch, at, spoil, step
) -> None:
    kept = model_of(monkeypatch)
    count_calls(monkeypatch, at, spoil)
    with pytest.raises(
        TrainingError, match=rf"{step}: the loss or its gradient.*query ids q.*optimizer\.lr"
    ):
        train(tmp_path / "run", *tiny, "loss=listnet")
    assert all(torch.isfinite(w).all() for w in kept[-1].state_dict().values())


@pytest.mark.slow
def test_an_untrained_model_stays_the_best_if_training_makes_it_worse(
    tiny, tmp_path, caplog
) -> None:
    worse = [*tiny, "loss=listnet", "+optimizer.maximize=true", "schedule=constant"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(whole, *worse, "epochs=2")
    train(cut, *worse, "epochs=0")
    untrained = RunFolder(cut).results
    assert untrained["selected_epoch"] == 0
    assert untrained["vali"] == untrained["untrained_vali"]
    train(cut, *worse, "epochs=2", f"resume={cut}")
    results = RunFolder(cut).results
    assert results["best_epoch"] == results["selected_epoch"] == 0
    assert results["vali"] == results["untrained_vali"]
    assert_same_run(whole, cut)
    (warning,) = {r.getMessage() for r in caplog.records if r.levelname == "WARNING"}
    best = RunFolder(cut).history["vali_ndcg@5"][1:].max()
    start = results["untrained_vali"]["ndcg@5"]
    assert f"{start:.4f} in epoch 0, and at best {best:.4f}" in warning
    assert "weights of epoch 0 are kept" in warning


@pytest.mark.slow
def test_a_warm_start_is_kept_if_training_makes_it_worse(tiny, tmp_path) -> None:
    args = (*tiny, "loss=listnet", "optimizer.lr=0.01", "epochs=10")
    train(tmp_path / "first", *args)
    first = RunFolder(tmp_path / "first").results
    spoilt = ("optimizer=sgd", "optimizer.lr=1", "+optimizer.maximize=true", "epochs=1")
    train(tmp_path / "next", *args, *spoilt, f"init_from={tmp_path / 'first'}")
    then = RunFolder(tmp_path / "next")
    assert then.history["vali_ndcg@5"][1] < first["vali"]["ndcg@5"]
    assert then.results["selected_epoch"] == 0
    assert then.results["vali"] == first["vali"]
    assert then.results["test"] == first["test"]


PROTOCOL = (
    "seed=2", "l1=0.1", "l2=0.1", "clip=0.01", "augment.noise=0.1", "warmup=2", "empty_lists=skip",
    "list_size=3", "schedule.step_size=1", "optimizer=sgd", "precision=bfloat16",
)  # fmt: skip


@pytest.mark.slow
def test_every_setting_of_the_protocol_is_obeyed(tiny, tmp_path) -> None:
    short = (*tiny, "loss=listnet", "epochs=2")
    train(tmp_path / "plain", *short)
    plain = weights(tmp_path / "plain" / "last.pt")
    for change in PROTOCOL:
        train(tmp_path / change, *short, change)
        other = weights(tmp_path / change / "last.pt")
        assert any(not torch.equal(plain[key], other[key]) for key in plain), change


ON_MADE_LISTS = (
    "model=mlp", "model.hidden_sizes=[16]", "dataset.queries=60", "list_size=24", "batch_size=10",
    "epochs=8", "optimizer.lr=0.01", "schedule=constant", "metrics=[ndcg@10]", "select_on=ndcg@10",
    "select=last",  # nothing is selected on the lists on which it is judged
)  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lists are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["neuralndcg", "sodeep", "mix"])
def test_losses_of_each_kind_beat_the_untrained_model(loss, cache, tmp_path) -> None:
    cfg = compose(*ON_MADE_LISTS, f"loss={loss}", f"cache_dir={cache}")
    trained = run(cfg, tmp_path, {})["vali_ndcg@10"]
    untrained = json.loads((tmp_path / "results.json").read_text())["untrained_vali"]["ndcg@10"]
    assert trained > untrained + 0.1  # several standard deviations of random scores


def test_settings_are_checked_all_at_once(tiny) -> None:
    wrong = {
        "epochs=-1": "epochs=-1: give a whole number >= 0",
        "batch_size=0": "batch_size=0: give a whole number >= 1",
        "select=first": "select=first: choose one of best, last",
        "clip=0": "clip=0: give a number > 0",
        "metrics=[ndgc@5]": "'ndgc@5' is not a metric",
        "monitor=[test]": "choose one of train, vali",
        "loss.k=0": "k=0 is not a cutoff",
        "model.heads=3": "heads",
        "optimizer.lr=-1": "Invalid learning rate",
        "augment.noise=-1": "set augment.noise to a number >= 0",
        "deterministic=1": "deterministic=1: choose one of true, false",
        "compile=fast": "compile=fast: choose one of true, false",
    }
    with pytest.raises(ConfigError) as error:
        build(compose(*tiny, *wrong))
    assert all(part in str(error.value) for part in wrong.values())
    assert "\n" not in str(error.value)


def read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the figures of four steps together, as on a GPU those of fifty."""
    original = TrainingStep.__init__

    def init(self: TrainingStep, *args: Any) -> None:
        original(self, *args)
        assert self.sync_every == 1, "on the CPU every step is read at once"
        self.sync_every = 4

    monkeypatch.setattr(TrainingStep, "__init__", init)


@pytest.mark.slow
def test_reading_late_changes_nothing(tiny, tmp_path, monkeypatch) -> None:
    args = (*tiny, "loss=listnet", "model.dropout=0.3", "clip=0.5", "device=cpu")
    train(tmp_path / "plain", *args)
    read_late(monkeypatch)
    train(tmp_path / "late", *args)
    assert_same_run(tmp_path / "plain", tmp_path / "late")


@pytest.mark.slow
def test_read_late_a_bad_loss_still_changes_no_weight(tiny, tmp_path, monkeypatch) -> None:
    found = []
    for folder in ("plain", "late"):
        with monkeypatch.context() as patch:
            kept = model_of(patch)
            count_calls(patch, 6, lambda value: value * float("nan"))
            message = "epoch 2, step 1: the loss or its gradient is not finite .* query ids q"
            with pytest.raises(TrainingError, match=message) as error:
                train(tmp_path / folder, *tiny, "loss=listnet", "device=cpu")
        found.append((str(error.value), kept[-1].state_dict()))
        read_late(monkeypatch)
    (plain, weights), (late, others) = found
    assert plain == late
    assert all(torch.equal(weights[key], others[key]) for key in weights)


class Waits(TorchDispatchMode):
    """Names the operators for whose result the host waits."""

    found: tuple[str, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in ("_local_scalar_dense", "nonzero", "is_nonzero", "equal"):
            self.found += (name,)
        return func(*args, **(kwargs or {}))


def test_a_step_on_a_gpu_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    monkeypatch.setattr("ltr.kernels.dispatch.numba_works", lambda: False)  # no kernel of the CPU
    model, data = MLP(LISTS.width, hidden_sizes=(4,)), ItemTensors(LISTS, no_transform(LISTS))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    stepper = TrainingStep(model, lambdarank_loss, optimizer, SETTINGS)
    stepper.sync_every = 50  # as on a GPU
    batches = train_batches(data, batch_size=3, list_size=8, seed=0, epoch=0, fixed=True)
    stepper(next(batches))  # makes the state of the optimiser
    with Waits() as waits:
        stepper(next(batches))
    assert not waits.found
    with waits:
        stepper._figures[0].sum().item()
    assert waits.found == ("_local_scalar_dense",)


DRAWS = np.random.default_rng(0)


def by_hand(values: np.ndarray) -> tuple[float, float]:
    """The definition, a split and a half at a time."""
    lists = [i for i in range(values.shape[1]) if not np.isnan(values[0, i])]
    draws, measured, squares = np.random.default_rng(0), [], []
    for _ in range(HALVINGS):
        order = [int(i) for i in draws.permutation(lists)]
        halves = order[: len(lists) // 2], order[len(lists) // 2 :]
        pair = []
        for mine, other in (halves, halves[::-1]):
            means = [float(np.mean([row[i] for i in mine])) for row in values]
            pair.append(np.mean([values[int(np.argmax(means)), i] for i in other]))
        measured += pair
        squares.append((pair[0] - pair[1]) ** 2)
    return float(np.mean(measured)), math.sqrt(np.mean(squares)) / 2


def crossfit(values: np.ndarray) -> Crossfit | None:
    """Of the values of every list, ``[epochs, lists]``; NaN: it does not count."""
    halves = Halves.split(np.atleast_1d(~np.isnan(values).all(axis=0)))
    return crossfit_of_halves(np.array([halves.means(row) for row in values]))


def test_it_is_what_its_definition_says() -> None:
    for lists in (2, 7, 30):
        values = DRAWS.random((12, lists + 2))
        values[:, [1, 3]] = np.nan  # do not count
        found = crossfit(values)
        assert found is not None
        assert (found.value, found.error) == pytest.approx(by_hand(values), rel=1e-12)
    assert crossfit(DRAWS.random((5, 1))) is None
    assert crossfit(np.empty((0, 9))) is None


@pytest.mark.parametrize("select", ["best", "last"])
def test_an_epoch_is_not_chosen_for_the_order_of_the_rows(select: str, tmp_path: Path) -> None:
    """Scores that are all equal leave rows sorted by label in the ideal order."""
    lists = make_lists([4] * 12, seed=3)
    labels = np.tile(np.float32([3, 2, 1, 0]), 12)
    data = ItemTensors(replace(lists, labels=labels), no_transform(lists))
    cfg = compose("epochs=3", "batch_size=8", "select_on=ndcg@2", f"select={select}")
    monitor = Monitor(
        build_settings(cfg), metrics=[parse_metric("ndcg@2")], convention=Convention(),
        folder=tmp_path, state={},
    )  # fmt: skip
    good = labels.copy()
    good[1:4] = good[3:0:-1]  # one list is not in the ideal order
    for epoch, scores in enumerate([np.zeros(48), good, np.zeros(48)]):
        row = monitor.measure("vali", data, torch.tensor(scores))
        monitor.progress.epoch = epoch
        monitor.add({"epoch": epoch, **row})
    printed = [row["vali_ndcg@2"] for row in monitor.progress.history]
    chosen_by = [value_that_chooses(row, "ndcg@2") for row in monitor.progress.history]
    assert printed[0] == printed[2] == 1 > printed[1]
    assert chosen_by[0] == chosen_by[2] == pytest.approx((7 + 3 + 1) / 4 * 1.63093 / (7 + 1.89279))
    assert chosen_by[1] == printed[1]
    assert monitor.progress.best_epoch == 1
    assert monitor.progress.best_value == printed[1]
    assert monitor.crossfit is not None
    kept = printed[1] if select == "best" else chosen_by[2]
    assert monitor.crossfit.value == pytest.approx(kept, abs=0.02)


def test_an_epoch_of_training_is_preferred_to_an_equal_start(tmp_path: Path) -> None:
    lists = make_lists([3] * 10, seed=3)
    data = ItemTensors(lists, no_transform(lists))
    monitor = Monitor(
        build_settings(compose("epochs=3", "batch_size=8", "select_on=ndcg")),
        metrics=[parse_metric("ndcg")], convention=Convention(), folder=tmp_path, state={},
    )  # fmt: skip
    scores = torch.tensor(DRAWS.random(30))
    better = []
    for epoch in range(3):
        row = monitor.measure("vali", data, scores)
        monitor.progress.epoch = epoch
        better.append(monitor.add({"epoch": epoch, **row}))
    assert better == [True, True, False]
    assert monitor.progress.best_epoch == 1


def test_a_half_prefers_an_epoch_of_training_to_an_equal_start_too(tmp_path: Path) -> None:
    lists = make_lists([3] * 10, seed=3)
    ideal = np.tile(np.float32([2, 1, 0]), 10)
    data = ItemTensors(replace(lists, labels=ideal), no_transform(lists))
    monitor = Monitor(
        build_settings(compose("epochs=3", "batch_size=8", "select_on=ndcg")),
        metrics=[parse_metric("ndcg")], convention=Convention(), folder=tmp_path, state={},
    )  # fmt: skip
    worse = ideal.copy()
    worse[:3] = worse[2::-1]  # the first list alone
    for epoch, scores in enumerate([ideal, worse]):
        row = monitor.measure("vali", data, torch.tensor(scores))
        monitor.progress.epoch = epoch
        monitor.add({"epoch": epoch, **row})
    assert monitor.progress.best_epoch == 0
    halves = Halves.split(np.ones(10, dtype=bool))
    has_first = np.stack([(half == 0).any(-1) for half in (halves.first, halves.second)], axis=-1)
    np.testing.assert_array_equal(monitor._half_epochs, np.where(has_first, 0, 1))
    lost = 10 * (1 - monitor.progress.history[1]["vali_ndcg"])  # of the first list in epoch 1
    assert monitor.crossfit is not None
    assert monitor.crossfit.value == pytest.approx(1 - lost / 5 / 2)


def test_a_record_keeps_halves_that_give_the_value_of_its_lists(tmp_path) -> None:
    lists = make_lists([3] * 15, seed=2)
    data, metric = ItemTensors(lists, no_transform(lists)), parse_metric("ndcg")
    record, last = (
        Monitor(
            build_settings(
                compose(f"select={select}", "epochs=9", "batch_size=8", "select_on=ndcg")
            ),
            metrics=[metric], convention=Convention(empty="skip"), folder=tmp_path, state={},
        )
        for select in ("best", "last")
    )  # fmt: skip
    values, means, given = [], [], []
    for epoch in range(10):
        scores = torch.tensor(DRAWS.random(45))
        given.append(scores.float())
        row = record.measure("vali", data, scores)
        record.progress.epoch = epoch
        record.add({"epoch": epoch, **row})
        found = metrics_of_scores(data, scores, [metric], Convention(empty="skip"))
        values.append(found["ndcg"])
        means.append(row["vali_ndcg"])
    assert record.crossfit == crossfit(np.array(values))  # to the last bit
    assert record.progress.best_epoch == int(np.argmax(means))
    assert record.progress.best_value == max(means)
    with record.open():
        record.save(record.last, {})
    epochs, scores = read_half_choices(load_checkpoint(record.last)["halves"])
    halves = Halves.split(~np.isnan(values[0]))
    assert (epochs == np.array([halves.means(row) for row in values]).argmax(0)).all()
    assert {*scores} == {*epochs.flat} != {1}
    assert all(torch.equal(scores[epoch], given[epoch]) for epoch in scores)
    assert last.crossfit is None  # nothing is measured yet

    content = load_checkpoint(record.last)
    sound = content["halves"]
    some = next(iter(sound["scores"].values()))
    for wrong in (
        {"epochs": sound["epochs"][:5]}, {"scores": {}}, {"scores": {**sound["scores"], 99: some}},
        {"scores": {epoch: some[:1].expand(45) for epoch in sound["scores"]}},
        {"scores": dict.fromkeys(sound["scores"], torch.nan * some)},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="halves: expected the scores"):
            read_half_choices(sound | wrong)
    del content["halves"]  # as an earlier version wrote it
    last.resume(content)
    with last.open():
        last.save(last.last, {})
    assert "halves" not in load_checkpoint(last.last)
