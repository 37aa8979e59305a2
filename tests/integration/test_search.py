"""A search: what is searched; on vali only, with pruning and failures; a file at its end."""

import importlib
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
import torch
from optuna.trial import FrozenTrial, TrialState

import ltr.lab.search
from ltr.cli.compose import run_config
from ltr.cli.configs import files_of
from ltr.cli.keys import resolved
from ltr.errors import DataError, LTRError
from ltr.experiment.identity import user_code
from ltr.experiment.run_folder import RunFolder
from ltr.lab.search import command
from ltr.lab.search.definition import Search
from ltr.lab.search.space import DISTRIBUTION_FORMS, Distribution, parse_distribution
from ltr.lab.search.study import TrialReporter, default_params, suggest, trial_overrides
from ltr.training.checkpoint import save_checkpoint
from tests.helpers.made_checkpoint import make_content
from tests.helpers.orders import search_of
from tests.helpers.runs import compose, run
from tests.helpers.searches import print_search, read_trials, refuse_search


@pytest.mark.slow
def test_run_search_writes_a_config_that_trains_to_the_same_value(
    small_search, letor_folder, tmp_path, capsys
) -> None:
    activations = "space.model.output_activation=[choice,null,tanh]"
    small_search = [*small_search, "trials=7", "pruner=none", activations]
    (letor_folder / "mine" / "test.txt").write_bytes(b"\x00 no lists \xff")  # never looked at
    output = print_search(*small_search)
    messages = capsys.readouterr().err
    finished = re.findall(
        r"^([1-7]) of 7  trial \d+  crossfit ndcg@5 [01]\.\d{4} on vali", messages, re.M
    )
    assert finished == list("1234567")  # on standard error, where it is no terminal too
    table = read_trials(tmp_path)
    assert [*table.state] == ["COMPLETE"] * 7
    first = table.iloc[0]
    assert first["params_optimizer.lr"] == 0.001
    assert first["params_model.output_activation"] == "null"
    values = [*table.value]
    assert f"value: {max(values)}\n" in output
    assert f"own: {values[0]}\n" in output
    assert not list((tmp_path / "out/search/mine").rglob("*.pt"))

    path = tmp_path / "experiment/found.yaml"
    text = path.read_text()
    best = f"crossfit ndcg@5 {max(values):.4f} on vali of letor: the best of 7 trials of search"
    assert text.startswith(f"# @package _global_\n# {best} mine")
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

    assert print_search(*small_search)  # again: nothing is left to do, nothing is written anew
    assert path.read_text() == text
    assert "7 of 7 trials finished" in capsys.readouterr().err
    assert len(read_trials(tmp_path)) == 7


def trial_of(search: Search, **params: Any) -> FrozenTrial:
    """A finished trial with these values, and the first of the others."""
    params_of_all_keys = {
        key: params.get(key, space.values[0]) for key, space in search.space.items()
    }
    kind = optuna.distributions.CategoricalDistribution
    attributes = {"best_epoch": 0.6}
    kinds = {key: kind([value]) for key, value in params_of_all_keys.items()}
    return optuna.create_trial(
        value=0.5, params=params_of_all_keys, distributions=kinds, user_attrs=attributes
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (
            ["transform=none", "convention=letor4", "+optimizer.amsgrad=true", "clip=1", "seed=3",
             "space.model.fc_sizes=[choice,[64],[32]]"],
            {"optimizer.lr": 0.01, "model.fc_sizes": "[64]"},
        ),
        (["experiment=rmse_web30k", "space.optimizer=[choice,adam,adamw]"],
         {"optimizer": "adamw", "optimizer.lr": 1e-4}),
        (["model=lightgbm", "space.+model.options.path_smooth=[float,0.5,5]"],
         {"model.num_leaves": 7, "model.feature_fraction": 0.5}),
        (
            ["dataset=letor", "dataset.folder='a b'", "metrics=[ndcg@5,map]", "device=cpu",
             "space.clip=[choice,null,1]"],
            {"loss.temperature": 0.5},
        ),
    ],
)  # fmt: skip
def test_best_config_composes_to_the_config_of_the_trial(arguments, values, tmp_path) -> None:
    search = search_of([*arguments, "data_dir=here"])
    best = trial_of(search, **values)
    (tmp_path / "experiment").mkdir()
    text = command.best_config(search, command.best_result(search, [best]))
    (tmp_path / "experiment/found.yaml").write_text(text)
    composed = compose(f"hydra.searchpath=[file://{tmp_path}]", "experiment=found", "data_dir=here")
    expected, _ = search.trial(trial_overrides(search, best))
    for config in (composed, expected):
        config.device = "auto"  # where it ran is not what was found
    assert composed == expected
    assert "here" not in text


def test_describe_next_is_the_command_that_trains_the_best_settings(tmp_path) -> None:
    arguments = ["data_dir=a b", "transform=none", "space.model.fc_sizes=[choice,[64],[32]]"]
    search = search_of(arguments)
    best = trial_of(search, **{"optimizer.lr": 0.01})
    result = command.best_result(search, [best])
    next_line = command._describe_next(None, search, result)
    words = shlex.split(next_line.removeprefix("next: ltr train "))
    assert run_config(words) == search.trial(trial_overrides(search, best))
    written = command._describe_next(Path("configs/experiment/shop.yaml"), search, result)
    assert written == "written to configs/experiment/shop.yaml: ltr train experiment=shop"


@pytest.mark.parametrize("value", ["os.system", "${oc.env:HOME}", 1e9])
def test_best_result_refuses_values_outside_the_space(value) -> None:
    search = search_of(["data_dir=here", "space=linear"])
    with pytest.raises(DataError, match=r"not in the space.*name=NAME"):
        command.best_result(search, [trial_of(search, **{"optimizer.lr": value})])


def test_suggest_uses_the_config_for_the_first_trial(small_search) -> None:
    small_search = [item for item in small_search if item != "l2=0"]
    small_search.append("space.optimizer.lr=[float,0.05,0.1,log]")
    search = search_of(small_search)
    study = optuna.create_study()
    first = study.ask()
    second = study.ask()
    first.set_user_attr("default", True)
    for trial in (first, second):
        suggest(search, study, trial)
    assert (first.params, trial_overrides(search, first)) == ({}, ())
    assert 0.05 <= second.params["optimizer.lr"] <= 0.1
    assert len(trial_overrides(search, second)) == len(search.space)


@pytest.mark.slow
def test_run_search_prunes_bad_trials_and_says_when(small_search, tmp_path, capsys) -> None:
    more = ["trials=10", "epochs=4", "space.optimizer.lr=[choice,0.001,0.05,0.1]"]
    assert print_search(*small_search, *more)
    table = read_trials(tmp_path)
    pruned = table[table.state == "PRUNED"].iloc[0]
    assert int(pruned.number) >= 5
    epochs = int(pruned.user_attrs_pruned.removeprefix("after epoch "))
    (path,) = (tmp_path / f"out/search/mine/trials/{pruned.number:04d}").rglob("history.csv")
    history = pd.read_csv(path)
    assert 1 <= epochs == history.epoch.max() < 4
    assert "  pruned after epoch " in capsys.readouterr().err


def report_all(report: TrialReporter, search: Search, repeat: int, values: list[float]) -> None:
    report.begin_training(search.repeats[repeat], search.config.epochs)
    for epoch, value in enumerate(values):
        report.epoch({"epoch": epoch, f"vali_{search.metric}": value})


def test_trial_reporter_prunes_by_the_mean_of_several_trainings(small_search) -> None:
    search = search_of([*small_search, "epochs=4", "seeds=1,2,3"])
    study = optuna.create_study()
    report = TrialReporter(search, trial := study.ask())
    trial.should_prune = lambda: report.values[1:] == [0.3]  # type: ignore[method-assign]
    report_all(report, search, 0, [0.5, 0.6, 0.7, 0.8, 0.9])
    with pytest.raises(optuna.TrialPruned, match="after epoch 2 of seed2"):
        report_all(report, search, 1, [0.0, 0.2, 0.3, 0.1])
    study.tell(trial, state=TrialState.PRUNED)
    (pruned,) = study.trials
    assert pruned.value == pytest.approx((0.9 + 0.3 + 0) / 3)
    assert len(pruned.intermediate_values) == 4 + 2  # not over each other
    pruned.user_attrs["default"] = True
    assert command.describe_trial(pruned, search).startswith("pruned after epoch 2 of seed2")


def test_trial_reporter_reports_values_with_averaged_ties(small_search) -> None:
    search = search_of([*small_search, "epochs=4"])
    study = optuna.create_study()
    report = TrialReporter(search, trial := study.ask())
    trial.should_prune = lambda: False  # type: ignore[method-assign]
    (repeat,) = search.repeats
    report.begin_training(repeat, 4)
    for epoch, (printed, averaged) in enumerate([(0.6, 0.5), (1.0, 0.4), (0.55, 0.55)]):
        report.epoch({"epoch": epoch, "vali_ndcg@5": printed, "ties_averaged": averaged})
    assert report.values == [0.55]
    report.begin_training(repeat, 4)
    for epoch, value in enumerate([0.9, 0.5]):  # the start is kept, as the run keeps it
        report.epoch({"epoch": epoch, "vali_ndcg@5": value})
    assert report.values == [0.55, 0.9]


@pytest.mark.slow
def test_run_search_does_not_mix_values_of_two_kinds(small_search, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    small_search = [*small_search, "epochs=2", "seeds=1,2", "write=null"]
    assert print_search(*small_search, "trials=1")
    table = read_trials(tmp_path)
    folder = tmp_path / "out/search/mine/trials/0000"
    histories = [pd.read_csv(path) for path in sorted(folder.rglob("history.csv"))]
    best = [history["vali_ndcg@5"].max() for history in histories]
    assert best[0] != best[1]
    assert table.user_attrs_best_epoch[0] == pytest.approx(sum(best) / 2, abs=1e-12)
    assert table.value[0] < table.user_attrs_best_epoch[0]
    text = (tmp_path / "out/search/mine/best.yaml").read_text()
    assert not (tmp_path / "configs").exists()
    assert "of letor seed1 seed2: the best of 1 trials" in text
    message = refuse_search(*small_search, "trials=2", "select_value=best")
    assert (
        "select_value=crossfit, but now select_value=best: set it back, or start a new search with"
        in message
    )
    monkeypatch.setattr("ltr.lab.search.command.FEW_LISTS", 1)
    assert "but now select_value=best" in refuse_search(*small_search, "trials=2")


@pytest.mark.slow
def test_run_search_records_failed_trials_and_continues(small_search, tmp_path) -> None:
    more = ["space.optimizer.lr=[choice,0.001,1e30]", "optimizer=sgd", "loss=mse"]
    small_search = [item for item in small_search if item != "loss=listnet"]
    untrainable = [*more, "space.optimizer.lr=[float,1e30,1e31]", "optimizer.momentum=0", "l1=1e38"]
    output = refuse_search(*small_search, *untrainable, "trials=1", "epochs=1", "name=none")
    assert re.search("no trial was trained to the end: .*not finite", output)
    assert not (tmp_path / "experiment").exists()
    output = print_search(*small_search, *more, "trials=4", "epochs=1")
    table = read_trials(tmp_path)
    failed = table[table.state == "FAIL"]
    assert 0 < len(failed) < 4
    assert set(failed["params_optimizer.lr"].map(float)) == {1e30}
    assert "not finite" in failed.user_attrs_error.iloc[0]
    assert f"failed: {len(failed)}\n" in output


def test_run_search_dry_run_prints_the_space_and_the_first_config(small_search, tmp_path) -> None:
    out = print_search(*small_search, "dry_run=true", "trials=9")
    assert "search mine by ndcg@5 on vali of letor\n9 trials, training runs per trial: 1" in out
    assert "optimizer.lr  [float,0.001,0.1,log]  0.001" in out
    assert "first trial: ltr train dataset=letor" in out
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("dataset=mq2008 folds=1,x", "fold=x"),
        ("pruner=mean", "pruner=mean is not known: choose one of median, none"),
        (
            "select_value=crossfit select=last",
            "got select=last, which ignores the validation metric",
        ),
        ("dry_run=maybe", "dry_run=maybe: write true or false"),
        ("seed=1,2", "seeds=1,2 and folds=1,2 take the mean"),
        (
            "resume=outputs/x",
            "resume=outputs/x: to continue a search, repeat its command; leave out",
        ),
        ("space.l2=[float,", "space.l2='[float,': expected [float,LOW,HIGH]"),
        ("space=mpl", "space=mpl: unknown space; choose one of adarank, "),
        ("los=bce", "los: no such key"),
        ("space.model.dropuot=[float,0,1]", "model.dropuot: no such key"),
        ("space.dataset.fold=[int,1,5]", "space.dataset.fold: a search cannot vary the data"),
        ("space.model.dropout=[float,0,2]", "space: model.dropout=2.0 cannot be built: "),
        ("folds=all", "dataset.fold: no such key"),
        (
            "space=linear optimizer.lr=1 l2=0 batch_size=2",
            "the search space for model=transformer is empty",
        ),
        ("dataset=mq2008 data_dir=/nowhere", "download MQ2008.rar"),
        ("optimizer=adam,sgd", "'space.optimizer=[choice,adam,sgd]' searches over several"),
        ("space.l2=0.1", "space.l2=0.1: expected [float,LOW,HIGH]"),
    ],
)
def test_run_search_refuses_wrong_arguments_with_the_remedy(arguments, message) -> None:
    assert message in refuse_search(*arguments.split())


def test_search_package_without_optuna_says_how_to_install_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        LTRError, match=r"^optuna cannot be imported .*: run pip install 'ltr-torch\[search\]'"
    ):
        importlib.reload(ltr.lab.search)


def test_define_search_passes_other_keys_to_train() -> None:
    options = ["trials=9", "seeds=1,2", "folds=3,4", "space=mlp,loss/ranknet"]
    search = search_of(["dataset=mq2008", "model=mlp", "loss=ranknet", *options, "epochs=4"])
    assert search.overrides == ("dataset=mq2008", "model=mlp", "loss=ranknet", "epochs=4")
    assert (search.trials, search.config.epochs) == (9, 4)
    folds = ("dataset.fold=3", "dataset.fold=4")
    assert search.repeats == tuple((fold, seed) for fold in folds for seed in ("seed=1", "seed=2"))


@pytest.mark.slow
def test_settings_of_a_search_include_initial_weights(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "searched_own.py"
    weights = tmp_path / "last.pt"
    module.write_text("a = 1")
    save_checkpoint(weights, make_content(config={"select": "last"}, transform={}))
    arguments = ["model=linear", "loss._target_=searched_own.loss", f"init_from={tmp_path}"]
    search = search_of(arguments)
    code = user_code(resolved(search.config))
    settings = search.settings()
    (tmp_path / "copy").mkdir()
    shutil.copy(weights, tmp_path / "copy")
    assert search_of([*arguments[:2], f"init_from={tmp_path}/copy"]).settings() == settings
    save_checkpoint(
        weights,
        make_content(config={"select": "last"}, transform={}, model={"weight": torch.ones(50)}),
    )
    assert search.settings() != settings
    assert user_code(resolved(search.config)) == code
    module.write_text("a = 2")
    assert user_code(resolved(search.config)) != code


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in files_of("space") if name != "features"])
def test_check_space_accepts_every_space_of_the_project(name) -> None:
    is_loss = name.startswith("loss/")
    if name == "catboost":
        pytest.importorskip("catboost")
    chosen = ["model=linear", f"loss={name[5:]}"] if is_loss else [f"model={name}"]
    teacher = ["teacher=a-run"] if name == "loss/distil" else []
    search = search_of([*chosen, f"space={name}", *teacher])
    command.check_space(search)
    assert not is_loss or default_params(search).keys() == search.space.keys()


@pytest.mark.slow
def test_define_search_joins_spaces_and_applies_changes() -> None:
    search = search_of(
        [
            *("model=mlp", "loss=neuralndcg", "model.dropout=0.2", "space.batch_size=null"),
            *("space.optimizer.lr=[float,1e-5,1e-2,log]", "space.clip=[choice,null,1,2.5]"),
            *("space.optimizer=[choice,adam,adamw]", "space.model.activation=[choice,relu,elu]"),
        ]
    )
    sizes = ("[32]", "[64,32]", "[128,64]", "[256,128]", "[256,128,64]")
    assert search.space == {
        "model.hidden_sizes": Distribution("choice", sizes),
        "loss.temperature": Distribution("float", (0.01, 10.0), log=True),
        "optimizer.lr": Distribution("float", (1e-5, 1e-2), log=True),
        "clip": Distribution("choice", ("null", "1", "2.5")),
        "optimizer": Distribution("choice", ("adam", "adamw")),
        "model.activation": Distribution("choice", ("relu", "elu")),
    }
    command.check_space(search)
    assert (search.default("optimizer"), search.default("model.hidden_sizes")) == ("adam", [64, 32])
    config, groups = search.trial(["optimizer=adamw", "model.hidden_sizes=[32]", "clip=null"])
    assert (groups["optimizer"], config.model.hidden_sizes, config.clip) == ("adamw", [32], None)
    command.check_space(search_of(["model=mlp", "space=mlp,features"]))
    added = search_of(["model=lightgbm", "space.+model.options.path_smooth=[float,0.5,5]"])
    (config, _) = added.trial(["+model.options.path_smooth=0.5"])
    first = default_params(added)
    assert config.model.options == {"path_smooth": 0.5}
    assert "+model.options.path_smooth" not in first


@pytest.mark.parametrize(
    "value",
    [
        0.1,
        *(["normal", 0, 1], [0.1, 1.0], ["float", 1], ["float", 0, "nan"]),
        *(["float", 0, 1, "lgo"], ["float", 0, float("inf")], ["int", 1, 2.5], ["int", False, 2]),
        *(["float", 2, 1], ["choice", "a", "a"], ["float", 0, 1, "log"]),
    ],
)
def test_parse_distribution_refuses_a_wrong_list_with_the_remedy(value) -> None:
    with pytest.raises(LTRError) as caught:
        parse_distribution("x", value)
    assert str(caught.value).startswith("x=")
    assert str(caught.value).endswith(DISTRIBUTION_FORMS)


def test_search_identity_ignores_new_keys_that_are_null_or_false(monkeypatch) -> None:
    search = search_of(["epochs=1", "model=mlp"])
    settings = search.settings()
    identity = command.search_identity(search)
    monkeypatch.setattr(Search, "settings", lambda self: settings | {"later": None, "on": False})
    assert command.search_identity(search) == identity
    older = {key: settings[key] for key in settings.keys() - {"loss.gain", "suggested.gain"}}
    assert len(older) == len(settings) - 2
    monkeypatch.setattr(Search, "settings", lambda self: older)  # as before there was a gain
    assert command.search_identity(search) == identity
    monkeypatch.setattr(Search, "settings", lambda self: settings | {"later": 0})
    assert command.search_identity(search) != identity
