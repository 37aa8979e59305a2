"""Time the parse of LETOR text, and sets from the cache: python benchmarks/reader.py data=FILE."""

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import peers
from common import OURS, Case, Work
from sklearn.datasets import dump_svmlight_file

from ltr.data.cache import forget_checks
from ltr.data.files import LetorFiles
from ltr.data.letor import read_letor
from ltr.data.lists import Lists
from ltr.data.synthetic import SyntheticLists

SIZES = {"data": "", "megabytes": 200, "queries": 18919}  # of text; cached lists
SMALL = {"megabytes": 0.2, "queries": 6}
INTO, KEPT = "ours, into the cache", "ours, from the cache"
FIRST, DISK = "ours, first use in a process", "ours, first use, from the disk"
NOTES = {OURS: "dense float32", INTO: "hashed, parsed, written, mapped", KEPT: "mapped",
         FIRST: "checked, mapped", DISK: "checked, mapped", "scikit-learn": "sparse",
         "allrank": "dense float64"}  # fmt: skip


def parse(side: str, *, path: Path, keys: Any) -> Work:
    """One parse of a file of LETOR text, with the cache or without."""
    if side in (INTO, KEPT):
        folder = tempfile.TemporaryDirectory(dir=keys.cache_dir)
        (Path(folder.name) / "train.txt").symlink_to(path.resolve())
        where: Any = {"data_dir": keys.cache_dir, "folder": Path(folder.name).name}
        cache = Path(folder.name, "cache")
        make = partial(LetorFiles, name="letor", cache_dir=cache, **where)
        return opened(side, make=make, cache=cache, size=path.stat().st_size / 1e6, place=folder)
    load: Any = partial(read_letor, path)
    if side == "scikit-learn":
        sklearn = peers.need("sklearn.datasets").load_svmlight_file
        load = partial(sklearn, str(path), query_id=True, dtype=np.float32)
    elif side == "allrank":
        load = partial(peers.need("allrank.data.dataset_loading").LibSVMDataset.from_svm_file, path)

    def answer() -> dict[str, Any]:
        found = load()
        if side == "scikit-learn":
            return _sums([found[0]], [found[1]])
        if side == "allrank":
            return _sums(found.X_by_qid, found.y_by_qid)
        return _sums([found.features], [found.labels])

    return Work(load, answer, NOTES[side], path.stat().st_size / 1e6, "MB")


def opened(side: str, *, make: Any, cache: Path, size: float = 1, place: Any = None) -> Work:
    """The train lists of a data set of ours, into its cache or from there."""

    def call(_: Any = place) -> Lists:
        if side == INTO:
            shutil.rmtree(cache, ignore_errors=True)
        if side in (FIRST, DISK):
            forget_checks()
        for path in cache.glob("*/features.npy") if side == DISK else ():
            with path.open("rb") as file:  # the system forgets what it holds in memory
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        lists = make().split("train")
        assert lists.features[: lists.offsets[1]].sum() != 0  # one list is read
        return lists

    call()
    answer = lambda: _sums([(lists := call()).features], [lists.labels])  # noqa: E731
    return Work(call, answer, NOTES[side], *((size, "MB") if side == INTO else (1, "opens")))


def _sums(features: Any, labels: Any) -> dict[str, Any]:
    columns = sum(np.asarray(part.sum(0, dtype=np.float64)).ravel() for part in features)
    return {"columns": columns, "labels": sum(map(np.sum, labels)), "rows": sum(map(len, labels))}


def text(megabytes: float, cache_dir: str) -> Path:
    """A file of LETOR text of about that size, of synthetic lists, written once."""
    path = Path(cache_dir, f"letor-{megabytes:g}MB.txt")
    if not path.is_file():
        queries = max(3, round(megabytes * 7))  # a list of Web30K's shape takes about 130 kB
        lists = SyntheticLists(queries=queries, seed=0, cache_dir=cache_dir).split("train")
        features, qids = (
            lists.features.astype(float).round(5),
            np.repeat(range(queries), lists.lengths),
        )
        dump_svmlight_file(features, lists.labels, str(path), zero_based=False, query_id=qids)
    return path


def cases(keys: Any) -> list[Case]:
    """The first parse of one file by every side, and a cached set."""
    path = Path(keys.data) if keys.data else text(keys.megabytes, keys.cache_dir)
    readers, openers = (OURS, INTO, KEPT, "scikit-learn", "allrank"), (KEPT, FIRST, DISK)
    kept = partial(SyntheticLists, queries=keys.queries, seed=0, cache_dir=keys.cache_dir)
    parsed, close = partial(parse, path=path, keys=keys), {"columns": 1e-7, "labels": 1e-7}
    again = partial(opened, make=kept, cache=Path(keys.cache_dir))
    return [
        Case(f"read {path.stat().st_size / 1e6:,.0f} MB", parsed, readers, close),
        Case(f"open {keys.queries:,} kept lists", again, openers),
    ]


if __name__ == "__main__":
    common.main("Reading LETOR text", cases, SIZES, SMALL)
