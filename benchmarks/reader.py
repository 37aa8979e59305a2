"""Time the parse of LETOR text, and sets from the cache: python benchmarks/reader.py data=FILE."""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import peers
from common import OURS, Case, Work
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from ltr.data.files import LetorFiles
from ltr.data.letor import read_letor
from ltr.data.synthetic import SyntheticLists

SIZES = {"data": ("", ""), "megabytes": (200, 0.2), "queries": (18919, 6)}
INTO, KEPT = "ours, into the cache", "ours, from the cache"
NOTES = {OURS: "dense float32", INTO: "hashed, parsed, written, mapped", KEPT: "mapped",
         "scikit-learn": "sparse", "allrank": "dense float64"}  # fmt: skip


def read(side: str, *, make: Any, path: Path | None = None, cache: str = "", keys: Any) -> Work:
    """The train lists of ``make(cache_dir=)``, or of ``path`` without the cache, or by a peer."""
    folder, load = tempfile.TemporaryDirectory(dir=keys.cache_dir), partial(read_letor, path)
    if side == "scikit-learn":
        load = partial(load_svmlight_file, str(path), query_id=True, dtype=np.float32)
    elif side == "allrank":
        load = partial(peers.need("allrank.data.dataset_loading").LibSVMDataset.from_svm_file, path)

    def ours() -> Any:
        if side == INTO:
            shutil.rmtree(folder.name, ignore_errors=True)
        lists = make(cache_dir=cache or folder.name).split("train")
        assert lists.features[: lists.offsets[1]].sum() != 0  # one list is read
        return lists

    def answer() -> dict[str, Any]:
        found = call()
        if side == "scikit-learn":
            features, labels = [found[0]], [found[1]]
        elif side == "allrank":
            features, labels = found.X_by_qid, found.y_by_qid
        else:
            features, labels = [found.features], [found.labels]
        columns = sum(np.asarray(part.astype(float).sum(0)).ravel() for part in features)
        labels = np.concatenate([*labels])
        return {"columns": columns, "labels": labels.sum(dtype=np.float64), "rows": len(labels)}

    call = ours if side in (INTO, KEPT) else load
    opens = side == KEPT or path is None
    size = (1, "opens") if opens else (path.stat().st_size / 1e6, "MB")
    return Work(call, answer, NOTES[side], *size)


def text(megabytes: float, cache_dir: str) -> Path:
    """A file of LETOR text of about that size, of synthetic lists, written once."""
    path = Path(cache_dir, f"letor-{megabytes:g}MB.txt")
    if not path.is_file():
        queries = max(3, round(megabytes * 7))  # a list of Web30K's shape takes about 130 kB
        lists = SyntheticLists(queries=queries, seed=0, cache_dir=cache_dir).split("train")
        features = lists.features.astype(float).round(5)
        qids = np.repeat(range(queries), lists.lengths)
        dump_svmlight_file(features, lists.labels, str(path), zero_based=False, query_id=qids)
    return path


def cases(keys: Any) -> list[Case]:
    """The first parse of one file by every side, and a cached set."""
    path = Path(keys.data) if keys.data else text(keys.megabytes, keys.cache_dir)
    (Path(keys.cache_dir) / "train.txt").unlink(missing_ok=True)
    (Path(keys.cache_dir) / "train.txt").symlink_to(path.resolve())
    letor = partial(LetorFiles, name="letor", folder=".", data_dir=keys.cache_dir)
    synthetic = partial(SyntheticLists, queries=keys.queries, seed=0)
    sides, close = (OURS, INTO, KEPT, "scikit-learn", "allrank"), {"columns": 1e-7, "labels": 1e-7}
    parsed = partial(read, make=letor, path=path, keys=keys)
    opened = partial(read, make=synthetic, cache=keys.cache_dir, keys=keys)
    return [
        Case(f"read {path.stat().st_size / 1e6:,.0f} MB", parsed, sides, close),
        Case(f"open {keys.queries:,} kept lists", opened, (KEPT,)),
    ]


if __name__ == "__main__":
    common.main("Reading LETOR text", cases, SIZES)
