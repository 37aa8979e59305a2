"""Searches: on vali only, continued after a kill, shared by processes, with a file at the end."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from conftest import compose, real_data
from optuna.trial import TrialState

from ltr.errors import LTRError
from ltr.experiment.cli import CONFIGS
from ltr.experiment.run import run
from ltr.experiment.search import order as order_module
from ltr.experiment.search.best_file import best_text, check_free
from ltr.experiment.search.check import check_space
from ltr.experiment.search.claims import Claim, Nothing, begin, claim, finished, is_finished, worth
from ltr.experiment.search.make import search
from ltr.experiment.search.order import Order, need_optuna, parse_order
from ltr.experiment.search.plan import make_plan
from ltr.experiment.search.space import FORMS, Choice, Range, distribution, parse_space, spaces
from ltr.experiment.search.study import open_study
from ltr.experiment.search.trial import Report
from ltr.experiment.search.watch import sentence
from ltr.training.interruption import Interrupted

ROOT = CONFIGS.parent
LR = "space.optimizer.lr=[float,1e-3,1e-1,log]"


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "search.py"), *arguments]


@pytest.fixture
def small(letor_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A search of a second, on a folder without a test file; its history is not drawn."""
    monkeypatch.setattr("ltr.experiment.search.make.draw_history", lambda *args: [])
    (letor_folder / "mine" / "test.txt").rename(letor_folder / "test.txt")
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={letor_folder}",
        f"cache_dir={letor_folder}/cache", f"output_dir={tmp_path}/out", "threads=1",
        f"write={tmp_path}/experiment/found.yaml", "name=mine", "epochs=3", "batch_size=8",
        "model=linear", "loss=listnet", "l2=0", LR,
    ]  # fmt: skip


def searched(*arguments: str) -> bool:
    return search(parse_order(arguments))


def study_of(tmp_path: Path, *arguments: str) -> optuna.Study:
    order = parse_order(arguments)
    return open_study(tmp_path / "out/search/mine", order)


def rows(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "out/search/mine/trials.csv").open() as file:
        return list(csv.DictReader(file))


def refused(*arguments: str) -> str:
    with pytest.raises(LTRError) as caught:
        searched(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Spaces


@pytest.mark.parametrize("model", [name for name in spaces() if not name.startswith("loss/")])
def test_the_space_of_every_model_holds_what_its_model_has(model: str) -> None:
    if model == "catboost":
        pytest.importorskip("catboost")
    plan = make_plan(parse_order([f"model={model}"]))
    check_space(plan)
    assert set(plan.space) > {"model.learning_rate"} or "optimizer.lr" in plan.space


@pytest.mark.parametrize("name", [name for name in spaces() if name.startswith("loss/")])
def test_the_space_of_every_loss_holds_what_its_loss_has(name: str) -> None:
    plan = make_plan(parse_order(["model=linear", f"loss={name[5:]}", f"space={name}"]))
    check_space(plan)
    assert all(space.holds(plan.default(key)) for key, space in plan.space.items())


def test_model_and_loss_are_put_together_and_changed_on_the_command_line() -> None:
    plan = make_plan(
        parse_order(
            [
                *("model=mlp", "loss=neuralndcg", "model.dropout=0.2", "space.batch_size=null"),
                *("space.optimizer.lr=[1e-5,1e-2,log]", "space.clip=[choice,null,1,2.5]"),
                *(
                    "space.optimizer=[choice,adam,adamw]",
                    "space.model.activation=[choice,relu,elu]",
                ),
            ]
        )
    )
    assert plan.space == {
        "model.hidden_sizes": Choice(("[32]", "[64,32]", "[128,64]", "[256,128]", "[256,128,64]")),
        "loss.temperature": Range(0.01, 10.0, log=True, whole=False),
        "optimizer.lr": Range(1e-5, 1e-2, log=True, whole=False),
        "clip": Choice(("null", "1", "2.5")),
        "optimizer": Choice(("adam", "adamw")),
        "model.activation": Choice(("relu", "elu")),
    }
    check_space(plan)
    assert (plan.default("optimizer"), plan.default("model.hidden_sizes")) == ("adam", [64, 32])
    config, choices = plan.trial(["optimizer=adamw", "model.hidden_sizes=[32]", "clip=null"])
    assert (choices["optimizer"], config.model.hidden_sizes, config.clip) == ("adamw", [32], None)
    only = make_plan(parse_order(["model=mlp", "space=loss/neuralndcg"]))
    assert list(only.space) == ["loss.temperature"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.1, "x=0.1: not a distribution; "),
        (["normal", 0, 1], "x=[normal,0,1]: begins with normal; "),
        ([0.1, 1.0], "x=[0.1,1.0]: begins with 0.1; "),
        (["float", 1], "x=[float,1]: two numbers must follow float; "),
        (["float", 0, "nan"], "x=[float,0,'nan']: two numbers must follow float; "),
        (["float", 0, 1, "lgo"], "x=[float,0,1,lgo]: two numbers must follow float; "),
        (["float", 0, float("inf")], "x=[float,0,inf]: two numbers must follow float; "),
        (["int", 1, 2.5], "x=[int,1,2.5]: two whole numbers must follow int; "),
        (["int", False, 2], "x=[int,false,2]: two whole numbers must follow int; "),
        (["float", 2, 1], "x=[float,2,1]: LOW must be below HIGH; "),
        (["choice", "a", "a"], "x=[choice,a,a]: give at least two options; "),
        (["float", 0, 1, "log"], "x=[float,0,1,log]: log needs LOW > 0; raise it or leave out log"),
    ],
)
def test_a_bad_distribution_says_what_to_write(value: Any, message: str) -> None:
    with pytest.raises(LTRError) as caught:
        distribution("x", value)
    assert str(caught.value) == message + (FORMS if message.endswith("; ") else "")


def test_a_bad_space_file_is_named() -> None:
    with pytest.raises(LTRError, match=r"^mine.yaml: optimizer.lr=\[1\]: begins with 1; write"):
        parse_space("optimizer.lr: [1]", "mine.yaml")
    with pytest.raises(LTRError, match=r"^mine.yaml is not YAML: .*; mend it$"):
        parse_space("a: [", "mine.yaml")
    with pytest.raises(LTRError, match=r"^mine.yaml: write a line KEY: \[float, LOW, HIGH\]"):
        parse_space("[a]", "mine.yaml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mlp"], "mlp: write KEY=VALUE, such as model=mlp or trials=20"),
        (["trials=0"], "trials=0: give a whole number >= 1"),
        (["trials=many"], "trials=many: give a whole number >= 1"),
        (["folds=1,x"], "folds=x: give a whole number >= 1"),
        (["seeds="], "seeds=: give whole numbers, such as seeds=1,2"),
        (["pruner=mean"], "pruner=mean: write median or none"),
        (["dry_run=maybe"], "dry_run=maybe: write true or false"),
        (["name=a/b"], "name=a/b: write letters, digits, _, . and - only"),
        (["seed=1,2"], "seed=1,2: for the mean over several write seeds=1,2"),
        (["dataset.fold=1,2"], "dataset.fold=1,2: for the mean over several write folds=1,2"),
        (["resume=outputs/x"], "resume=outputs/x: a search cannot have it; leave it out"),
        (["hydra.verbose=true"], "hydra.verbose=true: a search cannot have it; leave it out"),
        (["space.l2=[float,"], "space.l2=[float,: cannot be read; write it as [float,LOW,HIGH]"),
        (["space=mpl"], "space=mpl: no such space; it is one of catboost, "),
        (["space=mpl"], "(did you mean mlp?)"),
        (["model=mpl"], "model=mpl: no such choice; model is one of "),
        (["los=bce"], "los: no such key; the keys are"),
        (["space.model.dropuot=[float,0,1]"], "model.dropuot: no such key; model has"),
        (["space.l2=null"], "space.l2=null: it is not searched; leave this out"),
        (["space.seed=[int,1,5]"], "space.seed: trials must differ in knobs, not in data, seed"),
        (["space.dataset.fold=[int,1,5]"], "space.dataset.fold: trials must differ in knobs"),
        (["space.model.dropout=[float,0,2]"], "space: model.dropout=2.0 cannot be had: "),
        (["seed=1", "seeds=1,2"], "seed and seeds are both set: leave one of them out"),
        (["folds=all"], "folds=all: synthetic has no folds; leave it out"),
        (["folds=1,2"], "folds: synthetic has no folds; leave it out"),
        (["space=linear", "optimizer.lr=1", "l2=0", "batch_size=2"], "there is nothing to search"),
        (["write=found.yaml"], "write=found.yaml: give FOLDER/experiment/NAME.yaml; python train"),
        (["dataset=mq2008", "data_dir=/nowhere"], "download MQ2008.rar"),
    ],
)
def test_mistakes_are_one_line_with_the_remedy(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_without_optuna_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "find_spec", lambda name: None)
    with pytest.raises(LTRError, match=r"^a search needs Optuna: pip install 'ltr\[search\]'$"):
        need_optuna()


def test_help_needs_neither_torch_nor_optuna() -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = {[*command('--help')[1:]]!r}\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('heavy:', sorted({'torch', 'optuna', 'numpy', 'pandas'} & set(sys.modules)))\n"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy: []" in got.stdout
    assert "loss/neuralndcg, " in got.stdout


# One search


def test_a_search_ends_with_a_file_that_trains_to_the_same_value(
    small: list[str],
    letor_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.undo()  # the history is drawn
    small = [*small, "trials=7", "pruner=none", "space.model.output_activation=[choice,null,tanh]"]
    assert searched(*small)
    out = capsys.readouterr().out
    folder = tmp_path / "out/search/mine"
    table = rows(tmp_path)
    assert [row["state"] for row in table] == ["done"] * 7
    assert (table[0]["optimizer.lr"], table[0]["model.output_activation"]) == ("0.001", "null")
    values = [float(row["vali ndcg@5"]) for row in table]
    assert f"best: ndcg@5 on vali {max(values):.4f}" in out
    assert "importance" in out
    assert {"history.png", "history.svg", "journal.log"} <= {path.name for path in folder.iterdir()}
    assert not list(folder.rglob("*.pt"))

    found = tmp_path / "experiment/found.yaml"
    text = found.read_text()
    assert text.startswith(f"# @package _global_\n# python train.py --config-dir {tmp_path} exper")
    assert f"# ndcg@5 {max(values):.4f} on vali of letor: trial " in text
    assert f"with the values it began from {values[0]:.4f}" in text
    assert str(letor_folder) not in text.split("defaults:")[1]
    (letor_folder / "test.txt").rename(letor_folder / "mine" / "test.txt")
    config = compose(
        f"hydra.searchpath=[file://{tmp_path}]", "experiment=found",
        f"data_dir={letor_folder}", f"cache_dir={tmp_path}/cache", "threads=1",
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    assert run(config, tmp_path / "run", {})["vali_ndcg@5"] == max(values)

    assert searched(*small)  # again: nothing is left to do, nothing is written anew
    assert found.read_text() == text
    assert "7 of 7 trials finished" in capsys.readouterr().out
    assert len(rows(tmp_path)) == 7


@pytest.mark.parametrize(
    ("arguments", "overrides"),
    [
        (
            ["transform=none", "metrics_as=letor4", "+optimizer.amsgrad=true", "clip=1", "seed=3"],
            ["optimizer.lr=0.01", "model.fc_sizes=[64]"],
        ),
        (["experiment=rmse_web30k"], ["optimizer=adamw", "optimizer.lr=1e-05"]),
        (["model=lightgbm"], ["model.num_leaves=7", "model.feature_fraction=0.5"]),
        (["model=lightgbm", "loss=listnet", "dataset=mq2008"], ["model.num_leaves=7"]),
        (
            ["dataset=letor", "dataset.folder='a b'", "metrics=[ndcg@5,map]", "device=cpu"],
            ["loss.temperature=0.5", "clip=null"],
        ),
    ],
)
def test_the_file_composes_to_the_config_of_the_trial(
    arguments: list[str], overrides: list[str], tmp_path: Path
) -> None:
    order = parse_order([*arguments, "data_dir=here"])
    plan = make_plan(order)
    study = optuna.create_study(direction="maximize")
    study.add_trial(optuna.create_trial(value=0.5, user_attrs={"overrides": overrides}))
    (tmp_path / "experiment").mkdir()
    text = best_text("python train.py", order, plan, study, study.best_trial)
    (tmp_path / "experiment/found.yaml").write_text(text)
    found = compose(f"hydra.searchpath=[file://{tmp_path}]", "experiment=found", "data_dir=here")
    wanted, _ = plan.trial(overrides)
    for config in (found, wanted):
        config.device = "auto"  # where it ran is not what was found
    assert found == wanted
    assert "here" not in text


def test_a_garbled_test_file_is_not_looked_at(small: list[str], letor_folder: Path) -> None:
    (letor_folder / "mine" / "test.txt").write_bytes(b"\x00 no lists \xff")
    assert searched(*small, "trials=2", "epochs=1")


def test_the_first_trial_is_the_config_even_outside_the_space(
    small: list[str], tmp_path: Path
) -> None:
    small = [item for item in small if item != "l2=0"]
    assert searched(*small, "trials=2", "epochs=1", "space.optimizer.lr=[0.05,0.1]")
    first, second = rows(tmp_path)
    assert (first["optimizer.lr"], first["l2"], first["state"]) == ("", "", "done")
    assert 0.05 <= float(second["optimizer.lr"]) <= 0.1
    (trial, _) = finished(study_of(tmp_path, *small))
    assert trial.user_attrs["overrides"] == []


def test_the_same_seed_draws_the_same_and_another_does_not(
    small: list[str], tmp_path: Path
) -> None:
    def drawn(name: str, *more: str) -> list[str]:
        assert searched(*small, "epochs=1", "trials=3", f"output_dir={tmp_path}/{name}/out", *more)
        return [row["optimizer.lr"] for row in rows(tmp_path / name)]

    free = [f"write={tmp_path}/other/experiment/x.yaml"]
    one = drawn("a")
    (tmp_path / "experiment/found.yaml").unlink()
    assert drawn("b", *free) == one
    shutil.rmtree(tmp_path / "other")
    other = drawn("c", "sampler_seed=1", *free)
    assert other[0] == one[0]  # the config's own
    assert other[1] != one[1]


def test_bad_trials_are_pruned_and_say_when(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["trials=10", "epochs=4", "space.optimizer.lr=[choice,0.001,0.05,0.1]", "prune_after=2"]
    assert searched(*small, *more, "n_startup_trials=10")
    pruned = [row for row in rows(tmp_path) if row["state"] == "pruned"]
    assert pruned
    assert int(pruned[0]["trial"]) >= 5
    epochs = int(pruned[0]["reason"].removeprefix("after epoch "))
    history = pd.read_csv(
        tmp_path / f"out/search/mine/trials/{int(pruned[0]['trial']):04d}/history.csv"
    )
    assert 2 <= epochs == history.epoch.max() < 4
    assert ", pruned after epoch " in capsys.readouterr().out


def test_each_of_several_trainings_has_its_epochs_before_the_trial_is_pruned(
    small: list[str],
) -> None:
    plan = make_plan(parse_order((*small, "epochs=4", "seeds=1,2,3", "prune_after=3")))
    study = optuna.create_study(direction="maximize")
    trial = study.ask()
    trial.should_prune = lambda: len(report._values) == 2  # type: ignore[method-assign]
    report, key = Report(plan, trial, None), f"vali_{plan.config.select_on}"
    report.begin(plan.config, plan.repeats[0])
    for epoch in range(5):
        report(epoch, {key: 0.5 + 0.1 * epoch})
    report.begin(plan.config, plan.repeats[1])
    report(1, {key: 0.2})
    report(2, {key: 0.3})
    with pytest.raises(optuna.TrialPruned, match="after epoch 3 of seed2"):
        report(3, {key: 0.1})
    study.tell(trial, state=TrialState.PRUNED)
    (told,) = study.trials
    assert told.value == pytest.approx((0.9 + 0.3 + 0) / 3)
    assert worth(told) == pytest.approx((0.9 + 0.3) / 2)
    told.user_attrs["pruned"] = "after epoch 3 of seed2"
    assert "ndcg@5 0.6000, pruned after epoch 3 of seed2" in sentence(told, "ndcg@5")


def test_failed_trials_are_recorded_and_the_search_goes_on(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["space.optimizer.lr=[choice,0.001,1e30]", "optimizer=sgd", "loss=mse"]
    small = [item for item in small if item != "loss=listnet"]
    assert searched(*small, *more, "trials=4", "epochs=1", "n_startup_trials=4")
    table = rows(tmp_path)
    failed = [row for row in table if row["state"] == "failed"]
    assert 0 < len(failed) < 4
    assert all(row["optimizer.lr"] == "1e+30" for row in failed)
    assert "not finite" in failed[0]["reason"]
    assert f", {len(failed)} failed" in capsys.readouterr().out


def test_where_every_trial_fails_the_reason_is_said(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["space.optimizer.lr=[float,1e30,1e31]", "optimizer=sgd", "optimizer.momentum=0"]
    more += ["l1=1e38", "trials=2"]
    assert not searched(*small, *more)
    out = capsys.readouterr().out
    assert "no trial was trained to its end\n" in out
    assert "not finite" in out
    assert not (tmp_path / "experiment").exists()


def test_the_value_is_the_mean_over_seeds(small: list[str], tmp_path: Path) -> None:
    assert searched(*small, "trials=1", "seeds=1,2")
    places = [tmp_path / f"out/search/mine/trials/0000/seed{seed}" for seed in (1, 2)]
    best = [pd.read_csv(place / "history.csv")["vali_ndcg@5"].iloc[1:].max() for place in places]
    assert best[0] != best[1]
    assert float(rows(tmp_path)[0]["vali ndcg@5"]) == pytest.approx(sum(best) / 2, abs=1e-12)
    (trial,) = finished(study_of(tmp_path, *small))
    assert list(trial.intermediate_values) == [1, 2, 3, 5, 6, 7]
    steps = list(trial.intermediate_values.values())
    assert steps == sorted(steps)
    assert steps[2] == pytest.approx(best[0] / 2)
    assert "of letor, seeds 1 2 (mean): trial 0" in (tmp_path / "experiment/found.yaml").read_text()


# Going on


def test_another_search_is_not_continued_by_mistake(
    small: list[str], letor_folder: Path, tmp_path: Path
) -> None:
    assert searched(*small, "trials=1", "epochs=1")
    folder = tmp_path / "out/search/mine"
    assert refused(*small, "epochs=2") == (
        f"{folder} is a search with epochs=1, now it is 2: put it back, or give name=NAME for a "
        "new search"
    )
    assert "space.optimizer.lr=[float,0.001,0.1,log], now it is [float,0.001,0.2,log]" in refused(
        *small, "epochs=1", "space.optimizer.lr=[float,1e-3,0.2,log]"
    )
    assert "with repeats=[''], now it is ['seed1', 'seed2']" in refused(
        *small, "epochs=1", "seeds=1,2"
    )
    assert searched(*small, "epochs=1", "trials=2", "device=cpu", "evaluation_items=99")
    vali = letor_folder / "mine" / "vali.txt"
    vali.write_text("".join(vali.read_text().splitlines(True)[:-1]))
    assert "vali changed since the search in" in refused(*small, "epochs=1")


def test_changed_code_is_told(
    small: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert searched(*small, "trials=1", "epochs=1")
    assert "note: the code changed" not in capsys.readouterr().out
    monkeypatch.setattr("ltr.experiment.search.make.code_digest", lambda: "other")
    assert searched(*small, "trials=1", "epochs=1")
    assert "note: the code changed since" in capsys.readouterr().out


def test_a_file_of_another_is_not_overwritten(small: list[str], tmp_path: Path) -> None:
    found = tmp_path / "experiment/found.yaml"
    found.parent.mkdir()
    found.write_text("mine: 1\n")
    assert f"{found} is there and is not what this search wrote: give" in refused(*small)
    assert not (tmp_path / "out").exists()
    found.unlink()
    assert searched(*small, "trials=1", "epochs=1")
    check_free(found, tmp_path / "out/search/mine")
    assert searched(*small, "trials=4", "epochs=1")  # its own it replaces
    found.write_text(found.read_text() + "# my note\n")
    assert "is not what this search wrote" in refused(*small, "trials=4", "epochs=1")


def test_stopped_by_the_user_it_says_so_and_goes_on(
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original = Report.__call__

    def stop(self: Report, epoch: int, metrics: Any) -> None:
        original(self, epoch, metrics)
        if epoch == 2:
            raise Interrupted(signal.SIGINT)

    for _ in range(3):  # as often as the user likes
        with monkeypatch.context() as patch:
            patch.setattr(Report, "__call__", stop)
            with pytest.raises(Interrupted):
                searched(*small, "trials=2")
        assert "search mine: 0 of 2 trials finished\n" in capsys.readouterr().out
        assert not study_of(tmp_path, *small).get_trials(states=(TrialState.RUNNING,))
    assert (tmp_path / "out/search/mine/trials/0000/last.pt").is_file()
    assert searched(*small, "trials=2")
    assert [row["state"] for row in rows(tmp_path)].count("done") == 2


def test_trials_are_claimed_once_and_a_dead_worker_s_is_taken_up(
    small: list[str], tmp_path: Path
) -> None:
    order = parse_order(small)
    plan, folder = make_plan(order), tmp_path / "out/search/mine"
    folder.mkdir(parents=True)
    one, two = (open_study(folder, order) for _ in range(2))
    begin(plan, one, folder)
    begin(plan, two, folder)
    first, second = claim(plan, one, folder, 2), claim(plan, two, folder, 2)
    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    assert (first.trial.number, second.trial.number) == (0, 1)
    assert (first.overrides, len(second.overrides)) == ((), 1)
    assert claim(plan, two, folder, 2) is Nothing.YET

    second.lock.release()  # as the kernel does for a process that is killed
    for tries in (2, 3):
        again = claim(plan, one, folder, 2)
        assert isinstance(again, Claim)
        assert (again.overrides, again.folder) == (second.overrides, second.folder)
        assert again.trial.user_attrs["tries"] == tries
        again.lock.release()
    assert claim(plan, one, folder, 2) is Nothing.YET  # given up after the third
    (given_up,) = [trial for trial in one.get_trials() if is_finished(trial)]
    assert given_up.number == 3
    one.tell(first.trial, 0.5)
    assert claim(plan, two, folder, 2) is Nothing.LEFT
    assert isinstance(claim(plan, two, folder, 3), Claim)


def test_a_killed_search_goes_on_where_it_was(small: list[str], tmp_path: Path) -> None:
    small = [*small, "epochs=40", "trials=3", "pruner=none"]
    process = subprocess.Popen(command(*small), stdout=subprocess.DEVNULL)
    last = tmp_path / "out/search/mine/trials/0001/last.pt"
    waited = time.monotonic()
    while not last.is_file():
        assert time.monotonic() < waited + 60
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    began = study_of(tmp_path, *small).get_trials()[1].params
    assert searched(*small)
    table = rows(tmp_path)
    assert [row["state"] for row in table].count("done") == 3
    assert table[1]["state"] == "cut off"
    again = next(trial for trial in finished(study_of(tmp_path, *small)) if trial.number == 2)
    assert again.params == began
    assert again.user_attrs["first"] == 1
    assert len(again.intermediate_values) == 40  # those before the kill too
    history = pd.read_csv(tmp_path / "out/search/mine/trials/0001/history.csv")
    assert history.epoch.tolist() == list(range(41))
    assert again.value == history["vali_ndcg@5"].iloc[1:].max()


def test_two_workers_share_the_trials(small: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        command(*small, "trials=5", "epochs=1", "workers=2"),
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\ntrial ") == 5
    assert [row["state"] for row in rows(tmp_path)] == ["done"] * 5
    assert (tmp_path / "experiment/found.yaml").is_file()


def test_a_mistake_is_one_line_and_2() -> None:
    done = subprocess.run(command("trials=x"), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: trials=x: give a whole number >= 1\n"


def test_dry_run_prints_the_space_and_the_first_config(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert searched(*small, "dry_run=true", "trials=9")
    out = capsys.readouterr().out
    assert "search mine by ndcg@5 on vali of letor\n9 trials of one training each" in out
    assert "optimizer.lr  [float,0.001,0.1,log]  0.001" in out
    assert "first trial: python train.py dataset=letor" in out
    assert "_target_: ltr.losses.listnet_loss" in out
    assert not (tmp_path / "out").exists()


@real_data
def test_real_folds_are_searched_together(tmp_path: Path) -> None:
    assert searched(
        "dataset=mq2008", f"data_dir={os.environ['LTR_DATA_DIR']}", f"cache_dir={tmp_path}/cache",
        "model=linear", "loss=listnet", "epochs=1", "trials=2", "folds=1,2", "name=mine",
        f"output_dir={tmp_path}/out", f"write={tmp_path}/experiment/found.yaml", "threads=1",
    )  # fmt: skip
    assert "of mq2008, folds 1 2 (mean)" in (tmp_path / "experiment/found.yaml").read_text()


def test_an_order_keeps_what_is_for_train() -> None:
    order = parse_order(["model=mlp", "trials=9", "seeds=1,2", "space=mlp,loss/bce", "epochs=4"])
    assert order == Order(
        arguments=order.arguments,
        overrides=("model=mlp", "epochs=4"),
        trials=9,
        seeds=(1, 2),
        space=("mlp", "loss/bce"),
    )
