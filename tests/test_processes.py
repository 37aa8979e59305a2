"""One model on several processes: the same bits at any number of them; the end of one ends all.

Threads, devices, versions and the commit are recorded, and no part of what a run is.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

import processes
import pytest
import torch
from conftest import compose, letor_lists, make_lists
from runs import identity, run
from test_trainer import assert_same_run, train
from torch import Tensor
from torch.distributed import TCPStore

from ltr.console.process import check_torchrun
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.resume import resumed_config, with_shards
from ltr.experiment.run_folder import RunFolder, commit, versions
from ltr.training.checkpoint import load_checkpoint
from ltr.training.distributed import set_gradients
from ltr.training.network import Step

Launch = Callable[..., list[processes.Process]]
# Dropout, noise, a loss that draws, slices of unequal counts: 24 lists, five in a batch, 1 + 2 + 2.
HARD = (
    "dataset=letor", "dataset.folder=mine", "epochs=2", "batch_size=5", "list_size=6",
    "suggested.fc_sizes=[8]", "model.feed_forward=8", "model.blocks=1",
    "loss=listmle", "shards=3", "model.dropout=0.3", "augment.noise=0.1", "empty_lists=skip",
    "clip=0.5", "l2=0.01", "monitor=[train,vali]", "threads=1",
)  # fmt: skip
# ``train.py``, whose process 1 does ACTION before its eighth step, in the second epoch.
FAILING = """
import os, signal
import ltr.training.network as trainer
take, calls = trainer.Step.__call__, []
def until(self, batch):
    calls.append(batch)
    if os.environ["RANK"] == "1" and len(calls) == 8:
        ACTION
    take(self, batch)
trainer.Step.__call__ = until
from ltr.__main__ import main
main("train")
"""


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Start a program as torchrun does: a process for each rank, and a store for all."""
    kept = []

    def start(count: int, program: str, *arguments: str) -> list[processes.Process]:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        kept.append(store)
        env = {
            "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True", "WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
        }  # fmt: skip
        ranks = ({**env, "RANK": str(r), "LOCAL_RANK": str(r)} for r in range(count))
        return [processes.start(program, *arguments, env=one) for one in ranks]

    yield start
    kept.clear()


def ended(started: list[processes.Process]) -> tuple[list[int], str, str]:
    """The exit statuses, and what all printed together."""
    said = [process.communicate() for process in started]
    out, err = ("".join(parts) for parts in zip(*said, strict=True))
    return [process.wait() for process in started], out, err


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[list[str], Path]:
    """The arguments of a run, and the folder of one process that has done it."""
    place = tmp_path_factory.mktemp("whole")
    letor_lists(place)
    arguments = [f"data_dir={place}", f"cache_dir={place}/cache", f"output_dir={place}", *HARD]
    done = processes.run("train.py", *arguments, f"hydra.run.dir={place}/run")
    assert done.returncode == 0, done.stderr
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
def test_the_end_of_one_of_two_processes_ends_both_and_three_go_on_to_the_bits_of_one(
    whole, tmp_path, launch, action, statuses, line, steps
) -> None:
    arguments, done = whole
    program = FAILING.replace("ACTION", action)
    got, _, err = ended(launch(2, program, *arguments, f"hydra.run.dir={tmp_path}"))
    assert got == statuses, err
    assert line in err
    kept = load_checkpoint(tmp_path / "last.pt")["progress"]
    assert kept["epoch"] * 5 + kept["step"] == steps
    if steps == 8:  # in the middle of an epoch
        got, out, err = ended(launch(3, "train.py", f"resume={tmp_path}"))
        assert got == [0, 0, 0], err
        log = (tmp_path / "train.log").read_text()
        told = "epoch 2/2  loss"
        assert out.count("kept in") == err.count(told) == log.count(told) == 1
        assert len([*tmp_path.glob("events*")]) == 2  # of the run, and of the first when it went on
        results = tmp_path / "results.json"
        assert '"processes": 3' in results.read_text()
        results.write_text(results.read_text().replace('"processes": 3', '"processes": 1'))
        assert_same_run(done, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("empty", "model"), [("keep", "tabm"), ("skip", "mlp")])
def test_slices_give_the_gradient_of_the_batch(empty, model) -> None:
    """With weighted lists, unequal counts of empty ones, and more slices than lists at the end."""
    lists = make_lists([3, 1, 9, 4, 2, 7, 5, 6], empty=(0, 3, 4))
    data = ItemTensors(lists, no_transform(lists))
    data.weights = torch.arange(1.0, 9.0).numpy()
    cfg = compose(
        "loss=listnet", f"model={model}", "model.hidden_sizes=[4]", "model.dropout=0",
        f"empty_lists={empty}", "l2=0.1",
    )  # fmt: skip
    experiment = build(cfg)
    torch.manual_seed(0)
    ranker = experiment.make_model(5)
    stepper = Step(
        ranker, experiment.loss, torch.optim.SGD(ranker.parameters(), 0.0), experiment.settings
    )
    how = {"batch_size": 5, "list_size": 6, "seed": 0, "epoch": 0}

    def gradients(batches) -> list[Tensor]:
        found = []
        for batch in batches:
            stepper(batch)
            found += [p.grad.clone() for p in ranker.parameters()]
            found += [torch.tensor(one) for one in stepper.flush(1, 1, data.qids)[0]]
        return found

    whole = gradients(train_batches(data, **how))
    sliced = gradients(train_batches(data, shards=4, mine=range(4), **how))
    torch.testing.assert_close(sliced, whole, rtol=1e-4, atol=1e-6)


def test_each_slice_of_each_step_draws_numbers_of_its_own() -> None:
    lists = make_lists([3] * 12)
    data, weight = ItemTensors(lists, no_transform(lists)), torch.nn.Parameter(torch.ones(2))
    drawn, after = [], []
    how = {"batch_size": 6, "list_size": 3, "seed": 0, "noise": 0.1}
    for epoch in range(2):
        for batch in train_batches(data, shards=3, mine=range(3), epoch=epoch, **how):

            def sums(part) -> tuple[Tensor, Tensor, Tensor]:
                drawn.append((float(torch.rand(())), float(part.features[0, 0, 0])))
                return weight.sum(), torch.tensor(1), torch.tensor(1)

            set_gradients([weight], batch, sums)
            after.append(float(torch.rand(())))
    first, noisy = ({*one} for one in zip(*drawn, strict=True))
    assert len(first) == len(noisy) == 12
    assert len({*after}) == 4


def test_a_step_without_slices_is_plain_pytorch(tiny) -> None:
    """To the bit: what ``shards=null`` computes is what a loop of a few lines does."""
    experiment = build(compose("loss=listnet", "model.dropout=0.3", *tiny))
    lists = make_lists([3, 1, 9, 4, 2, 7, 5, 6], empty=(0, 3))
    data, found = ItemTensors(lists, no_transform(lists)), []
    for plain in (False, True):
        torch.manual_seed(1)
        model = experiment.make_model(5)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        stepper = Step(model, experiment.loss, optimizer, experiment.settings)
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
def test_what_processes_cannot_share_is_refused(tiny, tmp_path, monkeypatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": "4", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="start table without torchrun"):
        check_torchrun("table", several=False)
    with pytest.raises(ConfigError, match="start train -m without torchrun"):
        check_torchrun("train", several=True)
    assert with_shards(compose(), 4).shards == 4
    for overrides, remedy in (
        (["model=lightgbm"], "without torchrun"),
        (["shards=3"], "--nproc-per-node"),
        (["resume=outputs/RUN"], "without torchrun"),
    ):
        with pytest.raises(ConfigError, match=remedy):
            with_shards(compose(*overrides), 4)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")  # WORLD_SIZE of something else
    check_torchrun("table", several=True)
    with pytest.raises(ConfigError, match=r"batch norm of DASALC .* shards=null"):
        train(tmp_path / "run", *tiny[:-2], "model=dasalc", "loss=listnet", "shards=2")
    with pytest.raises(ConfigError, match=r"shards=6: give at most batch_size=5"):
        build(compose(*tiny, "loss=listnet", "shards=6"))


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
