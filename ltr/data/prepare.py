"""Prepare a published data set: check and unpack its archive, fill the cache, count."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ltr.data.archives import SETS, PublishedSet, published
from ltr.data.cache import file_digest
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Dataset
from ltr.data.summary import Place, Summary, differences, summarise, table
from ltr.data.unpack import check_archive, unpack
from ltr.errors import ConfigError, DataError

log = logging.getLogger(__name__)
_HOW = ("width", "labels", "max_grade", "regroup", "vali_share", "seed")  # a set is read


@dataclass(frozen=True)
class Report:
    """The tables to print, and everything that is not as published."""

    table: str
    differences: list[str]
    remedy: str

    def check(self) -> None:
        """Raise ``DataError`` that names every difference, if there is one."""
        if self.differences:
            raise DataError(f"{'; '.join(self.differences)}; {self.remedy}")


def prepare(
    dataset: PublishedSet,
    *,
    data_dir: str | Path,
    cache_dir: str | Path,
    archive: str | Path | None = None,
    folds: Sequence[int] | int | str = "all",
) -> Report:
    """Check and unpack an archive, fill the cache, count.

    Args:
        dataset: the set, with its published counts.
        data_dir, cache_dir: the folders of all data sets and of the parsed arrays.
        archive: the archive, or a folder with its files; None: the files are in place.
        folds: the folds to read and count, 1-based; "all": all. All are unpacked.

    Returns:
        The report; the caller prints its table and calls its ``check``.

    Raises:
        DataError: the archive is not the official one, or damaged; the target folder holds other
            files; a file is missing or malformed; the disk is full.
        ConfigError: there is no such fold.
    """
    chosen = _chosen_folds(dataset, folds)
    data_dir = str(data_dir)
    try:
        folder = Path(data_dir).expanduser() / dataset.folder
        if archive is not None:
            _unpack_once(dataset, Path(str(archive)).expanduser(), folder)
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; {dataset.how_to_get(data_dir)}")
        shared = ("name", "folder", "folds", *_HOW)
        knobs: dict[str, Any] = {key: getattr(dataset, key) for key in shared}
        knobs |= {"data_dir": folder.parent, "cache_dir": Path(str(cache_dir)).expanduser()}
        summaries: dict[Place, Summary] = {}
        wrong: list[str] = []
        for fold in chosen:
            files = LetorFiles(**knobs, fold=fold)
            files.check()
            for split in SPLITS:
                lists = files.split(split)
                summaries[fold, split] = summarise(lists)
                path, expected = files.path(split), dataset.files.get(_inside(fold, split))
                if expected not in (None, file_digest(path, knobs["cache_dir"])):
                    wrong.append(f"{path} is not the official file")
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise DataError(
            f"{error.filename or data_dir}: {error.strerror or error}; "
            "set data_dir, dataset.folder and archive to what can be read"
        ) from None
    wrong = differences(summaries, dataset.known) + wrong
    return Report(table(summaries, dataset.known), wrong, dataset.how_to_get(data_dir))


def set_of(given: Mapping[str, Any], data_dir: str | Path) -> PublishedSet:
    """The public set, or the lists of one's own, of the config ``given``.

    Raises:
        ConfigError: it is neither.
    """
    own = given["name"] not in SETS and given.get("folder") is not None
    dataset = own_lists(given["folder"], data_dir=data_dir) if own else published(given["name"])
    return replace(dataset, **{key: given[key] for key in ("folder", *_HOW) if key in given})


def count(dataset: Dataset) -> Report:
    """What tables, or a data set of one's own class, hold; nothing to unpack or compare with."""
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
    return Report(text, [], "")


def own_lists(folder: str | int | None, *, data_dir: str | Path) -> PublishedSet:
    """A folder of one's own lists as a set without published counts; its folds are found.

    Raises:
        ConfigError: no folder is named.
    """
    if folder in (None, ""):
        raise ConfigError(f"give dataset.folder=NAME, the folder of your lists in {data_dir}")
    base = Path(str(data_dir)).expanduser() / str(folder)
    folds = 0
    with suppress(OSError):  # ``prepare`` names the error
        while (base / f"Fold{folds + 1}").exists():
            folds += 1
    return PublishedSet(name="letor", folder=str(folder), folds=folds)


def _chosen_folds(dataset: PublishedSet, folds: Sequence[int] | int | str) -> Sequence[int | None]:
    there = list(range(1, dataset.folds + 1))
    if folds == "all":
        return there or [None]
    if not there:
        raise ConfigError(f"folds={folds}: {dataset.name} has no folds; leave folds=all")
    chosen = [folds] if isinstance(folds, int | str) else list(folds)
    if not chosen or any(fold not in there for fold in chosen):
        raise ConfigError(
            f"folds={folds}: give all, or some of 1 to {there[-1]} as in 'folds=[1,2]'"
        )
    return sorted({int(fold) for fold in chosen})


def _inside(fold: int | None, split: str) -> str:
    return f"{split}.txt" if fold is None else f"Fold{fold}/{split}.txt"


def _unpack_once(dataset: PublishedSet, archive: Path, folder: Path) -> None:
    """Make ``folder`` from the archive, unless it is complete."""
    folds = range(1, dataset.folds + 1) or [None]
    wanted = [_inside(fold, split) for fold in folds for split in dataset.splits]
    if _complete(folder, wanted):
        return
    if not archive.is_dir():
        check_archive(archive, size=dataset.size, sha256=dataset.sha256, page=dataset.page)
    with _locked(folder):
        if not _complete(folder, wanted):  # another process may have made it meanwhile
            unpack(archive, folder, wanted)


def _complete(folder: Path, wanted: Sequence[str]) -> bool:
    """True if all files are there, False if nothing is, else ``DataError``."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    missing = [path for path in wanted if not (folder / path).is_file()]
    if missing:
        raise DataError(
            f"{folder} is there, but without {', '.join(missing)}; move it away, or give another "
            "data_dir=DIR"
        )
    log.info("%s is there already: the archive was not read", folder)
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working on ``folder``."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f".{folder.name}.lock"))
        lock.acquire(timeout=0)
    except Timeout:
        raise DataError(f"another run is preparing {folder}; wait until it is done") from None
    except OSError as error:
        raise DataError(
            f"{folder.parent} cannot be written, {error.strerror or error}; "
            "give another data_dir=DIR"
        ) from error
    try:
        yield
    finally:
        lock.release()
