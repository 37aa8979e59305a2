"""One model on several processes: the end of one ends all; resumed, they give the same bits.

Threads, devices, versions and the commit are recorded, and no part of what a run is.
"""

import re
import subprocess
from functools import partial
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
import torch

from ltr.cli.process import check_torchrun
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.resume import resumed_config
from ltr.experiment.run_folder import RunFolder, commit, versions
from ltr.training.checkpoint import load_checkpoint
from ltr.training.trainer import TrainingStep
from tests.helpers.made_lists import letor_lists, make_lists
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import assert_same_run, compose, identity, run

# Dropout, noise, a loss that draws, slices of unequal counts: 24 lists, five in a batch, 1 + 2 + 2.
HARD = (
    "dataset=letor", "dataset.folder=mine", "epochs=2", "batch_size=5", "list_size=6",
    "suggested.fc_sizes=[8]", "model.feed_forward=8", "model.blocks=1",
    "loss=listmle", "model.dropout=0.3", "augment.noise=0.1", "empty_lists=skip",
    "clip=0.5", "l2=0.01", "monitor=[train,vali]", "threads=1",
)  # fmt: skip
# ``train.py``, whose process 1 does ACTION before its eighth step, in the second epoch.
FAILING = """
import os, signal
import ltr.training.trainer as trainer
take, calls = trainer.TrainingStep.__call__, []
def until(self, *arguments):
    calls.append(arguments)
    if os.environ["RANK"] == "1" and len(calls) == 8:
        ACTION
    take(self, *arguments)
trainer.TrainingStep.__call__ = until
from ltr.__main__ import main
main("train")
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[list[str], Path]:
    """The arguments of a run, and the folder of two processes that have done it."""
    place = tmp_path_factory.mktemp("whole")
    letor_lists(place)
    arguments = [f"data_dir={place}", f"cache_dir={place}/cache", f"output_dir={place}", *HARD]
    folder = f"hydra.run.dir={place}/run"
    statuses, _, err = run_ranks(2, "train.py", *arguments, folder)
    assert statuses == [0, 0], err
    return arguments, place / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "statuses", "line", "steps"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", [143, 143], "stopped by SIGTERM", 8),
        ("os.kill(os.getpid(), signal.SIGKILL)", [2, -9], "error: another process", 5),
        ("raise MemoryError", [2, 2], "error: rank 1: not enough memory", 5),
        ("next(self.model.parameters()).data.add_(1)", [2, 2], "the weights of the 2 processes", 5),
    ],
)
def test_processes_end_together_and_resume_to_the_same_weights(
    whole, tmp_path, action, statuses, line, steps
) -> None:
    arguments, done = whole
    program = FAILING.replace("ACTION", action)
    got, _, err = run_ranks(2, program, *arguments, f"hydra.run.dir={tmp_path}")
    assert got == statuses, err
    assert line in err
    progress = load_checkpoint(tmp_path / "last.pt")["progress"]
    assert progress["epoch"] * 5 + progress["step"] == steps
    if steps == 8:  # in the middle of an epoch
        got, out, err = run_ranks(2, "train.py", f"resume={tmp_path}")
        assert got == [0, 0], err
        log = (tmp_path / "train.log").read_text()
        epoch_line = "epoch 2/2  loss"
        assert out.count("kept in") == err.count(epoch_line) == log.count(epoch_line) == 1
        assert len([*tmp_path.glob("events*")]) == 2  # of the run, and of the first when it went on
        assert '"processes": 2' in (tmp_path / "results.json").read_text()
        assert_same_run(done, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("model=tabm", "empty_lists=skip")], ids=["mlp", "members"])
def test_several_processes_train_as_one_where_nothing_is_drawn(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """With penalties, unequal slices, and a last batch with fewer lists than processes."""
    letor_lists(tmp_path)
    settings = (
        "dataset=letor", "dataset.folder=mine", f"data_dir={tmp_path}",
        f"cache_dir={tmp_path}/cache", "model=mlp", "model.hidden_sizes=[8]", "model.dropout=0",
        "loss=listnet", "epochs=3", "batch_size=23", "l1=0.001", "l2=0.01", "clip=1", "threads=1",
        "monitor=[train,vali]", *more,
    )  # fmt: skip
    histories = []
    for count in (1, 3):
        folder = tmp_path / str(count)
        statuses, _, err = run_ranks(count, "train.py", *settings, f"hydra.run.dir={folder}")
        assert statuses == [0] * count, err
        histories.append(RunFolder(folder).history)
    columns = ["loss", "grad_norm", "train_ndcg@5", "vali_ndcg@5"]
    one, three = (history[columns].iloc[1:] for history in histories)
    pd.testing.assert_frame_equal(one, three, rtol=1e-5, atol=1e-6)


def test_slices_cover_the_batch_and_draw_noise_of_their_own() -> None:
    lists = make_lists([3] * 13)
    data = ItemTensors(lists, no_transform(lists))
    settings = {"batch_size": 6, "list_size": 3, "seed": 0, "epoch": 0}
    whole = [batch.lists.tolist() for batch in train_batches(data, **settings)]
    slices = [
        [*train_batches(data, **settings, noise=0.1, rank=rank, ranks=4)] for rank in range(4)
    ]
    steps = zip(*slices, strict=True)
    assert [[i for part in step for i in part.lists.tolist()] for step in steps] == whole
    noisy = [float(part.features[0, 0, 0]) for parts in slices for part in parts if len(part)]
    assert len({*noisy}) == len(noisy) == 9
    without_lists = [part for parts in slices for part in parts if not len(part)]
    assert len(without_lists) == 3  # of the last step, with one list
    assert not any(part.mask.any() for part in without_lists)


def test_a_step_of_one_process_is_plain_pytorch(tiny) -> None:
    """To the bit: what one process computes is what a loop of a few lines does."""
    experiment = build(compose("loss=listnet", "model.dropout=0.3", *tiny))
    lists = make_lists([3, 1, 9, 4, 2, 7, 5, 6], empty=(0, 3))
    data, found = ItemTensors(lists, no_transform(lists)), []
    for plain in (False, True):
        torch.manual_seed(1)
        model = experiment.make_model(5)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        stepper = TrainingStep(model, experiment.loss, optimizer, experiment.settings)
        for batch in train_batches(data, batch_size=3, list_size=6, seed=0, epoch=0):
            if plain:
                scores = model(batch.features, batch.mask, batch.ranks)
                optimizer.zero_grad()
                experiment.loss(scores, batch.labels, batch.mask).mean().backward()
                optimizer.step()
            else:
                stepper(batch)
        found.append(model.state_dict())
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


@pytest.mark.slow
def test_what_processes_cannot_share_is_refused(tiny, monkeypatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": "4", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="table: torchrun started 4 processes"):
        check_torchrun("table", several=False)
    with pytest.raises(ConfigError, match="train -m: torchrun started 4 processes"):
        check_torchrun("train", several=True)
    with pytest.raises(ConfigError, match="LightGBM trains in one process"):
        build(compose("model=lightgbm"))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")  # WORLD_SIZE of something else
    check_torchrun("table", several=True)
    for more, message in (
        (["model=dasalc"], "the batch norm of DASALC"),
        (["batch_size=1"], "batch_size=1 leaves some of the 2 processes without work"),
    ):
        statuses, _, err = run_ranks(2, "train.py", *tiny[:-2], "loss=listnet", *more)
        assert statuses == [2, 2]
        assert message in err


@pytest.mark.slow
def test_threads_are_those_of_a_run_alone_and_are_kept(tiny, tmp_path, request) -> None:
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(2)
    own = [*tiny[:-3], "loss=listnet", "model=mlp", "model.hidden_sizes=[4]"]
    one, other = tmp_path / "1", tmp_path / "null"
    more = [f"resume={one}", "epochs=1", "threads=2"]
    for folder, cfg, used in (
        (one, lambda: compose(*own, "epochs=0", "threads=1"), 1),
        (other, lambda: compose(*own, "epochs=0", "threads=null"), 2),
        (one, lambda: resumed_config(compose(*more), more)[0], 2),
    ):
        folder.mkdir(exist_ok=True)
        run(cfg(), folder, {})
        results = RunFolder(folder).results
        assert (results["threads"], results["device"][:3]) == (used, "cpu")
    assert len({identity(compose(*own, f"threads={n}")) for n in (1, 2)}) == 1


def test_the_version_of_every_package_that_computes_is_recorded() -> None:
    here = versions()
    for name in ("torch", "numpy", "numba", "scipy", "pandas", "scikit-learn"):
        assert here[name] == metadata.version(name)


@pytest.mark.slow
def test_only_the_projects_own_clone_has_a_commit(tmp_path, monkeypatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    own, installed = tmp_path / "ltr", tmp_path / "venv" / "lib" / "ltr"
    for package in (own, installed):
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
    assert commit(own) is None  # outside git

    def git(*args: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("add", "ltr")
    git("commit", "-m", "one")
    head = commit(own) or ""
    assert re.fullmatch(r"[0-9a-f]{12}", head)
    assert commit(installed) is None  # in a folder of another repository
    (own / "__init__.py").write_text("x = 1\n")
    assert commit(own) == head + "+changes"
