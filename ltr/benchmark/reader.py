"""Time reading: LETOR text, opening the lists that an earlier run cached, a folder of Parquet."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from ltr.benchmark import peers
from ltr.benchmark.worker import OURS, Answer, Case, Work
from ltr.data.cache import forget_checks
from ltr.data.files import LetorFiles
from ltr.data.letor import read_letor
from ltr.data.lists import Lists
from ltr.data.synthetic import SyntheticLists
from ltr.whole import write_whole

SKLEARN, LIGHTGBM, ALLRANK = "scikit-learn", "lightgbm", "allrank"
TO_CACHE, FROM_CACHE = "ours, into the cache", "ours, from the cache"
FIRST_USE, FROM_DISK = "ours, first use in a process", "ours, first use, from the disk"
_ROWS = 2048  # rows turned dense at once for the check
_TABLE_WIDTH, _SHARD_ROWS = 136, 1 << 16


def cases(sizes: DictConfig, cache_dir: str, data: str | None) -> list[Case]:
    """The first parse of one file by every side, and opening a cached set.

    The file is ``data``, or synthetic lists of ``sizes.megabytes``, written once.
    """
    path = Path(data) if data else _made(float(sizes.megabytes), Path(cache_dir))
    size, queries = path.stat().st_size / 1e6, int(sizes.kept_queries)
    readers = (OURS, TO_CACHE, FROM_CACHE, SKLEARN, LIGHTGBM, ALLRANK)
    openers = (OURS, FIRST_USE, FROM_DISK)
    table = float(sizes.table_megabytes)
    return [
        Case(f"read {size:,.0f} MB", {"path": str(path)}, readers),
        Case(f"open {queries:,} kept lists", {"queries": queries}, openers),
        Case(f"table of {table:g} MB", {"megabytes": table}, (OURS,)),
    ]


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """One parse of a file or a table, or one opening of a cached set, for one side."""
    if "queries" in settings:
        return _open_kept(side, int(settings["queries"]), cache_dir)
    if "megabytes" in settings:
        return _read_table(float(settings["megabytes"]), Path(cache_dir))
    path = Path(settings["path"])
    place = Path(tempfile.mkdtemp(dir=cache_dir))
    read, answer, note = _reader(side, path, place)
    return Work(
        call=read,
        answer=lambda: answer(read()),
        amount=1 if side == FROM_CACHE else path.stat().st_size / 1e6,
        unit="opens" if side == FROM_CACHE else "MB",
        note=note,
        bytes_needed=read_letor(path).features.nbytes if side == OURS else None,
        close=partial(shutil.rmtree, place, ignore_errors=True),
    )


def _reader(
    side: str, path: Path, place: Path
) -> tuple[Callable[[], Any], Callable[[Any], Answer], str]:
    """The call of a side, the answer in its result, its note; ``place`` is a folder of its own."""
    if side == OURS:
        return partial(read_letor, path), _ours, "dense float32 in memory"
    if side == TO_CACHE:
        return _through_cache(path, place, anew=True), _ours, "hashed, parsed, written, mapped"
    if side == FROM_CACHE:
        return _through_cache(path, place, anew=False), _ours, "mapped"
    if side == LIGHTGBM:
        read = _lightgbm(path, place)
        return read, lambda data: {"rows": data.num_data()}, "binned; no query ids"
    if side == SKLEARN:
        load = peers.need("sklearn.datasets").load_svmlight_file
        read = partial(load, str(path), query_id=True, dtype=np.float32)
        return read, lambda found: _sparse(*found), "sparse, not made dense"
    load = peers.need("allrank.data.dataset_loading").LibSVMDataset.from_svm_file
    return partial(load, str(path)), _allranks, "dense float64"


def _ours(lists: Lists) -> Answer:
    return _digests(lists.items, [lists.features], [lists.labels])


def _allranks(data: Any) -> Answer:
    return _digests(sum(map(len, data.y_by_qid)), data.X_by_qid, data.y_by_qid)


def _sparse(features: Any, labels: NDArray[np.float64], qids: NDArray[np.int64]) -> Answer:
    rows = range(0, features.shape[0], _ROWS)
    dense = (features[first : first + _ROWS].toarray() for first in rows)
    return _digests(features.shape[0], dense, [labels])


def _digests(rows: int, features: Iterable[Any], labels: Iterable[Any]) -> Answer:
    """Digests of the values in float32, however they are split into arrays."""

    def digest(arrays: Iterable[Any]) -> str:
        sha256 = hashlib.sha256()
        for array in arrays:
            sha256.update(np.ascontiguousarray(array, np.float32).tobytes())
        return sha256.hexdigest()[:16]

    return {"rows": rows, "features": digest(features), "labels": digest(labels)}


def _through_cache(path: Path, place: Path, *, anew: bool) -> Callable[[], Lists]:
    data, kept = place / "data", place / "cache"
    (data / "lists").mkdir(parents=True)
    (data / "lists" / "train.txt").symlink_to(path.resolve())

    def read() -> Lists:
        if anew:
            shutil.rmtree(kept, ignore_errors=True)
        dataset = LetorFiles(name="letor", folder="lists", data_dir=data, cache_dir=kept)
        return dataset.split("train")

    return read


def _lightgbm(path: Path, place: Path) -> Callable[[], Any]:
    """LightGBM's own loader, which needs the sizes of the lists in a second file."""
    lightgbm = peers.need("lightgbm")
    plain = place / f"{path.name}.lightgbm"
    counts: dict[bytes, int] = {}
    with path.open("rb") as source, plain.open("wb") as target:
        for line in source:
            label, qid, rest = line.partition(b"#")[0].split(None, 2)
            target.write(label + b" " + rest.rstrip() + b"\n")
            counts[qid] = counts.get(qid, 0) + 1
    sizes = "".join(f"{n}\n" for n in counts.values())
    plain.with_name(f"{plain.name}.query").write_text(sizes)
    return lambda: lightgbm.Dataset(str(plain), params={"verbose": -1}).construct()


def _open_kept(side: str, queries: int, cache_dir: str) -> Work:
    """Open the cached train lists of a synthetic set and read one of them."""
    dataset = SyntheticLists(queries=queries, seed=0, cache_dir=cache_dir)
    size = dataset.split("train").features.nbytes

    def opened() -> float:
        if side != OURS:
            forget_checks()
        if side == FROM_DISK and hasattr(os, "posix_fadvise"):
            for path in Path(cache_dir).glob("*/features.npy"):
                with path.open("rb") as file:  # the system forgets what it holds in memory
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        kept = dataset.split("train")
        return float(kept.features[: kept.offsets[1]].sum())

    done = "mapped" if side == OURS else "checked and mapped"
    note = f"{size / 1e6:,.0f} MB {done}, one list read"
    return Work(opened, lambda: {"first": opened()}, unit="opens", note=note)


def _read_table(megabytes: float, cache_dir: Path) -> Work:
    """Read a folder of Parquet shards into the cache; the rows of every query stand apart."""
    from ltr.tabular.files import TableFiles  # pyarrow is loaded for this case alone

    shards = _made_shards(megabytes, cache_dir)
    place = Path(tempfile.mkdtemp(dir=cache_dir))
    size = sum(path.stat().st_size for path in shards.iterdir()) / 1e6

    def read() -> Lists:
        shutil.rmtree(place, ignore_errors=True)
        table = TableFiles(
            name="table", data_dir=shards.parent, cache_dir=place, query="query", label="label",
            split={"train": shards.name, "vali": "none", "test": "none"},
        )  # fmt: skip
        return table.split("train")

    return Work(
        call=read,
        answer=lambda: {"rows": read().items},
        amount=size,
        unit="MB",
        note="hashed, read, regrouped, written, mapped",
        close=partial(shutil.rmtree, place, ignore_errors=True),
    )


def _made_shards(megabytes: float, cache_dir: Path) -> Path:
    """A folder of Parquet shards of about that size together, made once."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    folder = cache_dir / "benchmark" / f"shards-{megabytes:g}MB"
    rows = max(100, round(megabytes * 1e6 / (4 * _TABLE_WIDTH)))
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, _SHARD_ROWS)):
        path = folder / f"part-{number:05}.parquet"
        if path.is_file():
            continue
        rng, count = np.random.default_rng(number), min(_SHARD_ROWS, rows - first)
        columns = {
            "query": rng.integers(0, max(1, rows // 120), count),
            "label": rng.integers(0, 5, count),
            **{f"f{i}": rng.random(count, np.float32) for i in range(_TABLE_WIDTH)},
        }
        write_whole(path, partial(parquet.write_table, pa.table(columns)))
    return folder


def _made(megabytes: float, cache_dir: Path) -> Path:
    """A file of LETOR text of about that size, of synthetic lists, written once."""
    path = cache_dir / "benchmark" / f"letor-{megabytes:g}MB.txt"
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    queries = max(3, round(megabytes * 7))  # a list of Web30K's shape takes about 130 kB
    lists = SyntheticLists(queries=queries, seed=0, cache_dir=cache_dir).split("train")
    form = "%d qid:%d " + " ".join(f"{i}:%g" for i in range(1, lists.width + 1)) + "\n"

    def write(file: BinaryIO) -> None:
        for number, (_, features, labels) in enumerate(lists, 1):
            for row, label in zip(features, labels, strict=True):
                file.write((form % (label, number, *row.tolist())).encode())
            if file.tell() > megabytes * 1e6:
                break

    write_whole(path, write)
    return path
