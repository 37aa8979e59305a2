"""Extract the required files from a downloaded archive, or copy them from a folder."""

import hashlib
import logging
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ltr.atomic import writing_folder
from ltr.data.public_sets import PublicSet
from ltr.errors import DataError

log = logging.getLogger(__name__)


def unpack(
    archive: Path,
    public: PublicSet | None,
    folder: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
) -> None:
    """Unpack the files ``required`` and ``optional`` from an archive, or copy them from a folder.

    The archive is a .zip, .tar (compressed or not) or .rar file. After an error, ``folder`` is
    unchanged, because a temporary folder is renamed to it at the end.

    Args:
        archive: the archive, or a folder that contains the files.
        public: the public data set; the archive must have its SHA-256. If None, the archive is not
            checked.
        folder: the new folder, which must be missing or empty.
        required: paths inside ``folder``, such as ``Fold1/train.txt``. In the archive, the files
            may be in any folder, but all must be in the same folder.
        optional: further paths inside ``folder``; these files may be missing in the archive.

    Raises:
        DataError: the archive is missing or damaged, it does not have the SHA-256 of ``public``, a
            file is missing or exists twice, or the disk is full.
    """
    if not archive.exists():
        raise DataError(f"{archive}: no such file; set archive=PATH to the file you downloaded")
    with writing_folder(folder) as new_folder:
        if public is not None and public.sha256 and archive.is_file():
            _check(archive, public, folder)
        try:
            if archive.is_dir():
                source_folder = _home(archive, archive, required)
                _copy(source_folder, new_folder, [*required, *_those_in(source_folder, optional)])
            else:
                root = new_folder / "unpacked"
                root.mkdir()
                _extract(archive, root, folder)
                source_folder = _home(archive, root, required)
                for path in [*required, *_those_in(source_folder, optional)]:
                    (new_folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (source_folder / path).rename(new_folder / path)
                shutil.rmtree(root)
        except DataError:
            raise
        except Exception as error:  # damaged archives raise many kinds of errors
            raise DataError(
                f"{archive} cannot be unpacked into {folder}: {error}; if the disk is not full, "
                "the archive is damaged: download it again"
            ) from error


def _copy(source_folder: Path, folder: Path, paths: Sequence[str]) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source_folder / path, folder / path)


def _check(archive: Path, public: PublicSet, folder: Path) -> None:
    log.info("checking %s", archive)
    with archive.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != public.sha256:
        raise DataError(
            f"{archive}: expected the SHA-256 {public.sha256}, got {sha256}: download the file "
            f"again from {public.page}, or unpack it into {folder} yourself and leave out archive"
        )


def _extract(archive: Path, into: Path, folder: Path) -> None:
    """Extract all files; Python and bsdtar refuse to write outside the folder ``into``."""
    log.info("unpacking %s", archive)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(into)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar:
            tar.extractall(into, filter="data")
    elif shutil.which("bsdtar"):  # Python has no reader for .rar
        command = ["bsdtar", "-x", "-f", str(archive.resolve()), "-C", str(into)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EOFError(" ".join(done.stderr.split()))
    else:
        raise DataError(
            f"{archive}: expected a .zip or .tar file; if this is a .rar file, install bsdtar "
            f"(libarchive), or unpack the file into {folder} yourself and leave out archive"
        )


def _home(archive: Path, root: Path, required: Sequence[str]) -> Path:
    """Return the only folder below ``root`` with all ``required`` files; links do not count."""
    depth = required[0].count("/")
    candidates = [path.parents[depth].resolve() for path in root.rglob(required[0])]
    complete = [home for home in candidates if all(_is_in(home, path) for path in required)]
    if len(complete) != 1:
        raise DataError(
            f"{archive}: expected exactly one folder with {', '.join(required)}, found "
            f"{len(complete)}; use the official archive"
        )
    return complete[0]


def _is_in(folder: Path, path: str) -> bool:
    """Return whether ``path`` is a file in ``folder``; a link does not count."""
    return (folder / path).is_file() and (folder / path).resolve() == folder / path


def _those_in(folder: Path, paths: Sequence[str]) -> list[str]:
    """Return the ``paths`` that are files in ``folder``."""
    return [path for path in paths if _is_in(folder, path)]
