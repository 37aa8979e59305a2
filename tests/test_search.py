"""One search: on vali only, with pruning and failures, and a file at its end."""

import os
import re
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from conftest import compose, real_data
from made_search import refused, searched, small_search, trials
from optuna.trial import FrozenTrial, TrialState
from orders import search_of

from ltr.errors import DataError
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder
from ltr.search.command import best_text, found_by, sentence
from ltr.search.definition import Search
from ltr.search.study import Report, overrides_of, suggest

small = small_search


@pytest.mark.slow
def test_a_search_ends_with_a_file_that_trains_to_the_same_value(
    small: list[str], letor_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [*small, "trials=7", "pruner=none", "space.model.output_activation=[choice,null,tanh]"]
    (letor_folder / "mine" / "test.txt").write_bytes(b"\x00 no lists \xff")  # never looked at
    out, err = searched(*small), capsys.readouterr().err
    said = re.findall(r"^([1-7]) of 7  trial \d+  crossfit ndcg@5 [01]\.\d{4} on vali", err, re.M)
    assert said == list("1234567")  # on standard error, where it is no terminal too
    table = trials(tmp_path)
    assert [*table.state] == ["COMPLETE"] * 7
    first = table.iloc[0]
    assert first["params_optimizer.lr"] == 0.001
    assert first["params_model.output_activation"] == "null"
    values = [*table.value]
    assert f"value: {max(values)}\n" in out
    assert f"own: {values[0]}\n" in out
    assert not list((tmp_path / "out/search/mine").rglob("*.pt"))

    found = tmp_path / "experiment/found.yaml"
    text = found.read_text()
    best = (
        f"crossfit ndcg@5 {max(values):.4f} on vali of letor: the best of 7 trials of search mine"
    )
    assert text.startswith(f"# @package _global_\n# {best}")
    assert str(letor_folder) not in text.split("defaults:")[1]
    (letor_folder / "test.txt").rename(letor_folder / "mine" / "test.txt")
    config = compose(
        f"hydra.searchpath=[file://{tmp_path}]", "experiment=found",
        f"data_dir={letor_folder}", f"cache_dir={tmp_path}/cache", "threads=1",
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    trained = run(config, tmp_path / "run", {})
    assert RunFolder(tmp_path / "run").results.get("crossfit") == max(values)
    best = table[table.value == max(values)].iloc[0]
    assert trained["vali_ndcg@5"] == best["user_attrs_best_epoch"]

    assert searched(*small)  # again: nothing is left to do, nothing is written anew
    assert found.read_text() == text
    assert "7 of 7 trials finished" in capsys.readouterr().err
    assert len(trials(tmp_path)) == 7


def trial_of(search: Search, **params: Any) -> FrozenTrial:
    """A finished trial with these values, and the first of the others."""
    every = {key: params.get(key, space.values[0]) for key, space in search.space.items()}
    kinds = {
        key: optuna.distributions.CategoricalDistribution([value]) for key, value in every.items()
    }
    return optuna.create_trial(
        value=0.5, params=every, distributions=kinds, user_attrs={"best_epoch": 0.6}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (
            ["transform=none", "metrics_as=letor4", "+optimizer.amsgrad=true", "clip=1", "seed=3",
             "space.model.fc_sizes=[choice,[64],[32]]"],
            {"optimizer.lr": 0.01, "model.fc_sizes": "[64]"},
        ),
        (["experiment=rmse_web30k", "space.optimizer=[choice,adam,adamw]"],
         {"optimizer": "adamw", "optimizer.lr": 1e-4}),
        (["model=lightgbm", "space.+model.options.path_smooth=[float,0.5,5]"],
         {"model.num_leaves": 7, "model.feature_fraction": 0.5}),
        (["model=lightgbm", "loss=listnet", "dataset=mq2008"], {"model.num_leaves": 7}),
        (
            ["dataset=letor", "dataset.folder='a b'", "metrics=[ndcg@5,map]", "device=cpu",
             "space.clip=[choice,null,1]"],
            {"loss.temperature": 0.5},
        ),
    ],
)  # fmt: skip
def test_the_file_composes_to_the_config_of_the_trial(
    arguments: list[str], values: dict[str, Any], tmp_path: Path
) -> None:
    search = search_of([*arguments, "data_dir=here"])
    best = trial_of(search, **values)
    (tmp_path / "experiment").mkdir()
    text = best_text(search, found_by(search, [best]))
    (tmp_path / "experiment/found.yaml").write_text(text)
    found = compose(f"hydra.searchpath=[file://{tmp_path}]", "experiment=found", "data_dir=here")
    wanted, _ = search.trial(overrides_of(search, best))
    for config in (found, wanted):
        config.device = "auto"  # where it ran is not what was found
    assert found == wanted
    assert "here" not in text


@pytest.mark.parametrize("value", ["os.system", "${oc.env:HOME}", 1e9])
def test_a_database_cannot_set_what_is_not_searched(value: Any) -> None:
    search = search_of(["data_dir=here", "space=linear"])
    with pytest.raises(DataError, match=r"not of the space.*name=NAME"):
        found_by(search, [trial_of(search, **{"optimizer.lr": value})])


def test_the_first_trial_is_the_config_even_outside_the_space(small: list[str]) -> None:
    small = [item for item in small if item != "l2=0"] + ["space.optimizer.lr=[float,0.05,0.1,log]"]
    search, study = search_of(small), optuna.create_study()
    first, second = study.ask(), study.ask()
    first.set_user_attr("default", True)
    for trial in (first, second):
        suggest(search, study, trial)
    assert (first.params, overrides_of(search, first)) == ({}, ())
    assert 0.05 <= second.params["optimizer.lr"] <= 0.1
    assert len(overrides_of(search, second)) == len(search.space)


@pytest.mark.slow
def test_bad_trials_are_pruned_and_say_when(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["trials=10", "epochs=4", "space.optimizer.lr=[choice,0.001,0.05,0.1]"]
    assert searched(*small, *more)
    table = trials(tmp_path)
    pruned = table[table.state == "PRUNED"].iloc[0]
    assert int(pruned.number) >= 5
    epochs = int(pruned.user_attrs_pruned.removeprefix("after epoch "))
    (path,) = (tmp_path / f"out/search/mine/trials/{pruned.number:04d}").rglob("history.csv")
    history = pd.read_csv(path)
    assert 1 <= epochs == history.epoch.max() < 4
    assert "  pruned after epoch " in capsys.readouterr().err


def reporting(*arguments: str) -> tuple[Search, optuna.Study, Report]:
    search = search_of(arguments)
    study = optuna.create_study(direction="maximize")
    return search, study, Report(search, study.ask())


def report_all(report: Report, search: Search, repeat: int, values: list[float]) -> None:
    report.begin(search.repeats[repeat], search.config.epochs)
    for epoch, value in enumerate(values):
        report.epoch({"epoch": epoch, f"vali_{search.metric}": value})


def test_a_trial_of_several_trainings_is_pruned_by_their_mean(small: list[str]) -> None:
    search, study, report = reporting(*small, "epochs=4", "seeds=1,2,3")
    trial = report.trial
    trial.should_prune = lambda: report.values[1:] == [0.3]  # type: ignore[method-assign]
    report_all(report, search, 0, [0.5, 0.6, 0.7, 0.8, 0.9])
    with pytest.raises(optuna.TrialPruned, match="after epoch 2 of seed2"):
        report_all(report, search, 1, [0.0, 0.2, 0.3, 0.1])
    study.tell(trial, state=TrialState.PRUNED)
    (told,) = study.trials
    assert told.value == pytest.approx((0.9 + 0.3 + 0) / 3)
    assert len(told.intermediate_values) == 4 + 2  # not over each other
    told.user_attrs["default"] = True
    assert sentence(told, search).startswith("pruned after epoch 2 of seed2")


@pytest.mark.slow
def test_values_of_two_kinds_are_not_mixed(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [item for item in small if not item.startswith("epochs=")] + ["epochs=2", "seeds=1,2"]
    assert searched(*small, "trials=1")
    table, place = trials(tmp_path), tmp_path / "out/search/mine/trials/0000"
    histories = [pd.read_csv(path) for path in sorted(place.rglob("history.csv"))]
    best = [history["vali_ndcg@5"].iloc[1:].max() for history in histories]
    assert best[0] != best[1]
    assert table.user_attrs_best_epoch[0] == pytest.approx(sum(best) / 2, abs=1e-12)
    assert table.value[0] < table.user_attrs_best_epoch[0]
    text = (tmp_path / "experiment/found.yaml").read_text()
    assert "of letor seed1 seed2: the best of 1 trials" in text
    said = refused(*small, "trials=2", "select_value=best")
    assert "select_value=crossfit, now it is best: put it back, or give name=NAME" in said
    monkeypatch.setattr("ltr.search.command.FEW_LISTS", 1)
    assert "now it is best" in refused(*small, "trials=2")


@pytest.mark.slow
def test_failed_trials_are_recorded_and_the_search_goes_on(
    small: list[str], tmp_path: Path
) -> None:
    more = ["space.optimizer.lr=[choice,0.001,1e30]", "optimizer=sgd", "loss=mse"]
    small = [item for item in small if item != "loss=listnet"]
    said = searched(*small, *more, "trials=4", "epochs=1")
    table = trials(tmp_path)
    failed = table[table.state == "FAIL"]
    assert 0 < len(failed) < 4
    assert set(failed["params_optimizer.lr"].map(float)) == {1e30}
    assert "not finite" in failed.user_attrs_error.iloc[0]
    assert f"failed: {len(failed)}\n" in said


@pytest.mark.slow
def test_where_every_trial_fails_the_reason_is_said(small: list[str], tmp_path: Path) -> None:
    more = ["space.optimizer.lr=[float,1e30,1e31]", "optimizer=sgd", "optimizer.momentum=0"]
    said = refused(*small, *more, "l1=1e38", "trials=1", "epochs=1")
    assert re.search("no trial was trained to its end: .*not finite", said)
    assert not (tmp_path / "experiment").exists()


def test_dry_run_prints_the_space_and_the_first_config(small: list[str], tmp_path: Path) -> None:
    out = searched(*small, "dry_run=true", "trials=9")
    assert "search mine by ndcg@5 on vali of letor\n9 trials of 1 tr" in out
    assert "optimizer.lr  [float,0.001,0.1,log]  0.001" in out
    assert "first trial: ltr train dataset=letor" in out
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@real_data
def test_real_folds_are_searched_together(tmp_path: Path) -> None:
    assert searched(
        "dataset=mq2008", f"data_dir={os.environ['LTR_DATA_DIR']}", f"cache_dir={tmp_path}/cache",
        "model=linear", "loss=listnet", "epochs=1", "trials=2", "folds=1,2", "name=mine",
        f"output_dir={tmp_path}/out", f"write={tmp_path}/experiment/found.yaml", "threads=1",
    )  # fmt: skip
    assert "of mq2008 fold1 fold2" in (tmp_path / "experiment/found.yaml").read_text()
