"""The works that are disturbed: their commands, how a user goes on, what they must have made."""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from conftest import make_lists, write_letor
from filelock import FileLock

from fire.children import Ended, Moment, child, program
from ltr.data.lists import SPLITS

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


def worst(results: list[Result]) -> Result:
    """The worst of several ends, with the details of all that are as bad.

    >>> worst([Result("noticed"), Result("lost", "a"), Result("lost", "b")])
    Result(outcome='lost', detail='a; b')
    """
    outcome = max((result.outcome for result in results), key=OUTCOMES.index)
    details = dict.fromkeys(r.detail for r in results if r.outcome == outcome and r.detail)
    return Result(outcome, "; ".join(details))


class Subject(NamedTuple):
    """One thing that is tried again and again."""

    part: str  # kills or flips
    name: str  # without blanks, so that it can be typed after only=
    attempt: Callable[[Random], list[Result]]  # a try, or several; all of it is drawn


Command = tuple[str, ...]
Made = dict[str, str]  # what a work has made: name -> its fingerprint
LISTS = ("dataset=letor", "dataset.folder=mine", "data_dir=data", "cache_dir=cache")
_PLACES = (*LISTS, "output_dir=out", "threads=1")
# What may differ between two runs of one configuration.
_TIMES = ("seconds", "lists_per_second", "wall_seconds", "finished", "commit", "run")


def fingerprints(value: Any, name: str = "") -> Made:
    """The leaves of nested mappings and lists by name, but for those that tell the time."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items() if key not in _TIMES]
    elif isinstance(value, (list, tuple)):
        items = [(str(place), item) for place, item in enumerate(value)]
    else:
        array = value.detach().numpy() if hasattr(value, "detach") else value
        if isinstance(array, np.ndarray) and array.dtype != object:
            value = array.dtype, array.shape, hashlib.sha256(array.tobytes()).hexdigest()
        return {name: repr(value)}
    made = {f"{name} (how many)": str(len(items))}
    for key, item in items:
        made |= fingerprints(item, f"{name}.{key}".lstrip("."))
    return made


def run_folders(folder: Path) -> list[Path]:
    """The folders of runs that a user could go on with, or read."""
    runs = sorted(path.parent for path in folder.glob("out/**/last.pt"))
    return [run for run in runs if not run.name.startswith("before-")]  # of other code or data


def _rows(path: Path, *without: str) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in without} for row in csv.DictReader(file)]


def _made_by_run(run: Path, *, weights: bool) -> Made:
    """What a run has left."""
    from ltr.training.checkpoint import load_checkpoint

    made: dict[str, Any] = {}
    for name in ("best.pt", "last.pt") if weights else ():
        content = load_checkpoint(run / name)
        made[name] = {key: content[key] for key in ("model", "optimizer", "base_lr", "progress")}
    results = json.loads((run / "results.json").read_text())
    own = ("test", "vali", "untrained_vali", "selected_epoch", "best_epoch", "epochs", "data")
    made["results.json"] = {key: results[key] for key in own}
    made |= {name: (run / name).read_text() for name in ("queries.csv", "scores.csv")}
    return fingerprints(made) | {"history.csv": json.dumps(_rows(run / "history.csv", *_TIMES))}


def _made_by_runs(folder: Path, *tables: str, weights: bool = True) -> Made:
    """What all runs below ``folder`` have left, and the tables over them."""
    paths = [path for pattern in tables for path in folder.glob(pattern)]
    made = {path.name: json.dumps(_rows(path, *_TIMES)) for path in paths}
    for run in run_folders(folder):
        name = run.name if tables else ""  # a single run is named by the time
        own = _made_by_run(run, weights=weights)
        made |= {f"{name} {key}": value for key, value in own.items()}
    return made


def _made_cache(folder: Path) -> Made:
    arrays = sorted((folder / "cache").glob("*/*.npy"))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in arrays
    }


def _made_by_search(folder: Path) -> Made:
    """The value of each trial that is done, by what it set, and how many there are."""
    rows = _rows(folder / "out/search/mine/trials.csv")
    done = [row for row in rows if row["state"] == "done"]
    values = {f"lr={row['optimizer.lr']}": row["vali ndcg@5"] for row in done}
    return {**values, "trials done": str(len(done)), "trials that differ": str(len(values))}


@dataclass(frozen=True)
class Work:
    """A command of the project, small."""

    name: str
    begin: Command  # script and arguments
    made: Callable[[Path], Made]  # what it has made in the folder where it was done
    single: bool = False  # one run, which a user resumes; of others the same command goes on

    def go_on(self, folder: Path) -> Command:
        """What a user types, in the folder of a try, after it was cut off."""
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
    return Work(library, begin, lambda folder: _made_by_runs(folder, weights=False), single=True)


def _search(name: str, trials: int) -> Work:
    """A search; trial n sets the same in every search of the same seed."""
    begin = ("scripts/search.py", *_PLACES, "write=out/experiment/found.yaml", "name=mine",
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
    ("scripts/prepare_data.py", "dataset=letor", "dataset.folder=more", *LISTS[2:]),
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
    ("scripts/table.py", "table=ranknet_report", "rows=BCE", *_PLACES, "epochs=2",
     "batch_size=5", "model.hidden_sizes=[4]", "workers=1"),
    lambda folder: _made_by_runs(folder, "out/tables/*/table.csv", "out/tables/*/runs.csv"),
)  # fmt: skip
SEARCH, LONGER_SEARCH = _search("search", 3), _search("longer-search", 8)


class Stage:
    """A scratch folder with lists, works that nothing disturbed, and a folder for each try."""

    def __init__(self, root: Path) -> None:
        """Write the lists."""
        self.root, self.data = root, root / "data"
        sizes = np.random.default_rng(20)
        for name, width, lists in (("mine", 5, (24, 8, 8)), ("more", 20, (300, 60, 60))):
            for seed, (split, count) in enumerate(zip(SPLITS, lists, strict=True)):
                lengths = sizes.integers(2, 12, count).tolist()
                write_letor(self.data / name / f"{split}.txt", make_lists(lengths, width, seed))

    def undisturbed(self, work: Work) -> tuple[Path, Ended]:
        """The folder of ``work`` done undisturbed, once for all processes, and how it ended."""
        folder, note = self.root / "undisturbed" / work.name, self.root / f"{work.name}.json"
        with FileLock(self.root / f".{work.name}.lock"):
            if not note.is_file():
                self._begin(folder)
                ended = child(program(*work.begin), folder)
                if ended.status != 0:
                    raise RuntimeError(f"{work.name} fails undisturbed: {ended.out}{ended.err}")
                note.write_text(json.dumps(ended))
        return folder, Ended(*json.loads(note.read_text()))

    def cut_off(self) -> Path:
        """The folder of a network's training that was killed in its middle."""
        folder = self.root / "cut-off"
        with FileLock(self.root / ".cut-off.lock"):
            if not folder.is_dir():
                at = self.undisturbed(NETWORK)[1].writes * 2 // 3
                with self.empty("cutting") as place:
                    child(program(*NETWORK.begin), place, Moment(9, "write", at))
                    place.rename(folder)
        return folder

    @contextmanager
    def empty(self, name: str) -> Iterator[Path]:
        """A folder for one try; it holds the lists, as a link, and goes afterwards."""
        folder = self.root / "tries" / name.replace(".", "-")  # x.pt would be a checkpoint
        self._begin(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _begin(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "data").symlink_to(self.data)
