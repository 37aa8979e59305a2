"""What a user mistypes is one line that names the key and ends with what to write instead."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from ltr.__main__ import COMMANDS
from ltr.cli.cli import call_command
from ltr.cli.compose import run_config, typed
from ltr.errors import LTRError
from ltr.experiment.build import build
from tests.helpers.folders import refused
from tests.helpers.made_lists import letor_lists
from tests.helpers.runs import compose, run

DATA = "data={folder}/mine/test.txt"
LISTS = "dataset=letor dataset.folder=mine"
RUN = "checkpoint={run}"
# The command, what is typed, the key or value that the line names, its remedy.
TABLE = [
    ("train", "loss=neuralndgc", "loss/neuralndgc", "options in 'loss': .*rmse"),
    ("train", "epoch=3", "epoch", "no such key"),
    ("train", "model.dropuot=0", "model.dropuot", r"did you mean model.dropout or .*--cfg job"),
    ("train", "lr=0.1", "lr", r"did you mean optimizer.lr\?"),
    ("train", "d_model=64", "d_model", r"did you mean model.fc_sizes\?"),
    ("train", "n_epochs=3", "n_epochs", r"did you mean epochs\?"),
    ("train", "model=mlp hidden_size=[8]", "hidden_size", r"did you mean model.hidden_sizes\?"),
    ("train", "hidden_size=[8]", "hidden_size", "model.hidden_sizes exists if you make a diff"),
    ("train", "loss=listnet loss.temperature=1", "loss.temperature", "a different choice of loss"),
    ("train", "loss=ranknet loss.mu=1", "loss.mu", r"did you mean loss\.k or loss\.sigma\?"),
    ("train", "+epoch=3", "+epoch=3", r"the key epoch has no effect; did you mean epochs\?"),
    ("evaluate", "chekpoint=x", "chekpoint", r"did you mean checkpoint\?"),
    ("train", "loss=neuralndgc", "neuralndgc", r"did you mean neuralndcg\?"),
    ("train", "datset=letor", "datset", r"did you mean dataset\?"),
    ("train", "nothing_like_it=3", "nothing_like_it", "no such key; --cfg job lists all"),
    ("train", "metrics=[ndgc@5]", "ndgc@5", "write <name> or <name>@<k>"),
    ("train", "loss=listnet +loss.temprature=1", "'temprature'", "it takes scores, labels"),
    ("train", "seed=-1", "seed=-1", "give a whole number >= 0"),
    ("train", "model.dropout=2", "dropout", "0"),
    ("train", "dataset=letor dataset.folder=theirs", "theirs", "set dataset.folder"),
    ("train", "loss=listnet 5", "5", "see --help"),
    ("prepare_data", "", "dataset=...", "see --help"),
    ("evaluate", f"{RUN} {LISTS} metrics=[]", "metrics", "name at least one metric"),
    ("evaluate", f"{RUN} {LISTS} device=gpu", "device=gpu", "choose one of auto, cpu, cuda"),
    ("evaluate", f"{RUN} {LISTS} threads=0", "threads=0", "give a whole number >= 1"),
    ("evaluate", f"{RUN} {LISTS} output=none/q.csv", "none", "create it first"),
    ("evaluate", f"{RUN} {LISTS} output=q.parquet", "q.parquet", "a name that ends in .csv"),
    ("evaluate", f"{RUN} {LISTS} split=dev", "split=dev", "choose one of train, vali, test"),
    ("evaluate", f"{RUN} {DATA} dataset=letor", "dataset", "leave one of them out|not both"),
    ("evaluate", f"{RUN} {DATA} output={{folder}}/mine/test.txt", "output", "would overwrite"),
    ("evaluate", f"{RUN} data=test.parquet", "data=", "dataset=table dataset.split.test="),
    ("evaluate", f"{RUN} data=none.txt", "none.txt", ""),
    ("table", "table=null", "table=...", "see --help"),
    ("table", "table=letor4_mq2009", "letor4_mq2009", "no such table; choose one of"),
    ("table", "table=ranknet_report rows=SVN", "rows=SVN", "the rows of ranknet_report: untr"),
    ("table", "table=letor4_mq2008 rows=ranksv", "ranksv", "letor4_mq2008: RankSVM, RankSVMn"),
    ("table", "table=ranknet_report seed=2", "seed=2", "a table sets the fold and seed"),
    ("table", "table=ranknet_report seeds=0", "seeds=0", "give a whole number >= 1"),
    ("table", "table=ranknet_report space.l2=[float,0.1,1]", "space.l2", "add budget=N"),
    ("table", "table=x hydra/launcher=joblib workers=2", "workers=2", "hydra/launcher=joblib"),
    ("table", "table=letor4_baselines margin=0.1", "margin=0.1", "leave this argument out"),
    ("table", "table=letor4_baselines epochs=1", "epochs=1", "leave this argument out"),
    ("evaluate", "scores=mine/vali.txt data=mine/test.txt output=mine/vali.txt", "scores", "would"),
    ("importances", "", "run=...", "see --help"),
    ("check_loss", "", "name=...", "see --help"),
    ("runs", "{folder}/none", "none", "expected a folder that contains runs"),
]  # fmt: skip


VALUES = [  # a value that is wrong, and what the line begins with: the whole key
    ("loss.k=0", "loss.k=0 is not a cutoff"),
    ("model.dropout=2", "model.dropout=2 is out of range"),
    ("model=mlp model.activation=foo", "model.activation: 'foo' is not an activation"),
    ("convention.gain=x", "convention.gain=x is not known"),
    ("metrics=[ndgc]", "metrics: 'ndgc' is not a metric"),
    ("select_on=x", "select_on: 'x' is not a metric"),
    ("optimizer.lr=abc", "optimizer: .*check optimizer.lr=abc"),
    ("+augment.foo=1", "augment.foo: no such key"),
    ("loss=distil", "loss: distil_loss learns the scores of another model: .*teacher=RUN"),
]


@pytest.mark.parametrize(("given", "line"), VALUES)
def test_a_wrong_value_is_named_with_its_whole_key(given: str, line: str) -> None:
    assert re.match(line, refused(lambda: build(compose(*given.split())), LTRError))


def test_a_key_that_another_override_reads_may_be_added() -> None:
    assert run_config(["+passes=3", "epochs=${passes}"])[0].epochs == 3


@pytest.mark.parametrize("group", ["loss", "model", "transform", "optimizer", "schedule"])
@pytest.mark.parametrize("text", ["- a\n- b\n", "a: 1\n"])
def test_a_file_of_ones_own_that_names_no_function_is_one_line(
    group, text, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "configs" / group / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    chosen = run_config([f"{group}=mine"])[0]
    assert f"{group}: its config file has no _target_" in refused(lambda: build(chosen), LTRError)
    said = refused(lambda: typed("train", ["epoch=3"]), LTRError)  # reads the files of all groups
    assert "did you mean epochs?" in said


@pytest.mark.slow
def test_a_transform_of_another_type_is_one_line(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "configs" / "transform" / "mine.yaml"
    path.parent.mkdir(parents=True)
    (tmp_path / "my_transform.py").write_text("def fit(lists):\n    return {}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for partial, says in (
        ("_partial_: true", "ltr.data.transforms return one), got dict"),
        ("", "transform (my_transform.fit)"),
    ):
        path.write_text(f"_target_: my_transform.fit\n{partial}\n")
        own = ["transform=mine", "model=linear", "loss=listnet", "epochs=1"]
        places = [f"data_dir={folder}", f"cache_dir={folder}/cache"]
        config = run_config([*LISTS.split(), *places, *own])[0]
        (tmp_path / "run").mkdir(exist_ok=True)
        assert says in refused(lambda config=config: run(config, tmp_path / "run", {}), LTRError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Lists, and the run folder ``run`` of a model that is not trained."""
    folder = letor_lists(tmp_path_factory.mktemp("refused"))
    (folder / "run").mkdir()
    own = ("model=linear", "loss=listnet", "epochs=0", f"cache_dir={folder}/cache")
    run(compose(*LISTS.split(), f"data_dir={folder}", *own), folder / "run", {})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("command", "given", "key", "remedy"), TABLE)
def test_it_is_one_line(command, given, key, remedy, folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    words = given.format(folder=folder, run=folder / "run").split()
    places = [f"data_dir={folder}", f"cache_dir={folder}/cache"]
    words += places if command in ("train", "evaluate") else []

    def ask() -> None:
        config = typed(command, words)
        if command == "train":
            build(config).dataset.check()
        else:
            module, _, function = COMMANDS[command][0].partition(":")
            call_command(getattr(import_module(module), function), config)

    line = refused(ask, LTRError)
    assert key in line
    assert re.search(remedy, line), line
