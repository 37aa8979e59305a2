"""Unpack the wanted files of an archive, and nothing else."""

import hashlib
import logging
import lzma
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from ltr.data.public_sets import PublicSet
from ltr.errors import DataError

log = logging.getLogger(__name__)
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


def unpack_once(
    archive: Path, public: PublicSet | None, folder: Path, wanted: Sequence[str]
) -> None:
    """Make ``folder`` of the files ``wanted`` of the archive, unless they are there.

    ``DataError`` where ``folder`` holds other files, and as ``check_archive`` and ``unpack``.
    """
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

    ``wanted`` are paths inside ``target``, such as ``Fold1/train.txt``, which may lie in any one
    folder of the archive. They become ``target``, which must be missing or empty, by one rename.

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
