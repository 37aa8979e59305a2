"""The works that are disturbed: their commands, how a user goes on, what they must have made."""

import csv
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fire.readers import of_checkpoint, parts_of

Command = tuple[str, ...]
Made = dict[str, str]  # what a work has made: name -> its fingerprint

LISTS = ("dataset=letor", "dataset.folder=mine", "data_dir=data", "cache_dir=cache")
PLACES = (*LISTS, "output_dir=out", "threads=1")
TINY = ("epochs=3", "batch_size=5", "list_size=6")
NETWORK = ("loss=listnet", "suggested.fc_sizes=[8]", "model.feed_forward=8", "model.blocks=1")
EVERY_STEP = "checkpoint_minutes=0.00001"
# What may differ between two runs of one configuration.
TIMES = ("seconds", "lists_per_second", "wall_seconds", "finished", "commit", "run")


@dataclass(frozen=True)
class Work:
    """A command of the project, small.

    Attributes:
        name: of the work.
        begin: script and arguments.
        go_on: what a user types, in the folder of a try, after it was cut off.
        made: what it has made there, read in a child, since it loads checkpoints.
    """

    name: str
    begin: Command
    go_on: Callable[[Path], Command]
    made: Callable[[Path], Made]


def run_folders(folder: Path) -> list[Path]:
    """The folders of runs that a user could go on with, or read."""
    return sorted(path.parent for path in folder.glob("out/**/last.pt"))


def made_by_run(run: Path, *, weights: bool = True) -> Made:
    """What a run has left, without what tells the time."""
    made: Made = {}
    if weights:
        for name in ("best.pt", "last.pt"):
            content = of_checkpoint(run / name)
            state = {key: content[key] for key in ("model", "optimizer", "base_lr", "progress")}
            made |= parts_of(_timeless(state), f"{name}: ")
    results = json.loads((run / "results.json").read_text())
    kept = (
        "test",
        "vali",
        "untrained_vali",
        "selected_epoch",
        "best_epoch",
        "epochs",
        "data",
        "features",
    )
    made |= parts_of({key: results[key] for key in kept}, "results.json: ")
    made |= {name: (run / name).read_text() for name in ("queries.csv", "scores.csv")}
    made["history.csv"] = table(run / "history.csv")
    return made


def table(path: Path, *, without: tuple[str, ...] = TIMES) -> str:
    """A CSV file as text, without the columns that tell the time."""
    with path.open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in without} for row in csv.DictReader(file)]
    return json.dumps(rows)


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value


def _resume(begin: Command) -> Callable[[Path], Command]:
    """Resume the run that has a checkpoint; the same command again where there is none."""

    def go_on(folder: Path) -> Command:
        runs = run_folders(folder)
        if not runs:
            return begin
        return ("train.py", f"resume={runs[0].relative_to(folder)}", *LISTS[2:], "threads=1")

    return go_on


def _training(name: str, *arguments: str, weights: bool) -> Work:
    begin = ("train.py", *PLACES, *arguments)

    def made(folder: Path) -> Made:
        (run,) = run_folders(folder)
        return made_by_run(run, weights=weights)

    return Work(name, begin, _resume(begin), made)


def _again(begin: Command) -> Callable[[Path], Command]:
    return lambda folder: begin


def _made_cache(folder: Path) -> Made:
    arrays = sorted((folder / "cache").glob("*/*.npy"))
    return {
        f"{path.parent.name[:16]} {path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in arrays
    }


def _made_sweep(folder: Path) -> Made:
    made: Made = {"summary.csv": table(folder / "out/two/summary.csv", without=("seconds",))}
    for run in run_folders(folder):
        made |= {f"{run.name} {name}": value for name, value in made_by_run(run).items()}
    return made


def _made_table(folder: Path) -> Made:
    made: Made = {}
    for name in ("table.csv", "runs.csv"):
        (path,) = folder.glob(f"out/tables/*/{name}")
        made[name] = table(path)
    for run in run_folders(folder):
        made |= {f"{run.name} {name}": value for name, value in made_by_run(run).items()}
    return made


def made_search(folder: Path) -> Made:
    """The value of each trial that is done, by what it set, and how many there are."""
    with (folder / "out/search/mine/trials.csv").open(newline="") as file:
        done = [row for row in csv.DictReader(file) if row["state"] == "done"]
    values = {f"lr={row['optimizer.lr']}": row["vali ndcg@5"] for row in done}
    return {**values, "trials done": str(len(done)), "trials that differ": str(len(values))}


_CACHE = ("scripts/prepare_data.py", "dataset=letor", "dataset.folder=more", *LISTS[2:])
_SWEEP = ("train.py", "-m", "seed=1,2", "sweep=two", *PLACES, *TINY, "model=mlp",
          "model.hidden_sizes=[4]", "loss=listnet", EVERY_STEP)  # fmt: skip
_TABLE = ("scripts/table.py", "table=ranknet_report", "rows=BCE", *PLACES, "epochs=2",
          "batch_size=5", "model.hidden_sizes=[4]", "workers=1")  # fmt: skip
_SEARCH = ("scripts/search.py", *PLACES, "write=out/experiment/found.yaml", "name=mine",
           "epochs=2", "batch_size=8", "model=linear", "loss=listnet", "l2=0", EVERY_STEP,
           "space.optimizer.lr=[float,1e-3,1e-1,log]")  # fmt: skip
_TREES = {
    "lightgbm": ("model.min_data_in_leaf=3", "model.num_leaves=4"),
    "xgboost": ("model.max_depth=2",),
    "catboost": ("model.depth=2",),
}


def trees(library: str) -> Work:
    """Training of boosted trees; a library writes its settings beside them, so scores count."""
    own = (f"model={library}", *_TREES[library], "epochs=20")
    return _training(library, *own, weights=False)


def search(trials: int, name: str = "search") -> Work:
    """A search; trial n sets the same in every search of the same seed."""
    begin = (*_SEARCH, f"trials={trials}")
    return Work(name, begin, _again(begin), made_search)


NETWORK_RUN = _training("network", *TINY, *NETWORK, EVERY_STEP, weights=True)
TREES_RUN = trees("lightgbm")
CACHE = Work("cache", _CACHE, _again(_CACHE), _made_cache)
SWEEP = Work("sweep", _SWEEP, _again(_SWEEP), _made_sweep)
TABLE = Work("table", _TABLE, _again(_TABLE), _made_table)
SEARCH = search(3)
LONGER_SEARCH = search(8, "longer-search")
