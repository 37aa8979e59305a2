"""Check an archive and unpack the wanted files, and nothing else.

Files are unpacked into a folder ``.NAME.unpacking`` beside the target; those that are wanted become
the target by one rename. So nothing can be written elsewhere, nothing is overwritten, and a killed
run leaves no half of a target behind.
"""

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


def check_archive(archive: Path, public: PublicSet | None = None) -> None:
    """Check that a file is there, and that its length and SHA-256 are the published ones.

    Raises:
        DataError: the file is missing, or another one.
    """
    if not archive.is_file():
        raise DataError(f"{archive}: no such file; give archive=PATH of what you downloaded")
    if public is None:
        return
    again, size = f"download it again from {public.page}", archive.stat().st_size
    if public.size not in (None, size):
        raise DataError(
            f"{archive} has {size:,} bytes, not {public.size:,}: cut off, or another file; {again}"
        )
    log.info("checking %s", archive)
    with archive.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest() if public.sha256 else ""
    if sha256 != public.sha256:
        raise DataError(
            f"{archive} has the SHA-256 {sha256}, not {public.sha256}: it is damaged or another "
            f"file; {again}, or give the unpacked files as archive=FOLDER"
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
        root = archive if archive.is_dir() else everything
        if root is everything:
            log.info("unpacking %s", archive)
            _extract(archive, everything, wanted)
        for path, source in _find(archive, root, wanted).items():
            (files / path).parent.mkdir(parents=True, exist_ok=True)
            (shutil.move if root is everything else shutil.copyfile)(source, files / path)
        files.rename(target)
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, _DAMAGED) or error.errno is None:  # bz2's error has no number
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
        is_rar = start.read(len(_RAR)) == _RAR
    if is_rar:
        _extract_rar(archive, into)
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(into, [one for one in zipped.namelist() if _which(one, wanted)])
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar:
            for one in tar:  # in the file's order: it cannot go back cheaply
                if _which(one.name, wanted):
                    tar.extract(one, into, filter="data")
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass  # the checksum of a compressed archive stands at its end
    else:
        raise DataError(
            f"{archive}: neither a folder nor a .zip, .tar, .tar.gz or .rar file; download it again"
        )


def _extract_rar(archive: Path, into: Path) -> None:
    """Extract all by a program, since Python has no reader for .rar."""
    by_hand = "unpack it yourself and give archive=FOLDER"
    complaints = []
    for tool in _RAR_TOOLS:
        places = {"into": into.resolve(), "file": archive.resolve()}
        program, *arguments = (part.format(**places) for part in tool.split())
        if shutil.which(program) is None:
            continue
        shutil.rmtree(into)
        into.mkdir()
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode == 0:
            return
        said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        complaints.append(f"{program}: {said[-200:]}")
    if complaints:
        raise DataError(f"{archive}: {'; '.join(complaints)}; download it again, or {by_hand}")
    tools = ", ".join(tool.split()[0] for tool in _RAR_TOOLS)
    raise DataError(f"{archive}: Python cannot read .rar; install one of {tools}, or {by_hand}")


def _which(name: str, wanted: Sequence[str]) -> str | None:
    """The wanted path of a member, in whatever folder it lies."""
    return next((path for path in wanted if f"/{name}".endswith(f"/{path}")), None)


def _find(archive: Path, root: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """Where each wanted file lies below ``root``."""
    where: dict[str, Path] = {}
    for file in sorted(root.rglob("*.txt")):
        path = _which(file.relative_to(root).as_posix(), wanted)
        if path is None or file.is_symlink() or not file.is_file():
            continue
        if path in where:
            raise DataError(f"{archive} holds {path} twice, in several folders; keep one of them")
        where[path] = file
    if missing := [path for path in wanted if path not in where]:
        raise DataError(f"{archive} does not hold {', '.join(missing)}; give the official archive")
    if len({file.as_posix().removesuffix(path) for path, file in where.items()}) > 1:
        raise DataError(f"{archive}: the files lie in different folders; keep one set")
    return where
