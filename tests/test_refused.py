"""What a user mistypes is one line that names the key and ends with what to write instead."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from conftest import compose, letor_lists
from folders import refused

from ltr.__main__ import COMMANDS
from ltr.console.compose import typed
from ltr.errors import LTRError
from ltr.experiment.build import build
from ltr.experiment.run import run

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
    ("train", "hidden_size=[8]", "hidden_size", r"did you mean model.hidden_sizes\?"),
    ("train", "nothing_like_it=3", "nothing_like_it", "no such key; --cfg job prints all"),
    ("train", "metrics=[ndgc@5]", "ndgc@5", "write <name> or <name>@<k>"),
    ("train", "loss=listnet +loss.temprature=1", "'temprature'", "it takes scores, labels"),
    ("train", "seed=-1", "seed=-1", "give a whole number >= 0"),
    ("train", "model.dropout=2", "dropout", "0"),
    ("train", "dataset=letor dataset.folder=theirs", "theirs", "set dataset.folder"),
    ("train", "loss=listnet 5", "5", "see --help"),
    ("prepare_data", "", "dataset=...", "see --help"),
    ("evaluate", f"{RUN} {LISTS} metrics=[]", "metrics", "asks for nothing"),
    ("evaluate", f"{RUN} {LISTS} device=gpu", "device=gpu", "choose one of auto, cpu, cuda"),
    ("evaluate", f"{RUN} {LISTS} threads=0", "threads=0", "give a whole number >= 1"),
    ("evaluate", f"{RUN} {LISTS} output=none/q.csv", "none", "create it first"),
    ("evaluate", f"{RUN} {LISTS} output=q.parquet", "q.parquet", "a name that ends in .csv"),
    ("evaluate", f"{RUN} {LISTS} split=dev", "split=dev", "choose one of train, vali, test"),
    ("evaluate", f"{RUN} {DATA} dataset=letor", "dataset", "leave one of them out|not both"),
    ("evaluate", f"{RUN} {DATA} output={{folder}}/mine/test.txt", "output", "would be lost"),
    ("evaluate", f"{RUN} data=test.parquet", "data=", "dataset=table dataset.split.test="),
    ("evaluate", f"{RUN} data=none.txt", "none.txt", ""),
    ("table", "table=null", "table=...", "see --help"),
    ("table", "table=letor4_mq2009", "letor4_mq2009", "no such table; table is one of"),
    ("table", "table=ranknet_report rows=SVN", "rows=SVN", "no such row; ranknet_report has untr"),
    ("table", "table=letor4_mq2008 rows=ranksv", "ranksv", "letor4_mq2008 has RankSVM, RankSVMn"),
    ("table", "table=ranknet_report seed=2", "seed=2", "a table runs its folds and seeds itself"),
    ("table", "table=ranknet_report seeds=0", "seeds=0", "give a whole number >= 1"),
    ("table", "table=ranknet_report space.l2=[float,0.1,1]", "space.l2", "give budget=N"),
    ("table", "table=x hydra/launcher=joblib workers=2", "workers=2", "hydra/launcher=joblib"),
    ("table", "table=letor4_baselines margin=0.1", "margin=0.1", "leave it out"),
    ("table", "table=letor4_baselines epochs=1", "epochs=1", "leave it out"),
    ("evaluate", "scores=mine/vali.txt data=mine/test.txt output=mine/vali.txt", "scores", "lost"),
    ("importances", "", "run=...", "see --help"),
    ("check_loss", "", "name=...", "see --help"),
    ("runs", "{folder}/none", "none", "give a folder that holds runs"),
]  # fmt: skip


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
            getattr(import_module(module), function)(config)

    line = refused(ask, LTRError)
    assert key in line
    assert re.search(remedy, line), line
