"""Spaces: as files, put together, changed on the command line, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest
from made_search import refused
from orders import search_of

from ltr.errors import LTRError
from ltr.search.check import check_space
from ltr.search.claims import Claim, begin, claim
from ltr.search.plan import make_plan
from ltr.search.space import FORMS, Choice, Range, distribution, parse_space, spaces
from ltr.search.study import open_study


@pytest.mark.parametrize("model", [name for name in spaces() if not name.startswith("loss/")])
def test_the_space_of_every_model_holds_what_its_model_has(model: str) -> None:
    if model == "catboost":
        pytest.importorskip("catboost")
    plan = make_plan(search_of([f"model={model}"]))
    check_space(plan)
    assert set(plan.space) > {"model.learning_rate"} or "optimizer.lr" in plan.space


@pytest.mark.parametrize("name", [name for name in spaces() if name.startswith("loss/")])
def test_the_space_of_every_loss_holds_what_its_loss_has(name: str) -> None:
    plan = make_plan(search_of(["model=linear", f"loss={name[5:]}", f"space={name}"]))
    check_space(plan)
    assert all(space.holds(plan.default(key)) for key, space in plan.space.items())


def test_model_and_loss_are_put_together_and_changed_on_the_command_line() -> None:
    plan = make_plan(
        search_of(
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
    only = make_plan(search_of(["model=mlp", "space=loss/neuralndcg"]))
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


def test_a_key_that_the_config_does_not_have_is_searched_with_a_plus(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    key = "model.options.path_smooth"
    assert refused("model=lightgbm", f"space.{key}=[float,0,5]") == (
        f"space: {key}=0.0 cannot be had: {key}: no such key; to search a key that the config does "
        f"not have, write space.+{key}"
    )
    assert "write" not in refused("space.optimizer=[choice,adam,adm]").partition("no such")[2]
    order = search_of(["model=lightgbm", f"space.+{key}=[float,0.5,5]"])
    plan = make_plan(order)
    check_space(plan)
    assert plan.trial([f"+{key}=0.5"])[0].model.options == {"path_smooth": 0.5}
    study = open_study(tmp_path, order)
    begin(plan, study, tmp_path)
    first, second = (claim(plan, study, tmp_path, 9) for _ in range(2))
    assert isinstance(first, Claim)
    assert first.overrides == ()
    assert isinstance(second, Claim)
    assert 0.5 <= plan.trial(second.overrides)[0].model.options.path_smooth <= 5


def test_the_plan_has_room_for_the_most_epochs_of_a_trial() -> None:
    def planned(*arguments: str) -> tuple[int, int]:
        plan = make_plan(search_of(["model=linear", "epochs=3", *arguments]))
        return plan.epochs, plan.prune_after

    assert planned() == (3, 1)
    assert planned("space.epochs=[choice,4,12]") == (12, 2)
    assert planned("space.epochs=[int,4,12]") == (12, 2)
    assert planned("space.epochs=[int,1,2]") == (3, 1)  # the first trial has the config's own
