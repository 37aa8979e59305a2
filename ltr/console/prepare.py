"""Prepare a data set: check and unpack its archive, fill the cache, count, compare."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tabulate import tabulate

from ltr.console.unpack import check_archive, unpack
from ltr.data.cache import file_digest
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Dataset, Lists
from ltr.data.public_sets import Known, PublicSet, public_sets
from ltr.data.transforms import column_range
from ltr.errors import ConfigError, DataError

log = logging.getLogger(__name__)
_FEW = 8  # up to so many different labels, each is counted
_COUNTS = ("rows", "lists", "empty lists")
_SHAPE = ("shortest", "mean", "longest list", "constant columns", "missing values")
Place = tuple[int | None, str]  # fold and split
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """The tables to print, and everything that is not as published."""

    table: str
    differences: Sequence[str] = ()
    remedy: str = ""

    def check(self) -> None:
        """Raise ``DataError`` that names every difference, if there is one."""
        if self.differences:
            raise DataError(f"{'; '.join(self.differences)}; {self.remedy}")


def prepare(
    given: Mapping[str, Any],
    *,
    data_dir: str | Path,
    cache_dir: str | Path,
    archive: str | Path | None = None,
    folds: Sequence[int] | int | str = "all",
) -> Report:
    """Check and unpack an archive, fill the cache, count.

    Args:
        given: the settings of ``LetorFiles``, as a config has them; the counts of a public set are
            compared with the published ones, the folds of other lists are found.
        data_dir, cache_dir: the folders of all data sets and of the parsed arrays.
        archive: the archive, or a folder with its files; None: the files are in place.
        folds: the folds to read and count, 1-based; "all": all. All are unpacked.

    Returns:
        The report; the caller prints its table and calls its ``check``.

    Raises:
        DataError: the archive is not the official one, or damaged; the target folder holds other
            files; a file is missing or malformed; the disk is full.
        ConfigError: no folder is named, or there is no such fold.
    """
    if given.get("folder") in (None, ""):
        raise ConfigError(f"give dataset.folder=NAME, the folder of your lists in {data_dir}")
    base = Path(str(data_dir)).expanduser()
    places = {"data_dir": base, "cache_dir": str(cache_dir)}
    folder = base / str(given["folder"])
    public = public_sets().get(given["name"])
    names = ", ".join(f"{split}.txt" for split in SPLITS)
    remedy = f"put {names} into {folder}, or into Fold1, ... in it"
    remedy = public.how_to_get(data_dir) if public else remedy
    summaries: dict[Place, Summary] = {}
    strange = []
    try:
        there = int(given.get("folds") or 0)
        if not public:
            there = next(fold for fold in count() if not (folder / f"Fold{fold + 1}").exists())
        every: list[int | None] = [*range(1, there + 1)] or [None]
        chosen = _chosen(folds, every)
        if archive is not None:
            splits = [one for one in SPLITS if one != "vali" or given.get("vali_share") is None]
            wanted = [_inside(fold, split) for fold in every for split in splits]
            _unpack_once(public, Path(str(archive)).expanduser(), folder, wanted)
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; {remedy}")
        how = {key: value for key, value in given.items() if not key.startswith("_")}
        for fold in chosen:
            files = LetorFiles(**how | places | {"fold": fold, "folds": there})
            files.check()
            for split in SPLITS:
                summaries[fold, split] = summarise(files.split(split))
                path, expected = files.path(split), (public.files if public else {})
                official = expected.get(_inside(fold, split))
                if official not in (None, file_digest(path, files.cache_dir)):
                    strange.append(f"{path} is not the official file")
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise DataError(
            f"{error.filename or data_dir}: {error.strerror or error}; "
            "set data_dir, dataset.folder and archive to what can be read"
        ) from None
    known = public.known if public else ()
    wrong = differences(summaries, known) + strange
    return Report(table(summaries, known), wrong, remedy)


def prepare_other(dataset: Dataset) -> Report:
    """Count tables, or a data set of one's own class; nothing to unpack or compare with."""
    dataset.check()
    lists = {split: dataset.split(split) for split in SPLITS}
    text = table({(dataset.fold, split): summarise(part) for split, part in lists.items()}, ())
    if (columns := lists["train"].columns) is not None:
        coded = [
            f"{name} (hashed to {values:,})"
            if isinstance(values, int)
            else f"{name} ({len(values):,})"
            for name, values in columns.categories.items()
        ]
        of_them = f", categories {', '.join(coded)}" if coded else ""
        width = len(columns.names)
        text += f"\n\n{width:,} features: numbers {width - len(coded):,}{of_them}"
    return Report(text)


def _chosen(folds: Sequence[int] | int | str, every: Sequence[int | None]) -> Sequence[int | None]:
    if folds == "all":
        return list(every)
    chosen = [folds] if isinstance(folds, int | str) else list(folds)
    if None in every or not chosen or any(fold not in every for fold in chosen):
        some = "" if None in every else f", or some of 1 to {every[-1]} as in 'folds=[1,2]'"
        raise ConfigError(f"folds={folds}: give all{some}")
    return sorted({int(fold) for fold in chosen})


def _inside(fold: int | None, split: str) -> str:
    return f"{split}.txt" if fold is None else f"Fold{fold}/{split}.txt"


def _unpack_once(
    public: PublicSet | None, archive: Path, folder: Path, wanted: Sequence[str]
) -> None:
    """Make ``folder`` from the archive, unless it is complete."""
    if _complete(folder, wanted):
        return
    if not archive.is_dir():
        check_archive(archive, public)
    with _locked(folder):
        if not _complete(folder, wanted):  # another process may have made it meanwhile
            unpack(archive, folder, wanted)


def _complete(folder: Path, wanted: Sequence[str]) -> bool:
    """True if all files are there, False if nothing is, else ``DataError``."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    if missing := [path for path in wanted if not (folder / path).is_file()]:
        raise DataError(
            f"{folder} is there, but without {', '.join(missing)}; move it away, or give another "
            "data_dir=DIR"
        )
    log.info("%s is there already: the archive was not read", folder)
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working on ``folder``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise DataError(f"another run is preparing {folder}; wait until it is done") from None
    try:
        yield
    finally:
        lock.release()


def summarise(lists: Lists) -> Summary:
    """Numbers of one split; features are read once, in blocks."""
    low, high = column_range(lists.features)
    return {
        "rows": lists.items,
        "lists": len(lists),
        "empty lists": int(lists.empty.sum()),
        "labels": Counter(lists.labels.tolist()),
        "shortest": int(lists.lengths.min()),
        "mean": float(lists.lengths.mean()),
        "longest list": int(lists.lengths.max()),
        "constant columns": int((low >= high).sum()),  # greater where every value is missing
        "missing values": lists.missing,
    }


def _counts(summaries: Mapping[Place, Summary], record: Known) -> Counter[str] | None:
    """The counts of the splits of a record together; None where a summary is missing."""
    places = [(record.fold, split) for split in record.splits]
    if not all(place in summaries for place in places):
        return None
    counts = Counter[str]()
    for one in (summaries[place] for place in places):
        counts.update({name: one[name] for name in _COUNTS})
        counts.update({f"items of grade {label:g}": n for label, n in one["labels"].items()})
    return counts


def _known(record: Known) -> dict[str, int]:
    grades = {f"items of grade {grade}": n for grade, n in enumerate(record.labels or ())}
    plain = zip(_COUNTS, (record.rows, record.lists, record.empty), strict=True)
    return {name: value for name, value in plain if value is not None} | grades


def differences(summaries: Mapping[Place, Summary], known: Sequence[Known]) -> list[str]:
    """Every count that is not as published, in words; splits without a summary do not count."""
    found = []
    for record in known:
        if (counts := _counts(summaries, record)) is None:
            continue
        must = _known(record)
        others = [name for name in counts if "grade" in name] if record.labels else []
        where = ("" if record.fold is None else f"Fold{record.fold} ") + "+".join(record.splits)
        found += [
            f"{where} has {counts[name]:,} {name}, not {must.get(name, 0):,}"
            for name in dict.fromkeys([*must, *others])
            if counts[name] != must.get(name, 0)
        ]
    return found


def table(summaries: Mapping[Place, Summary], known: Sequence[Known]) -> str:
    """Two tables: counts beside the published ones, and the rest of the summaries."""
    order = list(summaries)
    records: dict[Any, Known] = {(fold, (split,)): Known((split,), fold) for fold, split in order}
    records |= {(record.fold, record.splits): record for record in known}
    rows: list[tuple[Any, ...]] = []
    for record in records.values():
        if (counts := _counts(summaries, record)) is not None:
            must, row = _known(record), list[Any]()
            for name in _COUNTS:
                row += [counts[name], must.get(name)][: 2 if known else 1]
            after = order.index((record.fold, record.splits[-1])), len(record.splits)
            rows.append((after, record.fold, "+".join(record.splits), *row))
    heads = [head for name in _COUNTS for head in (name, "known")[: 2 if known else 1]]
    first = _tabulate([row[1:] for row in sorted(rows, key=lambda row: row[0])], heads)
    labels = sorted({label for one in summaries.values() for label in one["labels"]})
    heads, rows = [f"label {label:g}" for label in labels], []
    if len(labels) > _FEW:
        heads = ["labels", "least", "most"]
    for (fold, split), one in summaries.items():
        counts = one["labels"]
        row = [counts[label] for label in labels]
        if len(labels) > _FEW:
            row = [len(counts), f"{min(counts):g}", f"{max(counts):g}"]
        rows.append((fold, split, *row, *(one[name] for name in _SHAPE)))
    return f"{first}\n\n{_tabulate(rows, [*heads, *_SHAPE])}"


def _tabulate(rows: Sequence[Sequence[Any]], heads: Sequence[str]) -> str:
    def text(cell: Any) -> str:
        if isinstance(cell, float):
            return f"{cell:,.1f}"
        return f"{cell:,}" if isinstance(cell, int) else cell or ""

    texts = [[text(cell) for cell in row] for row in rows]
    align = ["left", "left", *["right"] * len(heads)]
    return tabulate(texts, ["fold", "split", *heads], disable_numparse=True, colalign=align)
