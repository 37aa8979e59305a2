"""What is searched: keys and spaces, put together, and one line for every mistake in them."""

import importlib
import shutil
from typing import Any

import pytest
import torch
from made_search import refused
from orders import search_of
from test_checkpoint import content

import ltr.search
from ltr.console.configs import files_of
from ltr.errors import LTRError
from ltr.experiment.identity import training_code
from ltr.search.command import check_space, search_identity
from ltr.search.definition import Search
from ltr.search.space import FORMS, Distribution, distribution
from ltr.search.study import default_params
from ltr.training.checkpoint import save_checkpoint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("dataset=mq2008 folds=1,x", "fold=x"),
        ("pruner=mean", "pruner=mean is not known: choose one of median, none"),
        ("select_value=vali", "select_value=vali is not known: choose one of crossfit, best"),
        ("select_value=crossfit select=last", "select=last chooses no epoch"),
        ("dry_run=maybe", "dry_run=maybe: write true or false"),
        ("seed=1,2", "seeds=1,2 and folds=1,2 take the mean"),
        ("resume=outputs/x", "resume=outputs/x: a search goes on by itself; leave it out"),
        ("space.l2=[float,", "space.l2='[float,': write [float,LOW,HIGH]"),
        ("space=mpl", "space=mpl: no such space; it is one of adarank, "),
        ("los=bce", "los: no such key"),
        ("space.model.dropuot=[float,0,1]", "model.dropuot: no such key"),
        ("space.dataset.fold=[int,1,5]", "space.dataset.fold: trials must differ in knobs"),
        ("space.model.dropout=[float,0,2]", "space: model.dropout=2.0 cannot be built: "),
        ("folds=all", "dataset.fold: no such key"),
        ("space=linear optimizer.lr=1 l2=0 batch_size=2", "there is nothing to search"),
        ("dataset=mq2008 data_dir=/nowhere", "download MQ2008.rar"),
        ("optimizer=adam,sgd", "'space.optimizer=[choice,adam,sgd]' searches them"),
        ("space.l2=0.1", "space.l2=0.1: write [float,LOW,HIGH]"),
    ],
)
def test_mistakes_are_one_line_with_the_remedy(arguments: str, message: str) -> None:
    assert message in refused(*arguments.split())


def test_without_optuna_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LTRError, match=r"^a search needs Optuna: install the extra search: pip"):
        importlib.reload(ltr.search)


def test_keys_that_are_not_the_search_s_are_for_train() -> None:
    search = search_of(
        ["model=mlp", "loss=ranknet", "trials=9", "seeds=1,2", "space=mlp,loss/ranknet", "epochs=4"]
    )
    assert search.overrides == ("model=mlp", "loss=ranknet", "epochs=4")
    assert (search.trials, search.config.epochs) == (9, 4)
    assert search.repeats == (("seed=1",), ("seed=2",))


def test_the_users_code_and_the_weights_it_begins_with_count(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    own, weights = tmp_path / "searched_own.py", tmp_path / "last.pt"
    own.write_text("a = 1")
    save_checkpoint(weights, content(config={"select": "last"}, transform={}))
    begun = ["model=linear", "loss._target_=searched_own.loss", f"init_from={tmp_path}"]
    search = search_of(begun)
    code, settings = training_code(search.config), search.settings()
    (tmp_path / "copy").mkdir()
    shutil.copy(weights, tmp_path / "copy")
    assert search_of([*begun[:2], f"init_from={tmp_path}/copy"]).settings() == settings
    save_checkpoint(
        weights, content(config={"select": "last"}, transform={}, model={"weight": torch.ones(50)})
    )
    assert search.settings() != settings
    assert training_code(search.config) == code
    own.write_text("a = 2")
    assert training_code(search.config) != code


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in files_of("space") if name != "features"])
def test_every_space_holds_what_its_model_or_loss_has(name: str) -> None:
    of_loss = name.startswith("loss/")
    if name == "catboost":
        pytest.importorskip("catboost")
    chosen = ["model=linear", f"loss={name[5:]}"] if of_loss else [f"model={name}"]
    teacher = ["teacher=a-run"] if name == "loss/distil" else []
    search = search_of([*chosen, f"space={name}", *teacher])
    check_space(search)
    assert not of_loss or default_params(search).keys() == search.space.keys()


@pytest.mark.slow
def test_model_and_loss_are_put_together_and_changed_on_the_command_line() -> None:
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
    check_space(search)
    assert (search.default("optimizer"), search.default("model.hidden_sizes")) == ("adam", [64, 32])
    config, groups = search.trial(["optimizer=adamw", "model.hidden_sizes=[32]", "clip=null"])
    assert (groups["optimizer"], config.model.hidden_sizes, config.clip) == ("adamw", [32], None)
    check_space(search_of(["model=mlp", "space=mlp,features"]))
    added = search_of(["model=lightgbm", "space.+model.options.path_smooth=[float,0.5,5]"])
    (config, _), first = added.trial(["+model.options.path_smooth=0.5"]), default_params(added)
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
def test_a_bad_distribution_says_what_to_write(value: Any) -> None:
    with pytest.raises(LTRError) as caught:
        distribution("x", value)
    assert str(caught.value).startswith("x=")
    assert str(caught.value).endswith(FORMS)


def test_a_key_that_is_added_as_null_or_false_makes_no_other_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = search_of(["epochs=1", "model=mlp"])
    settings, known = search.settings(), search_identity(search)
    monkeypatch.setattr(Search, "settings", lambda self: settings | {"later": None, "on": False})
    assert search_identity(search) == known
    monkeypatch.setattr(Search, "settings", lambda self: settings | {"later": 0})
    assert search_identity(search) != known
