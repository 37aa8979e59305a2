"""One search: on vali only, with pruning and failures, and a file at its end."""

import os
import re
import shutil
from pathlib import Path

import optuna
import pandas as pd
import pytest
from conftest import compose, real_data
from made_search import refused, rows, searched, small_search, study_of
from optuna.trial import TrialState
from orders import search_of

from ltr.errors import DataError
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder
from ltr.metrics.crossfit import Crossfit
from ltr.search.best_file import best_text, write_best
from ltr.search.results import sentence, worth
from ltr.search.study import finished
from ltr.search.trial import Report

small = small_search


@pytest.mark.slow
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
    out, err = capsys.readouterr()
    said = re.findall(
        r"^([1-7]) of 7  trial \d+  crossfit ndcg@5 [01]\.\d{4} on vali  .*took ", err, re.M
    )
    assert said == list("1234567")  # on standard error, where it is no terminal too
    assert " of 7 " not in out
    folder = tmp_path / "out/search/mine"
    table = rows(tmp_path)
    assert [row["state"] for row in table] == ["done"] * 7
    assert (table[0]["optimizer.lr"], table[0]["model.output_activation"]) == ("0.001", "null")
    values = [float(row["crossfit ndcg@5"]) for row in table]
    assert f"best: crossfit ndcg@5 on vali {max(values):.4f}" in out
    assert "importance" in out
    assert {"history.png", "history.svg", "search.db"} <= {path.name for path in folder.iterdir()}
    assert not list(folder.rglob("*.pt"))

    found = tmp_path / "experiment/found.yaml"
    text = found.read_text()
    assert text.startswith(f"# @package _global_\n# ltr train --config-dir {tmp_path} exper")
    assert f"# crossfit ndcg@5 {max(values):.4f} on vali of letor: trial " in text
    assert f"with the values it began from {values[0]:.4f}" in text
    assert str(letor_folder) not in text.split("defaults:")[1]
    (letor_folder / "test.txt").rename(letor_folder / "mine" / "test.txt")
    config = compose(
        f"hydra.searchpath=[file://{tmp_path}]", "experiment=found",
        f"data_dir={letor_folder}", f"cache_dir={tmp_path}/cache", "threads=1",
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    trained = run(config, tmp_path / "run", {})
    assert RunFolder(tmp_path / "run").crossfit == max(values)
    best = table[values.index(max(values))]
    assert trained["vali_ndcg@5"] == float(best["vali ndcg@5"])

    assert searched(*small)  # again: nothing is left to do, nothing is written anew
    assert found.read_text() == text
    assert "7 of 7 trials finished" in capsys.readouterr().err
    assert len(rows(tmp_path)) == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "overrides"),
    [
        (
            ["transform=none", "metrics_as=letor4", "+optimizer.amsgrad=true", "clip=1", "seed=3"],
            ["optimizer.lr=0.01", "model.fc_sizes=[64]"],
        ),
        (["experiment=rmse_web30k"], ["optimizer=adamw", "optimizer.lr=1e-05"]),
        (["model=lightgbm"], ["model.num_leaves=7", "model.feature_fraction=0.5"]),
        (["model=lightgbm"], ["+model.options.path_smooth=0.5"]),
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
    search = search_of([*arguments, "data_dir=here"])
    study = optuna.create_study(direction="maximize")
    study.add_trial(optuna.create_trial(value=0.5, user_attrs={"overrides": overrides}))
    (tmp_path / "experiment").mkdir()
    text = best_text("python train.py", search, study, study.best_trial)
    (tmp_path / "experiment/found.yaml").write_text(text)
    found = compose(f"hydra.searchpath=[file://{tmp_path}]", "experiment=found", "data_dir=here")
    wanted, _ = search.trial(overrides)
    for config in (found, wanted):
        config.device = "auto"  # where it ran is not what was found
    assert found == wanted
    assert "here" not in text


@pytest.mark.parametrize(
    "override", ["model._target_=os.system", "optimizer.lr=${oc.env:HOME}", "+hydra.run.dir=here"]
)
def test_a_database_cannot_set_what_is_not_searched(override: str, tmp_path: Path) -> None:
    search = search_of(["data_dir=here", f"output_dir={tmp_path}"])
    study = optuna.create_study(direction="maximize")
    study.add_trial(optuna.create_trial(value=0.5, user_attrs={"overrides": [override]}))
    path = tmp_path / "experiment/found.yaml"
    with pytest.raises(DataError, match=r"which its space does not have.*name=NAME"):
        write_best(path, search, study, study.best_trial)
    assert not path.exists()


@pytest.mark.slow
def test_a_garbled_test_file_is_not_looked_at(small: list[str], letor_folder: Path) -> None:
    (letor_folder / "mine" / "test.txt").write_bytes(b"\x00 no lists \xff")
    assert searched(*small, "trials=2", "epochs=1")


@pytest.mark.slow
def test_the_first_trial_is_the_config_even_outside_the_space(
    small: list[str], tmp_path: Path
) -> None:
    small = [item for item in small if item != "l2=0"]
    assert searched(*small, "trials=2", "epochs=1", "space.optimizer.lr=[0.05,0.1]")
    first, second = rows(tmp_path)
    assert (first["optimizer.lr"], first["l2"], first["state"]) == ("", "", "done")
    assert 0.05 <= float(second["optimizer.lr"]) <= 0.1
    (trial, _) = finished(study_of(*small))
    assert trial.user_attrs["overrides"] == []


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert ", pruned after epoch " in capsys.readouterr().err


def test_each_of_several_trainings_has_its_epochs_before_the_trial_is_pruned(
    small: list[str],
) -> None:
    search = search_of((*small, "epochs=4", "seeds=1,2,3", "prune_after=3"))
    study = optuna.create_study(direction="maximize")
    trial = study.ask()
    trial.should_prune = lambda: len(report._values) == 2  # type: ignore[method-assign]
    report, key = Report(search, trial), f"vali_{search.config.select_on}"
    report.begin(search.config, search.repeats[0])
    for epoch in range(5):
        report(epoch, {key: 0.5 + 0.1 * epoch})
    report.begin(search.config, search.repeats[1])
    report(1, {key: 0.2})
    report(2, {key: 0.3})
    with pytest.raises(optuna.TrialPruned, match="after epoch 3 of seed2"):
        report(3, {key: 0.1})
    study.tell(trial, state=TrialState.PRUNED)
    (told,) = study.trials
    assert told.value == pytest.approx((0.9 + 0.3 + 0) / 3)
    assert worth(told) == pytest.approx((0.9 + 0.3) / 2)
    told.user_attrs["pruned"] = "after epoch 3 of seed2"
    assert "ndcg@5 0.6000 on vali, pruned after epoch 3 of seed2" in sentence(told, "ndcg@5")


def test_trainings_of_several_lengths_do_not_report_over_each_other(small: list[str]) -> None:
    search = search_of((*small, "seeds=1,2", "space.epochs=[choice,4,12]"))
    study = optuna.create_study(direction="maximize")
    trial = study.ask()
    report, key = Report(search, trial), f"vali_{search.config.select_on}"
    for repeat in search.repeats:
        report.begin(search.trial(["epochs=12"])[0], repeat)
        for epoch in range(13):
            report(epoch, {key: 0.5})
    assert len(study.trials[0].intermediate_values) == 2 * 12


def test_a_trial_is_worth_its_crossfit_value_and_the_pruner_sees_the_best_epoch(
    small: list[str],
) -> None:
    worths = []
    for value in ("crossfit", "best"):
        search = search_of((*small, "seeds=1,2", "epochs=2", f"select_value={value}"))
        study = optuna.create_study(direction="maximize")
        report, key = Report(search, study.ask()), f"vali_{search.config.select_on}"
        for repeat, crossfit in zip(search.repeats, (Crossfit(0.4, 0), None), strict=True):
            report.begin(search.config, repeat)
            report(1, {key: 0.7})
            report(2, {key: 0.6})
            report.end(crossfit)
        assert report.mean == list(study.trials[0].intermediate_values.values())[-1] == 0.7
        worths.append(report.worth)
    assert worths == [pytest.approx((0.4 + 0.7) / 2), 0.7]


@pytest.mark.slow
def test_values_of_two_kinds_are_not_mixed(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [item for item in small if not item.startswith("epochs=")] + ["epochs=1"]
    assert searched(*small, "trials=1")
    said = refused(*small, "trials=2", "select_value=best")
    assert "select_value=crossfit, now it is best: put it back, or give name=NAME" in said
    monkeypatch.setattr("ltr.search.definition.FEW_LISTS", 1)
    assert "now it is best" in refused(*small, "trials=2")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_value_is_the_mean_over_seeds(small: list[str], tmp_path: Path) -> None:
    assert searched(*small, "trials=1", "seeds=1,2")
    places = [tmp_path / f"out/search/mine/trials/0000/seed{seed}" for seed in (1, 2)]
    best = [pd.read_csv(place / "history.csv")["vali_ndcg@5"].iloc[1:].max() for place in places]
    assert best[0] != best[1]
    assert float(rows(tmp_path)[0]["vali ndcg@5"]) == pytest.approx(sum(best) / 2, abs=1e-12)
    (trial,) = finished(study_of(*small))
    assert list(trial.intermediate_values) == [1, 2, 3, 5, 6, 7]
    steps = list(trial.intermediate_values.values())
    assert steps == sorted(steps)
    assert steps[2] == pytest.approx(best[0] / 2)
    assert "of letor, seeds 1 2 (mean): trial 0" in (tmp_path / "experiment/found.yaml").read_text()


def test_dry_run_prints_the_space_and_the_first_config(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert searched(*small, "dry_run=true", "trials=9")
    out = capsys.readouterr().out
    assert (
        "search mine by ndcg@5 on vali of letor (select_value=null)\n9 trials of one training each"
        in out
    )
    assert "optimizer.lr  [float,0.001,0.1,log]  0.001" in out
    assert "first trial: ltr train dataset=letor" in out
    assert "_target_: ltr.losses.listnet_loss" in out
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@real_data
def test_real_folds_are_searched_together(tmp_path: Path) -> None:
    assert searched(
        "dataset=mq2008", f"data_dir={os.environ['LTR_DATA_DIR']}", f"cache_dir={tmp_path}/cache",
        "model=linear", "loss=listnet", "epochs=1", "trials=2", "folds=1,2", "name=mine",
        f"output_dir={tmp_path}/out", f"write={tmp_path}/experiment/found.yaml", "threads=1",
    )  # fmt: skip
    assert "of mq2008, folds 1 2 (mean)" in (tmp_path / "experiment/found.yaml").read_text()
