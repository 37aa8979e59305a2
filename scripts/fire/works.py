"""The works that are disturbed: their commands, how a user goes on, what they must have made."""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ltr.data.lists import SPLITS
from scripts.fire.children import Moment, child
from tests.helpers.made_lists import make_lists, write_letor

# How a try can end, from the best to the worst; one that ends in several ways is the worst of them.
OUTCOMES = (
    "noticed",  # one line of error, or repaired with a warning
    "harmless",  # what the program gives is what it gives undisturbed
    "left",  # a part of a file, or a lock, stays behind
    "traceback",
    "crash",  # it hangs, or ended by a signal, or with a status that nobody promised
    "lost",  # finished work is gone, or the run cannot go on
    "silent",  # another result, without a word
)


class Result(NamedTuple):
    """The end of one try, and what was wrong where it is a fault."""

    outcome: str
    detail: str = ""


class Subject(NamedTuple):
    """One thing that is tried again and again."""

    part: str  # kills or flips
    name: str  # without blanks, so that it can be typed after only=
    attempt: Callable[[Random], Result]  # a try; all of it is drawn


Command = tuple[str, ...]
Made = dict[str, str]  # what a work has made: name -> its fingerprint
LISTS = ("dataset=letor", "dataset.folder=mine", "data_dir=data", "cache_dir=cache")
_PLACES = (*LISTS, "output_dir=out", "threads=1")
# What may differ between two runs of one configuration.
_TIMES = ("seconds", "lists_per_second", "wall_seconds", "finished", "commit", "run")


def _plain(value: Any) -> str:
    """Nested values and tensors as JSON, to the last bit, but for what tells the time."""
    text = json.dumps(value, default=lambda tensor: tensor.tolist(), sort_keys=True)
    return re.sub(rf'"({"|".join(_TIMES)})": [^,}}]+', "", text)


def different(made: Made, expected: Made) -> list[str]:
    """The names of what is not as expected."""
    return [name for name in {**expected, **made} if made.get(name) != expected.get(name)]


def run_folders(folder: Path) -> list[Path]:
    """The folders of runs that a user could go on with, or read."""
    runs = sorted(path.parent for path in folder.glob("out/**/last.pt"))
    return [run for run in runs if not run.name.startswith("before-")]  # of other code or data


def _table(path: Path) -> pd.DataFrame:
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return frame.drop(columns=list(_TIMES), errors="ignore")


def _made_by_run(run: Path, weights: bool) -> Made:
    """What a run has left; the weights where they count."""
    from ltr.training.checkpoint import load_checkpoint

    results = json.loads((run / "results.json").read_text())
    own = ("test", "vali", "untrained_vali", "selected_epoch", "best_epoch", "epochs", "data")
    made = {"results.json": _plain({key: results[key] for key in own})}
    made |= {name: (run / name).read_text() for name in ("queries.csv", "scores.csv")}
    for name in ("best.pt", "last.pt") if weights else ():
        content = load_checkpoint(run / name)
        keys = ("model", "optimizer", "base_lr", "progress")
        made[name] = _plain({key: content[key] for key in keys})
    return made | {"history.csv": _table(run / "history.csv").to_csv()}


def _made_by_runs(folder: Path, *tables: str, weights: bool = True) -> Made:
    """What all runs below ``folder`` have left, and the tables over them."""
    paths = [path for pattern in tables for path in folder.glob(pattern)]
    made = {path.name: _table(path).to_csv() for path in paths}
    for run in run_folders(folder):
        name = run.name if tables else ""  # a single run is named by the time
        made |= {f"{name} {key}": one for key, one in _made_by_run(run, weights).items()}
    return made


def _made_cache(folder: Path) -> Made:
    arrays = sorted((folder / "cache").glob("*/*.npy"))
    return {str(path.relative_to(folder)): repr(path.read_bytes()) for path in arrays}


def _made_by_search(folder: Path) -> Made:
    """The value of each trial that is done, by what it set, and how many there are."""
    trials = _table(folder / "out/search/mine/trials.csv").query("state == 'COMPLETE'")
    lr, value = trials["params_optimizer.lr"], trials["user_attrs_best_epoch"]
    values = dict(zip(lr, value, strict=True))
    return {**values, "trials done": str(len(trials)), "trials that differ": str(len(values))}


@dataclass(frozen=True)
class Work:
    """A command of the project, small."""

    name: str
    begin: Command  # script and arguments
    made: Callable[[Path], Made]  # what it has made in the folder where it was done
    single: bool = False  # one run, which a user resumes; of others the same command goes on
    of: "Work | None" = None  # the work whose folder it needs
    output: str = ""  # the folder that it writes once, and that a user evaluates when it is there

    def go_on(self, folder: Path) -> Command:
        """What a user types, in the folder of a try, after it was cut off."""
        if self.output and (folder / self.output).exists():
            return ("ltr", "evaluate", self.output, *LISTS[2:], "threads=1")
        runs = run_folders(folder) if self.single else []
        if not runs:
            return self.begin
        return ("train.py", f"resume={runs[0].relative_to(folder)}", *LISTS[2:], "threads=1")


_OFTEN = "checkpoint_minutes=0.00001"
_TINY = ("epochs=3", "batch_size=5", "list_size=6", "loss=listnet", _OFTEN)
_TREES = {
    "lightgbm": ("model.min_data_in_leaf=3", "model.num_leaves=4"),
    "xgboost": ("model.max_depth=2",),
    "catboost": ("model.depth=2",),
}


def trees(library: str) -> Work:
    """Training of boosted trees; a library writes its settings beside them, so scores count."""
    begin = ("train.py", *_PLACES, f"model={library}", *_TREES[library], "epochs=20")
    return Work(library, begin, partial(_made_by_runs, weights=False), single=True)


def _made_of_ensemble(folder: Path, output: str) -> Made:
    """What is kept of an ensemble, or of the chosen run: files that a user goes on with."""
    kept = folder / output
    if not (kept / "results.json").is_file():
        return {"files": str(sorted(path.name for path in kept.iterdir()))}
    results = json.loads((kept / "results.json").read_text())
    numbers = {key: results[key] for key in ("test", "vali", "crossfit", "data")}
    texts = {name: (kept / name).read_text() for name in ("queries.csv", "scores.csv")}
    return {"files": str(sorted(path.name for path in kept.iterdir())), **texts,
            "results.json": _plain(numbers)}  # fmt: skip


def _search(name: str, trials: int) -> Work:
    """A search; trial n sets the same in every search of the same seed."""
    begin = ("ltr", "search", *_PLACES, "write=out/experiment/found.yaml", "name=mine",
             "epochs=2", "batch_size=8", "model=linear", "loss=listnet", "l2=0", _OFTEN,
             "space.optimizer.lr=[float,1e-3,1e-1,log]", f"trials={trials}")  # fmt: skip
    return Work(name, begin, _made_by_search)


NETWORK = Work(
    "network",
    ("train.py", *_PLACES, *_TINY, "suggested.fc_sizes=[8]", "model.feed_forward=8",
     "model.blocks=1"),
    _made_by_runs,
    single=True,
)  # fmt: skip
CACHE = Work(
    "cache",
    ("ltr", "prepare_data", "dataset=letor", "dataset.folder=more", *LISTS[2:]),
    _made_cache,
)
SWEEP = Work(
    "sweep",
    ("train.py", "-m", "seed=1,2", "sweep=two", *_PLACES, *_TINY, "model=mlp",
     "model.hidden_sizes=[4]"),
    lambda folder: _made_by_runs(folder, "out/two/summary.csv"),
)  # fmt: skip
TABLE = Work(
    "table",
    ("ltr", "table", "table=ranknet_report", "rows=BCE", *_PLACES, "epochs=2",
     "batch_size=5", "model.hidden_sizes=[4]", "workers=1"),
    lambda folder: _made_by_runs(folder, "out/tables/*/table.csv", "out/tables/*/runs.csv"),
)  # fmt: skip
ENSEMBLE = Work(
    "ensemble",
    ("ltr", "ensemble", "out/two", "weights=vali", "output=out/together", *LISTS[2:],
     "threads=1"),
    partial(_made_of_ensemble, output="out/together"),
    of=SWEEP,
    output="out/together",
)  # fmt: skip
_AUTO = ("ltr", "auto", "table=data/rows.yaml", *_PLACES, "workers=1")
_FIRST_AUTO = Work(
    "first auto",
    (*_AUTO, "output=out/first"),
    partial(_made_of_ensemble, output="out/first"),
    output="out/first",
)
AUTO = Work(  # its runs are trained already: a kill falls into the choice and the copy
    "auto",
    (*_AUTO, "output=out/best"),
    partial(_made_of_ensemble, output="out/best"),
    of=_FIRST_AUTO,
    output="out/best",
)
ROWS = """title: Two rankers and both together
settings: ["metrics=[ndcg@5]", select_on=ndcg@5, epochs=2, batch_size=5]
metrics: [ndcg@5]
conventions: [paper]
rows:
  linear: [model=linear, loss=ranknet]
  adarank: [model=adarank]
  both: {ensemble: [linear, adarank], weights: vali}
"""
SEARCH, LONGER_SEARCH = _search("search", 3), _search("longer-search", 8)


class Stage:
    """A scratch folder with lists, works that nothing disturbed, and a folder for each try."""

    def __init__(self, root: Path) -> None:
        """Write the lists."""
        self.root, self.data, self.lock = root, root / "data", threading.RLock()
        self.spans: dict[str, tuple[float, int]] = {}  # seconds and writes of an undisturbed work
        self.data.mkdir(parents=True)
        (self.data / "rows.yaml").write_text(ROWS)
        sizes = np.random.default_rng(20)
        for name, width, lists in (("mine", 5, (24, 8, 8)), ("more", 20, (300, 60, 60))):
            for seed, (split, count) in enumerate(zip(SPLITS, lists, strict=True)):
                lengths = sizes.integers(2, 12, count).tolist()
                write_letor(self.data / name / f"{split}.txt", make_lists(lengths, width, seed))

    def undisturbed(self, work: Work) -> Path:
        """The folder of ``work`` done undisturbed, once."""
        folder = self.root / "undisturbed" / work.name
        with self.lock:
            if work.name not in self.spans:
                self._begin(folder, work.of)
                started = time.perf_counter()
                ended = child(work.begin, folder)
                if ended.status != 0:
                    raise RuntimeError(f"{work.name} fails undisturbed: {ended.out}{ended.err}")
                writes = int((folder / ".writes").read_text())
                self.spans[work.name] = time.perf_counter() - started, writes
        return folder

    def cut_off(self) -> Path:
        """The folder of a network's training that was killed in its middle."""
        folder = self.root / "cut-off"
        with self.lock:
            if not folder.is_dir():
                self.undisturbed(NETWORK)
                self._begin(folder)
                child(NETWORK.begin, folder, Moment(9, "write", self.spans["network"][1] * 2 // 3))
        return folder

    @contextmanager
    def empty(self, name: str, of: Work | None = None) -> Iterator[Path]:
        """A folder for one try; it holds the lists, as a link, and goes afterwards. It begins as
        that of the work ``of``.
        """
        folder = self.root / "tries" / name.replace(".", "-")  # x.pt would be a checkpoint
        self._begin(folder, of)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _begin(self, folder: Path, of: Work | None = None) -> None:
        if of is not None:
            shutil.copytree(self.undisturbed(of), folder, symlinks=True)
            return
        folder.mkdir(parents=True)
        (folder / "data").symlink_to(self.data)
