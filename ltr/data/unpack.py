"""Check an archive and unpack the wanted files, and nothing else.

Files are unpacked into a folder ``.NAME.unpacking`` beside the target; those that are wanted become
the target by one rename. So nothing can be written elsewhere, nothing is overwritten, and a killed
run leaves no half of a target behind.
"""

import hashlib
import lzma
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ltr.errors import DataError

_CHUNK = 1 << 20
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


def check_archive(archive: Path, *, size: int | None, sha256: str, page: str) -> None:
    """Check the length and the SHA-256 of a file, with a progress bar.

    Args:
        archive: the file.
        size: the bytes that it must have; None: any.
        sha256: of its content; "": any.
        page: the address of its download, for the message.

    Raises:
        DataError: the file is missing, or another one.
    """
    again = f"download it again from {page}" if page else "download it again"
    if not archive.is_file():
        raise DataError(f"{archive}: no such file; give archive=PATH of what you downloaded")
    found = archive.stat().st_size
    if size is not None and found != size:
        what = "incomplete" if found < size else "another file"
        raise DataError(f"{archive} has {found:,} bytes, not {size:,}: it is {what}; {again}")
    if not sha256:
        return
    digest, text = hashlib.sha256(), f"checking {archive.name}"
    bar = tqdm(desc=text, total=found, unit="B", unit_scale=True, disable=None, leave=False)
    with archive.open("rb") as file, bar:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            bar.update(len(chunk))
    if digest.hexdigest() != sha256:
        raise DataError(
            f"{archive} has the SHA-256 {digest.hexdigest()}, not {sha256}: "
            f"it is damaged or another file; {again}, or give the unpacked files as archive=FOLDER"
        )


def unpack(archive: Path, target: Path, wanted: Sequence[str]) -> None:
    """Unpack the files ``wanted`` of a .zip, .tar (compressed or not), .rar or folder.

    Args:
        archive: the file or folder. The files may lie in any one folder of it.
        target: the folder to make; it must be missing or empty.
        wanted: paths inside ``target``, such as ``Fold1/train.txt``.

    Raises:
        DataError: a file is missing or there twice, a wanted name leads out of the archive, the
            archive is damaged, or the disk is full. ``target`` is then untouched.
    """
    unpacking = target.with_name(f".{target.name}.unpacking")
    everything, files = unpacking / "all", unpacking / "files"
    try:
        shutil.rmtree(unpacking, ignore_errors=True)  # of a killed run
        everything.mkdir(parents=True)
        if not archive.is_dir():
            _extract(archive, everything, wanted)
        root = archive if archive.is_dir() else everything
        for path, source in _found(archive, root, wanted).items():
            (files / path).parent.mkdir(parents=True, exist_ok=True)
            if root is everything:
                source.replace(files / path)
            else:
                shutil.copyfile(source, files / path)
        files.rename(target)
    except _DAMAGED as error:
        raise DataError(f"{archive}: damaged, {error}; download it again") from error
    except OSError as error:
        if error.errno is None:  # bz2's error for damage
            raise DataError(f"{archive}: damaged, {error}; download it again") from error
        raise DataError(
            f"unpacking {archive} into {target}: {error.strerror or error}; "
            "free space there or give another data_dir=DIR"
        ) from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)


def _extract(archive: Path, into: Path, wanted: Sequence[str]) -> None:
    """Extract the wanted members; Python's filters keep each of them below ``into``."""
    with archive.open("rb") as start:
        if start.read(len(_RAR)) == _RAR:
            return _extract_rar(archive, into)
    bars: dict[str, Any] = {"desc": f"unpacking {archive.name}", "unit": " files", "disable": None}
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            members = [one for one in zipped.infolist() if _which(one.filename, wanted)]
            for member in tqdm(members, **bars):
                zipped.extract(member, into)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar:
            for one in tqdm(tar, **bars):  # in the file's order: it cannot go back cheaply
                if _which(one.name, wanted):
                    tar.extract(one, into, filter="data")
            while tar.fileobj is not None and tar.fileobj.read(_CHUNK):
                pass  # the checksum of a compressed archive stands at its end
    else:
        raise DataError(
            f"{archive}: neither a folder nor a .zip, .tar, .tar.gz or .rar file; download it again"
        )
    return None


def _extract_rar(archive: Path, into: Path) -> None:
    """Extract all by a program, since Python has no reader for .rar."""
    tools = {tool.split()[0]: tool for tool in _RAR_TOOLS}
    complaints = []
    for name in filter(shutil.which, tools):
        shutil.rmtree(into)
        into.mkdir()
        places = {"into": into.resolve(), "file": archive.resolve()}
        command = [part.format(**places) for part in tools[name].split()]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode == 0:
            return
        said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        complaints.append(f"{name}: {said[-200:]}")
    if not complaints:
        raise DataError(
            f"{archive} is a .rar file, which Python cannot read; install one of "
            f"{', '.join(tools)}, or unpack it yourself and give archive=FOLDER"
        )
    raise DataError(
        f"{archive}: {'; '.join(complaints)}; download it again, or unpack it yourself and give "
        "archive=FOLDER"
    )


def _which(name: str, wanted: Sequence[str]) -> str | None:
    """The wanted path of a member, in whatever folder it lies."""
    return next((path for path in wanted if f"/{name}".endswith(f"/{path}")), None)


def _found(archive: Path, root: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """Where each wanted file lies below ``root``."""
    where: dict[str, Path] = {}
    for file in sorted(root.rglob("*.txt")):
        inside = file.relative_to(root)
        path = _which(inside.as_posix(), wanted)
        if path is None or file.is_symlink() or not file.is_file():
            continue
        if path in where:
            first = where[path].relative_to(root)
            raise DataError(f"{archive} holds {path} twice, {first} and {inside}; keep one")
        where[path] = file
    if missing := [path for path in wanted if path not in where]:
        raise DataError(f"{archive} does not hold {', '.join(missing)}; give the official archive")
    if len({file.as_posix().removesuffix(path) for path, file in where.items()}) > 1:
        places = ", ".join(sorted(str(file.relative_to(root)) for file in where.values()))
        raise DataError(f"{archive}: the files lie in different folders, {places}; keep one set")
    return where
