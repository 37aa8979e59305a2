"""Check an archive and unpack the wanted files, and nothing else.

Files are written under the wanted names, never under those in the archive, into a folder
``.NAME.unpacking`` beside the target that is renamed when it is complete. So nothing can be written
elsewhere, nothing is overwritten, and a killed run leaves no half of a target behind.
"""

import gzip
import hashlib
import lzma
import os
import shutil
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import IO, cast

from tqdm import tqdm

from ltr.errors import DataError

_CHUNK = 1 << 20
_FOLDER_DEPTH = 3  # of the files in a folder given as archive
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # zipfile's word for a compression that it does not know
)
_SCRATCH = ".rar"  # the folder into which a program unpacks all of a .rar
_RAR = b"Rar!\x1a\x07"
_RAR_TOOLS = (  # programs that can read .rar
    "unar -quiet -force-overwrite -no-directory -output-directory {into} {file}",
    "7zz x -y -bd -o{into} {file}",
    "7z x -y -bd -o{into} {file}",
    "unrar x -y -p- {file} {into}/",
    "bsdtar -x -f {file} -C {into}",
)

Member = tuple[str, int, Callable[[], IO[bytes]]]  # name, bytes, how to open it


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
    if sha256:
        digest = hashlib.sha256()
        with archive.open("rb") as file:
            for chunk in _chunks(file, f"checking {archive.name}", found):
                digest.update(chunk)
        if digest.hexdigest() != sha256:
            raise DataError(
                f"{archive} has the SHA-256 {digest.hexdigest()}, not {sha256}: "
                f"it is damaged or another file; {again}, or give the unpacked files as "
                "archive=FOLDER"
            )


def unpack(archive: Path, target: Path, wanted: Sequence[str]) -> None:
    """Unpack the files ``wanted`` of a .zip, .tar (compressed or not), .rar or folder.

    Args:
        archive: the file or folder. The files may lie in any one folder of it.
        target: the folder to make; it must be missing or empty.
        wanted: paths inside ``target``, such as ``Fold1/train.txt``.

    Raises:
        DataError: a file is missing or there twice, a name or a link in the archive leads out of
            it, the archive is damaged, or the disk is full. ``target`` is then untouched.
    """
    unpacking = target.with_name(f".{target.name}.unpacking")
    try:
        _remove_leftover(unpacking, wanted)
        unpacking.mkdir(parents=True)
    except OSError as error:
        raise _failure(archive, target, error) from error
    try:
        with ExitStack() as stack:
            members = _members(archive, unpacking / _SCRATCH, stack)
            _copy(members, archive, unpacking, wanted)
        shutil.rmtree(unpacking / _SCRATCH, ignore_errors=True)
        unpacking.rename(target)
    except _DAMAGED as error:
        raise DataError(f"{archive}: damaged, {error}; download it again") from error
    except OSError as error:
        raise _failure(archive, target, error) from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)


def _failure(archive: Path, target: Path, error: OSError) -> DataError:
    if error.errno is None:  # bz2's error for damage
        return DataError(f"{archive}: damaged, {error}; download it again")
    return DataError(
        f"unpacking {archive} into {target}: {error.strerror or error}; "
        "free space there or give another data_dir=DIR"
    )


def _remove_leftover(unpacking: Path, wanted: Sequence[str]) -> None:
    """Remove the folder of a killed run; refuse one that holds other files."""
    if not os.path.lexists(unpacking):
        return
    ours = {*wanted, *(str(parent) for path in wanted for parent in Path(path).parents)}
    found = (path.relative_to(unpacking) for path in unpacking.rglob("*"))
    theirs = [path for path in found if path.parts[0] != _SCRATCH and str(path) not in ours]
    if theirs or unpacking.is_symlink() or not unpacking.is_dir():
        raise DataError(
            f"{unpacking} is in the way; move it elsewhere, or give another data_dir=DIR"
        )
    shutil.rmtree(unpacking)


def _copy(members: Iterable[Member], archive: Path, folder: Path, wanted: Sequence[str]) -> None:
    if isinstance(members, list):  # all sizes are known
        total = sum(size for name, size, _ in members if _which(name, wanted))
        check_space(folder, total, what=f"unpack {archive}")
    where: dict[str, str] = {}  # wanted path -> the member it came from
    for name, size, open_member in members:
        path = _which(name, wanted)
        if path is None:
            continue
        if path in where:
            raise DataError(f"{archive} holds {path} twice, {where[path]} and {name}; keep one")
        where[path] = name
        check_space(folder, size, what=f"unpack {name}")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with open_member() as source, (folder / path).open("wb") as file:
            file.writelines(_chunks(source, f"unpacking {path}", size))
    if missing := [path for path in wanted if path not in where]:
        raise DataError(f"{archive} does not hold {', '.join(missing)}; give the official archive")
    if len({name.removesuffix(path) for path, name in where.items()}) > 1:
        places = ", ".join(sorted(where.values()))
        raise DataError(f"{archive}: the files lie in different folders, {places}; keep one set")


def _which(name: str, wanted: Sequence[str]) -> str | None:
    """The wanted path of a member, in whatever folder it lies."""
    return next((path for path in wanted if f"/{name}".endswith(f"/{path}")), None)


def check_space(folder: Path, size: int, *, what: str) -> None:
    """Raise ``DataError`` if the disk of ``folder`` has less than ``size`` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DataError(
            f"to {what} takes {size / 1e9:.1f} GB, {folder} has {free / 1e9:.1f} GB free; "
            "free space there or give another data_dir=DIR"
        )


def _members(archive: Path, scratch: Path, stack: ExitStack) -> Iterable[Member]:
    """The files of an archive, none of which leads out of it; a list if all sizes are known."""
    if archive.is_dir():
        return _folder_members(archive)
    with archive.open("rb") as file:
        start = file.read(len(_RAR))
    if start == _RAR:
        return _rar_members(archive, scratch)
    if zipfile.is_zipfile(archive):
        return _zip_members(archive, stack.enter_context(zipfile.ZipFile(archive)))
    if tarfile.is_tarfile(archive):
        return _tar_members(archive, stack.enter_context(tarfile.open(archive)))
    raise DataError(
        f"{archive}: neither a folder nor a .zip, .tar, .tar.gz or .rar file; download it again"
    )


def _folder_members(folder: Path) -> list[Member]:
    members: list[Member] = []
    for root, folders, files in os.walk(folder):
        inside = Path(root).relative_to(folder)
        if len(inside.parts) >= _FOLDER_DEPTH:
            folders.clear()
        for name in files:
            path = Path(root) / name
            if path.is_file():
                size = path.stat().st_size
                content = cast(Callable[[], IO[bytes]], partial(path.open, "rb"))
                members.append(((inside / name).as_posix(), size, content))
    return members


def _zip_members(archive: Path, file: zipfile.ZipFile) -> list[Member]:
    members: list[Member] = []
    for member in file.infolist():
        _check_name(archive, member.filename)
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refusal(archive, member.filename, "is a link or a device")
        if member.flag_bits & 1:
            raise _refusal(archive, member.filename, "is encrypted")
        if not member.is_dir():
            members.append((member.filename, member.file_size, partial(file.open, member)))
    return members


def _tar_members(archive: Path, file: tarfile.TarFile) -> Iterator[Member]:
    for member in file:  # in the file's order: a compressed one cannot go back cheaply
        _check_name(archive, member.name)
        if member.isfile():
            content = cast(Callable[[], IO[bytes]], partial(file.extractfile, member))
            yield member.name, member.size, content
        elif not member.isdir():
            raise _refusal(archive, member.name, "is a link or a device")
    while file.fileobj is not None and file.fileobj.read(_CHUNK):
        pass  # the checksum of a compressed archive stands at its end


def _rar_members(archive: Path, scratch: Path) -> list[Member]:
    """Unpack with a program, since Python has no reader for .rar."""
    tools = {tool.split()[0]: tool for tool in _RAR_TOOLS}
    complaints = []
    for name in filter(shutil.which, tools):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        places = {"into": scratch.resolve(), "file": archive.resolve()}
        command = [part.format(**places) for part in tools[name].split()]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode == 0:
            for path in scratch.rglob("*"):
                if path.is_symlink():
                    raise _refusal(archive, path.name, "is a link")
            return _folder_members(scratch)
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


def _check_name(archive: Path, name: str) -> None:
    path = PureWindowsPath(name)  # takes both kinds of slashes, and drives
    if path.anchor or ".." in path.parts:
        raise _refusal(archive, name, "leads out of the archive")


def _refusal(archive: Path, name: str, why: str) -> DataError:
    return DataError(
        f"{archive}: {name!r} {why}, so nothing was unpacked; get the official archive"
    )


def _chunks(file: IO[bytes], text: str, size: int) -> Iterator[bytes]:
    """The content of a file of ``size`` bytes, behind a progress bar."""
    with tqdm(desc=text, total=size, unit="B", unit_scale=True, disable=None, leave=False) as bar:
        while chunk := file.read(_CHUNK):
            yield chunk
            bar.update(len(chunk))
