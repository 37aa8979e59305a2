"""Prepare a data set: unpack its archive, fill the cache, count, compare with what is published."""

import hashlib
import logging
import lzma
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock
from tabulate import tabulate

from ltr.data.cache import file_digest
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Dataset, Lists
from ltr.data.public_sets import Known, PublicSet, public_sets
from ltr.data.transforms import column_range
from ltr.errors import ConfigError, DataError

log = logging.getLogger(__name__)
_FEW = 8  # up to so many different labels, each is counted
_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError,
    NotImplementedError,
)  # fmt: skip
_RAR = b"Rar!\x1a\x07"
_RAR_TOOLS = (  # programs that can read .rar
    "unar -quiet -force-overwrite -no-directory -output-directory {into} {file}",
    "7zz x -y -bd -o{into} {file}",
    "7z x -y -bd -o{into} {file}",
    "unrar x -y -p- {file} {into}/",
    "bsdtar -x -f {file} -C {into}",
)


class Report(NamedTuple):
    """The table to print, and everything that is not as published."""

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

    Raises:
        DataError: the archive is not the official one, or damaged; the target folder holds other
            files; a file is missing or malformed; the disk is full.
        ConfigError: no folder is named, or there is no such fold.
    """
    if given.get("folder") in (None, ""):
        raise ConfigError(f"give dataset.folder=NAME, the folder of your lists in {data_dir}")
    base, public = Path(str(data_dir)).expanduser(), public_sets().get(given["name"])
    folder = base / str(given["folder"])
    remedy = f"put train.txt, vali.txt, test.txt into {folder}, or into Fold1, ... in it"
    remedy = public.how_to_get(data_dir) if public else remedy
    how = {key: value for key, value in given.items() if not key.startswith("_")}
    how |= {"data_dir": base, "cache_dir": str(cache_dir)}
    rows, strange = [], []
    try:
        there = int(given.get("folds") or 0)
        if not public:
            there = next(fold for fold in count() if not (folder / f"Fold{fold + 1}").exists())
        every: list[int | None] = [*range(1, there + 1)] or [None]
        chosen: Any = (
            every if folds == "all" else [folds] if isinstance(folds, int | str) else folds
        )
        if not chosen or any(fold not in every for fold in chosen):
            some = "" if None in every else f", or some of 1 to {there} as in 'folds=[1,2]'"
            raise ConfigError(f"folds={folds}: give all{some}")
        if archive is not None:
            splits = [one for one in SPLITS if one != "vali" or given.get("vali_share") is None]
            wanted = [_inside(fold, split) for fold in every for split in splits]
            _unpack_once(Path(str(archive)).expanduser(), public, folder, wanted)
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; {remedy}")
        for fold in chosen:
            files = LetorFiles(**how | {"fold": fold, "folds": there})
            files.check()
            for split in SPLITS:
                rows.append(count_items(files.split(split), fold, split))
                path, official = files.path(split), public.files if public else {}
                digest = official.get(_inside(fold, split))
                if digest not in (None, file_digest(path, files.cache_dir)):
                    strange.append(f"{path} is not the official file")
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise DataError(
            f"{error.filename or data_dir}: {error.strerror or error}; "
            "set data_dir, dataset.folder and archive to what can be read"
        ) from None
    strange = differences(rows, public.known if public else ()) + strange
    known = "\n\nall counts are as published" if public and public.known and not strange else ""
    return Report(table(rows) + known, strange, remedy)


def prepare_other(dataset: Dataset) -> Report:
    """Count tables, or a data set of one's own class; nothing to unpack or compare with."""
    dataset.check()
    lists = {split: dataset.split(split) for split in SPLITS}
    text = table([count_items(part, dataset.fold, split) for split, part in lists.items()])
    if (columns := lists["train"].columns) is not None:
        coded = [
            f"{name} ({f'hashed to {values:,}' if isinstance(values, int) else f'{len(values):,}'})"
            for name, values in columns.categories.items()
        ]
        text += f"\n\n{len(columns.names):,} features, categories: {', '.join(coded) or 'none'}"
    return Report(text)


def _inside(fold: int | None, split: str) -> str:
    return f"{split}.txt" if fold is None else f"Fold{fold}/{split}.txt"


def count_items(lists: Lists, fold: int | None, split: str) -> dict[str, Any]:
    """What a split holds; features are read once, in blocks."""
    low, high = column_range(lists.features)
    return {
        "fold": fold,
        "split": split,
        "rows": lists.items,
        "lists": len(lists),
        "empty lists": int(lists.empty.sum()),
        "shortest": int(lists.lengths.min()),
        "mean": round(float(lists.lengths.mean()), 1),
        "longest list": int(lists.lengths.max()),
        "constant columns": int((low >= high).sum()),  # greater where every value is missing
        "missing values": lists.missing,
        "labels": Counter(lists.labels.tolist()),
    }


def differences(rows: Sequence[Mapping[str, Any]], known: Sequence[Known]) -> list[str]:
    """Every count of ``rows`` that is not as published, in words."""
    found, splits = [], {(row["fold"], row["split"]): row for row in rows}
    for record in known:
        parts = [splits[p] for one in record.splits if (p := (record.fold, one)) in splits]
        if len(parts) < len(record.splits):
            continue
        must = {"rows": record.rows, "lists": record.lists, "empty lists": record.empty}
        have = {name: sum(part[name] for part in parts) for name in must}
        if record.labels:
            grades = dict(enumerate(record.labels))
            labels = sum((part["labels"] for part in parts), Counter[float]())
            for grade in sorted({*labels, *grades}):
                name = f"items of grade {grade:g}"
                have[name], must[name] = labels[grade], grades.get(grade, 0)
        where = ("" if record.fold is None else f"Fold{record.fold} ") + "+".join(record.splits)
        found += [
            f"{where} has {have[name]:,} {name}, not {number:,}"
            for name, number in must.items()
            if number is not None and number != have[name]
        ]
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each split; of many labels the number and the range."""
    several = sorted({label for row in rows for label in row["labels"]})
    shown = []
    for row in rows:
        labels = row["labels"]
        cells = {f"label {label:g}": labels[label] for label in several}
        if len(several) > _FEW:
            cells = {"labels": len(labels), "least": min(labels), "most": max(labels)}
        shown.append({name: row[name] for name in row if name != "labels"} | cells)
    return tabulate(shown, headers="keys", intfmt=",", floatfmt=",.10g", missingval="")


def _unpack_once(
    archive: Path, public: PublicSet | None, folder: Path, wanted: Sequence[str]
) -> None:
    """Make ``folder`` from the archive, unless it is there; another process that does so waits."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            if not archive.is_dir():
                check_archive(archive, public)
            unpack(archive, folder, wanted)
            return
    if missing := [path for path in wanted if not (folder / path).is_file()]:
        raise DataError(
            f"{folder} is there, but without {', '.join(missing)}; move it away, or give another "
            "data_dir=DIR"
        )
    log.info("%s is there already: the archive was not read", folder)


def check_archive(archive: Path, public: PublicSet | None = None) -> None:
    """Raise ``DataError`` unless the file is there and, where it is known, has the SHA-256."""
    if not archive.is_file():
        raise DataError(f"{archive}: no such file; give archive=PATH of what you downloaded")
    if public is None or not public.sha256:
        return
    log.info("checking %s", archive)
    with archive.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != public.sha256:
        raise DataError(
            f"{archive} has the SHA-256 {sha256}, not {public.sha256}: it is cut off, damaged or "
            f"another file; download it again from {public.page}, or give the unpacked files as "
            "archive=FOLDER"
        )


def unpack(archive: Path, target: Path, wanted: Sequence[str]) -> None:
    """Unpack the files ``wanted`` of a .zip, .tar (compressed or not), .rar or folder.

    They go to ``.NAME.unpacking`` beside the target, and become the target by one rename, so that
    nothing is written elsewhere or overwritten, and a killed run leaves no half of a target.

    Args:
        archive: the file or folder. The files may lie in any one folder of it.
        target: the folder to make; it must be missing or empty.
        wanted: paths inside ``target``, such as ``Fold1/train.txt``.

    Raises:
        DataError: a file is missing or there twice, a wanted name leads out of the archive, the
            archive is damaged, or the disk is full. ``target`` is then untouched.
    """
    part = target.with_name(f".{target.name}.unpacking")
    files, root = part / "files", archive
    place: Any = shutil.copyfile
    try:
        shutil.rmtree(part, ignore_errors=True)  # of a killed run
        files.mkdir(parents=True)
        if not archive.is_dir():
            log.info("unpacking %s", archive)
            root, place = part / "all", shutil.move
            root.mkdir()
            _extract(archive, root, wanted)
        home = _home(archive, root, wanted)
        for path in wanted:
            (files / path).parent.mkdir(exist_ok=True)
            place(home / path, files / path)
        files.rename(target)
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, _DAMAGED) or error.errno is None:  # bz2's error has no number
            raise DataError(f"{archive}: damaged, {error}; download it again") from error
        raise DataError(
            f"unpacking {archive} into {target}: {error.strerror or error}; "
            "free space there or give another data_dir=DIR"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extract(archive: Path, into: Path, wanted: Sequence[str]) -> None:
    """Extract the wanted members; Python's filters keep each of them below ``into``."""

    def is_wanted(name: str) -> bool:
        return any(f"/{name}".endswith(f"/{path}") for path in wanted)

    with archive.open("rb") as start:
        is_rar = start.read(len(_RAR)) == _RAR
    if is_rar:
        _extract_rar(archive, into)
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(into, [name for name in zipped.namelist() if is_wanted(name)])
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar:
            for one in tar:  # in the file's order: it cannot go back cheaply
                if is_wanted(one.name):
                    tar.extract(one, into, filter="data")
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass  # the checksum of a compressed archive stands at its end
    else:
        raise DataError(
            f"{archive}: neither a folder nor a .zip, .tar, .tar.gz or .rar file; download it again"
        )


def _extract_rar(archive: Path, into: Path) -> None:
    """Extract all by a program, since Python has no reader for .rar."""
    said = []
    for tool in _RAR_TOOLS:
        places = {"into": into.resolve(), "file": archive.resolve()}
        command = [part.format(**places) for part in tool.split()]
        if shutil.which(command[0]):
            how: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "errors": "replace"}
            done = subprocess.run(command, check=False, **how)
            if done.returncode == 0:
                return
            said.append(f"{command[0]}: {' '.join((done.stderr or done.stdout).split())[-200:]}")
    tools = ", ".join(tool.split()[0] for tool in _RAR_TOOLS)
    what = "; ".join(said) or f"Python cannot read .rar, install one of {tools}"
    raise DataError(f"{archive}: {what}; or unpack it yourself and give archive=FOLDER")


def _home(archive: Path, root: Path, wanted: Sequence[str]) -> Path:
    """The one folder below ``root`` that holds every wanted file, and no link in its place."""

    def there(home: Path, path: str) -> bool:
        return (home / path).is_file() and (home / path).resolve() == home.resolve() / path

    homes = {path: [one.parents[path.count("/")] for one in root.rglob(path)] for path in wanted}
    whole = [home for home in homes[wanted[0]] if all(there(home, path) for path in wanted)]
    if len(whole) == 1:
        return whole[0]
    missing = [path for path in wanted if not any(there(home, path) for home in homes[path])]
    what = f"does not hold {', '.join(missing)}" if missing else "has them in several folders"
    raise DataError(f"{archive} {what}; give the official archive, or keep one whole set")
