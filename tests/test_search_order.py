"""What a search is asked for, and one line for every mistake in it."""

import subprocess
import sys

import pytest
from made_search import command, refused
from orders import search_of

from ltr.errors import LTRError
from ltr.search import order as order_module
from ltr.search.check import check_space
from ltr.search.order import Order, need_optuna
from ltr.search.plan import make_plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mlp"], "mlp: write KEY=VALUE"),
        (["trials=0"], "trials=0: give a whole number >= 1"),
        (["trials=many"], "trials=many: give a whole number >= 1"),
        (["folds=1,x"], "folds=1,x: give whole numbers, such as folds=1,2"),
        (["seeds="], "seeds=: give whole numbers, such as seeds=1,2"),
        (["pruner=mean"], "pruner=mean: write median or none"),
        (["dry_run=maybe"], "dry_run=maybe: write true or false"),
        (["name=a/b"], "name=a/b: write letters, digits, _, . and - only"),
        (["seed=1,2"], "seed=1,2: for the mean over several write seeds=1,2"),
        (["dataset.fold=1,2"], "dataset.fold=1,2: for the mean over several write folds=1,2"),
        (["resume=outputs/x"], "resume=outputs/x: a search cannot have it; leave it out"),
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
    with pytest.raises(
        LTRError, match=r"^a search needs Optuna: pip install 'ltr-torch\[search\]'$"
    ):
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


def test_a_mistake_is_one_line_and_2() -> None:
    done = subprocess.run(command("trials=x"), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: trials=x: give a whole number >= 1\n"


def test_an_order_keeps_what_is_for_train() -> None:
    order = search_of(["model=mlp", "trials=9", "seeds=1,2", "space=mlp,loss/bce", "epochs=4"])
    assert order == Order(
        arguments=order.arguments,
        overrides=("model=mlp", "epochs=4"),
        trials=9,
        seeds=(1, 2),
        space=("mlp", "loss/bce"),
    )


def test_several_values_are_several_searches_or_a_space() -> None:
    for word in ("model=linear,mlp", "loss=bce,rmse", "dataset=mq2008,web30k", "l2=choice(0,1)"):
        assert refused(word) == (
            f"{word}: a search has one value of a key: make one search for each"
        )
    said = refused("model=linear", "optimizer=adam,sgd")
    assert said == (
        "optimizer=adam,sgd: a search has one value of a key: make one search for each, or let the "
        "trials differ in it: space.optimizer=[choice,adam,sgd]"
    )
    plan = make_plan(search_of(["model=linear", said.rpartition(" ")[2]]))
    check_space(plan)
    assert plan.trial(["optimizer=sgd"])[1]["optimizer"] == "sgd"


def test_trees_are_not_searched_for_what_they_do_not_read() -> None:
    pytest.importorskip("lightgbm")
    for more, keys in (
        (["space.optimizer.lr=[float,1e-4,1]"], "optimizer.lr does"),
        (["space.schedule=[choice,step,constant]", "space.list_size=[int,5,9]"],
         "schedule, list_size do"),
        (["space=linear", "space.l2=null"], "optimizer.lr, batch_size do"),
    ):  # fmt: skip
        assert refused("model=lightgbm", *more) == (
            f"space: {keys} nothing to boosted trees: leave out; model.* are their settings"
        )
