"""The kinds of files that the project writes, and the functions by which it reads them again."""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fire import readers
from fire.children import child
from fire.readers import as_text, parts_of
from fire.stage import Stage, refill
from fire.works import NETWORK_RUN, Made, Work, run_folders, trees

_SETTLED = 2.1  # seconds after which the digest of a file is remembered


@dataclass(frozen=True)
class Kind:
    """A kind of file and how it is read.

    Attributes:
        name: of the subject.
        source: the folder that holds it, undamaged.
        files: patterns of the files of this kind in that folder.
        read: what the program makes of the folder.
        share: of the tries.
        batch: tries in one child.
    """

    name: str
    source: Callable[[], Path]
    files: tuple[str, ...]
    read: Callable[[Path], Made]
    share: float = 1.0
    batch: int = 20


def kinds(stage: Stage) -> Iterator[Kind]:
    """The kinds of files that functions read."""

    def run_of(work: Work) -> Callable[[], Path]:
        return lambda: run_folders(stage.reference(work).folder)[0]

    def undisturbed(work: Work, name: str) -> Callable[[], Path]:
        return lambda: stage.reference(work).folder / name

    def kept_model(folder: Path) -> Made:
        return parts_of(readers.of_kept_model(folder, stage.data))

    def last(folder: Path) -> Made:
        return parts_of(readers.of_checkpoint(folder / "last.pt"))

    def cache(folder: Path) -> Made:
        return parts_of(readers.of_cache(folder, stage.data))

    def results(folder: Path) -> Made:
        return parts_of(readers.of_results(folder))

    def scores(folder: Path) -> Made:
        return parts_of(readers.of_scores(folder / "scores.csv", stage.data))

    network = run_of(NETWORK_RUN)
    yield Kind("best.pt", network, ("best.pt",), kept_model)
    yield Kind("last.pt", network, ("last.pt",), last)
    for library in ("lightgbm", "xgboost", "catboost"):
        if find_spec(library):
            run = run_of(trees(library))
            yield Kind(f"best.pt-{library}", run, ("best.pt",), kept_model)
            yield Kind(f"last.pt-{library}", run, ("last.pt",), last)
    entries = undisturbed(NETWORK_RUN, "cache")
    for name in ("features.npy", "labels.npy", "offsets.npy", "qids.npy", "meta.json"):
        yield Kind(name, entries, (f"*/{name}",), cache)
    yield Kind("digests", functools.partial(_with_notes, stage), ("digests/*.json",), cache)
    yield Kind("results.json", network, ("results.json",), results)
    yield Kind("queries.csv", network, ("queries.csv",), results)
    yield Kind("scores.csv", network, ("scores.csv",), scores)


def _with_notes(stage: Stage) -> Path:
    """A cache with its notes of digests, which are taken of files that have settled."""
    cache = stage.reference(NETWORK_RUN).folder / "cache"
    folder = stage.root / "settled"
    if not folder.is_dir():
        age = time.time() - (stage.data / "mine" / "test.txt").stat().st_ctime
        time.sleep(max(0.0, _SETTLED - age))
        folder.mkdir()
        refill(folder, cache)
        child(lambda: as_text(parts_of(readers.of_cache(folder, stage.data))), folder)
    return folder
