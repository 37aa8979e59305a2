"""Unpacking takes what is wanted, from anywhere in an archive, and lets nothing lead out of it."""

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from folders import read_folder, refused, write_folder

from ltr.console.unpack import check_archive, unpack
from ltr.data.public_sets import PublicSet
from ltr.errors import DataError

SPLITS = ("train", "vali", "test")
FILES = {f"Fold{fold}/{split}.txt": f"{fold} {split}\n" for fold in (1, 2) for split in SPLITS}
LONG = {name: "".join(f"{i * i}\n" for i in range(20000)) for name in FILES}
RAR = b"Rar!\x1a\x07\x01\x00 anything"


def write_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files.items():
            file.writestr(name, text)
    return path


def write_tar(path: Path, files: dict[str, str], *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member in extra:
            file.addfile(member)
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize("prefix", ["", "SMALL/", "./", "a/b/"])
@pytest.mark.parametrize("write", [write_zip, write_tar, write_folder])
def test_unpack_takes_the_wanted_files_from_any_folder(
    tmp_path: Path, write: Callable[..., Path], prefix: str
) -> None:
    there = {f"{prefix}{name}": text for name, text in FILES.items()}
    archive = write(tmp_path / "archive", there | {"README": "hello", f"{prefix}S1.txt": "no"})
    before = archive.read_bytes() if archive.is_file() else read_folder(archive)
    of_a_killed_one = {f"files/{name}": "hal" for name in FILES} | {"x": "y"}
    write_folder(tmp_path / "data" / ".SMALL.unpacking", of_a_killed_one)
    unpack(archive, tmp_path / "data" / "SMALL", list(FILES))
    assert read_folder(tmp_path / "data") == {f"SMALL/{name}": t for name, t in FILES.items()}
    assert before == (archive.read_bytes() if archive.is_file() else read_folder(archive))


def link(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def zip_link(path: Path) -> Path:
    member = zipfile.ZipInfo("Fold1/train.txt")
    member.external_attr = 0o120777 << 16
    with zipfile.ZipFile(write_zip(path, {"Fold1/vali.txt": "x"}), "a") as file:
        file.writestr(member, "/etc/passwd")
    return path


LEADS_OUT: dict[str, Callable[[Path], Path]] = {
    "zip, up": lambda path: write_zip(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, root": lambda path: write_zip(path, FILES | {"/Fold1/vali.txt": "evil"}),
    "tar, up": lambda path: write_tar(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, link": zip_link,
    "tar, link": lambda path: write_tar(path, FILES, link("Fold1", tarfile.SYMTYPE, "/tmp")),
    "tar, wanted link": lambda path: write_tar(
        path, FILES, link("a/Fold1/train.txt", tarfile.SYMTYPE, "/etc/passwd")
    ),
    "tar, hard link": lambda path: write_tar(
        path, FILES, link("a", tarfile.LNKTYPE, "/etc/passwd")
    ),
    "tar, pipe": lambda path: write_tar(path, FILES, link("Fold1/vali.txt", tarfile.FIFOTYPE)),
}


@pytest.mark.parametrize("name", LEADS_OUT)
def test_nothing_leads_out_of_an_archive(tmp_path: Path, name: str) -> None:
    archive = LEADS_OUT[name](tmp_path / "archive")
    target = tmp_path / "data" / "SMALL"
    try:
        unpack(archive, target, list(FILES))
    except DataError:
        assert not target.exists()
    else:
        assert set(read_folder(target)) == set(FILES)
        assert not any(path.is_symlink() for path in target.rglob("*"))
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written <= {"archive", "train.txt", "vali.txt", "test.txt"}
    assert {path.name for path in tmp_path.iterdir()} <= {"archive", "data"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"Fold1/train.txt": "x"}, "does not hold Fold1/vali.txt, Fold1/test.txt, Fold2/train.txt"),
        (FILES | {f"old/{name}": "x" for name in FILES}, "several folders"),
        (
            {f"{'a' if '1' in name else 'b'}/{name}": text for name, text in FILES.items()},
            "several folders",
        ),
        ({}, "neither a folder nor a .zip, .tar, .tar.gz or .rar file"),
    ],
)
def test_unpack_wants_one_complete_set(tmp_path: Path, files: dict[str, str], message: str) -> None:
    archive = write_zip(tmp_path / "archive", files)
    if not files:
        archive.write_text("<html>please log in</html>")
    assert message in refused(lambda: unpack(archive, tmp_path / "SMALL", list(FILES)))
    assert not (tmp_path / "SMALL").exists()


@pytest.mark.parametrize("write", [write_zip, write_tar])
@pytest.mark.parametrize("cut", [True, False])
def test_unpack_notices_damage(tmp_path: Path, write: Callable[..., Path], cut: bool) -> None:
    archive = write(tmp_path / "archive", LONG)
    content = archive.read_bytes()
    flipped = content[:60] + bytes(byte ^ 255 for byte in content[60:120]) + content[120:]
    archive.write_bytes(content[: len(content) // 2] if cut else flipped)
    message = refused(lambda: unpack(archive, tmp_path / "SMALL", list(FILES)))
    assert message.endswith("download it again")
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.slow
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_archive_is_read_to_its_end(tmp_path: Path, compress) -> None:
    archive = write_tar(tmp_path / "archive", LONG)
    content = bytearray(compress(gzip.decompress(archive.read_bytes())))
    archive.write_bytes(content)
    unpack(archive, tmp_path / "SMALL", list(FILES))
    content[-6] ^= 1  # gz: the CRC-32 of all; bz2: its combined CRC; xz: the size of the index
    archive.write_bytes(content)
    message = refused(lambda: unpack(archive, tmp_path / "OTHER", list(FILES)))
    assert "damaged" in message
    assert message.endswith("download it again")
    assert not (tmp_path / "OTHER").exists()


@pytest.mark.slow
def test_rar_is_read_by_the_first_program_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "my bin"))

    def add(name: str, body: str) -> None:
        (tmp_path / "my bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "my bin" / name).chmod(0o755)

    there = write_folder(tmp_path / "there", {f"SMALL/{n}": text for n, text in FILES.items()})
    archive = tmp_path / "my small.rar"
    archive.write_bytes(RAR)

    def message(target: str) -> str:
        return refused(lambda: unpack(archive, tmp_path / target, list(FILES)))

    assert "install one of unar, 7zz, 7z, unrar, bsdtar; or unpack it yourself" in message("A")
    add("7z", "echo sorry, no RAR5 >&2; exit 2")
    assert "7z: sorry, no RAR5; or unpack it yourself" in message("A")
    add("bsdtar", f'[ "$3" = "{archive}" ] && /bin/cp -R {there}/. "$5"')
    unpack(archive, tmp_path / "A", list(FILES))
    assert read_folder(tmp_path / "A") == FILES
    add("unar", '/bin/mkdir "$5/Fold1"; /bin/ln -s /etc/passwd "$5/Fold1/train.txt"')
    assert "does not hold Fold1/train.txt" in message("B")


def test_check_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    assert "no such file" in refused(lambda: check_archive(archive))
    archive.write_bytes(b"abc")
    right = hashlib.sha256(b"abc").hexdigest()
    check_archive(archive)
    check_archive(archive, PublicSet("a", "PAGE", "a.zip", right))
    check_archive(archive, PublicSet("a", "PAGE", "a.zip"))
    public = PublicSet("a", "PAGE", "a.zip", "0" * 64)
    message = refused(lambda: check_archive(archive, public))
    assert all(word in message for word in (right, "0" * 64, "from PAGE", "archive=FOLDER"))
