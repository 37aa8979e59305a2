"""Unpacking takes what is wanted, from anywhere in an archive, and lets nothing lead out of it."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from folders import read_folder, refused, write_folder

from ltr.console.unpack import unpack
from ltr.data.public_sets import PublicSet
from ltr.errors import DataError

SPLITS = ("train", "vali", "test")
FILES = {f"Fold{fold}/{split}.txt": f"{fold} {split}\n" for fold in (1, 2) for split in SPLITS}
LONG = {name: "".join(f"{i * i}\n" for i in range(20000)) for name in FILES}


def write_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files.items():
            file.writestr(name, text)
    return path


def write_tar(path: Path, files: dict[str, str], extra: Sequence[tarfile.TarInfo] = ()) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member in extra:
            file.addfile(member)
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize(
    ("write", "prefix"), [(write_zip, ""), (write_zip, "a/b/"), (write_tar, "./")]
)
def test_the_wanted_files_are_taken_from_any_folder(
    tmp_path: Path, write: Callable[..., Path], prefix: str
) -> None:
    there = {f"{prefix}{name}": text for name, text in FILES.items()}
    archive = write(tmp_path / "archive", there | {"README": "hello", f"{prefix}S1.txt": "no"})
    before = archive.read_bytes()
    unpack(archive, None, tmp_path / "data" / "SMALL", list(FILES))
    assert read_folder(tmp_path / "data") == {f"SMALL/{name}": t for name, t in FILES.items()}
    assert before == archive.read_bytes()


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


LINKS = {
    "link": link("Fold1", tarfile.SYMTYPE, "/tmp"),
    "wanted link": link("a/Fold1/train.txt", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": link("a", tarfile.LNKTYPE, "/etc/passwd"),
    "pipe": link("Fold1/vali.txt", tarfile.FIFOTYPE),
}
LEADS_OUT: dict[str, Callable[[Path], Path]] = {
    "zip, up": lambda path: write_zip(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, root": lambda path: write_zip(path, FILES | {"/Fold1/vali.txt": "evil"}),
    "tar, up": lambda path: write_tar(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, link": zip_link,
    **{name: partial(write_tar, files=FILES, extra=[one]) for name, one in LINKS.items()},
}


@pytest.mark.parametrize("name", LEADS_OUT)
def test_nothing_leads_out_of_an_archive(tmp_path: Path, name: str) -> None:
    archive = LEADS_OUT[name](tmp_path / "archive")
    target = tmp_path / "data" / "SMALL"
    try:
        unpack(archive, None, target, list(FILES))
    except DataError:
        assert not target.exists()
    else:
        assert set(read_folder(target)) == set(FILES)
        assert not any(path.is_symlink() for path in target.rglob("*"))
    assert {path.name for path in tmp_path.iterdir()} <= {"archive", "data"}
    assert {path.name for path in (tmp_path / "data").iterdir()} <= {"SMALL"}


APART = {f"{'a' if '1' in name else 'b'}/{name}": text for name, text in FILES.items()}


def test_one_complete_set_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    archive = tmp_path / "archive"
    for files, message in (
        ({"Fold1/train.txt": "x"}, "0 of its folders hold Fold1/train.txt, Fold1/vali.txt"),
        (FILES | {f"old/{name}": "x" for name in FILES}, "2 of its folders"),
        (APART, "0 of its folders"),
        ({}, "neither .zip nor .tar; for .rar install bsdtar"),
    ):
        write_zip(archive, files)
        if not files:
            archive.write_text("<html>please log in</html>")
        assert message in refused(lambda: unpack(archive, None, tmp_path / "SMALL", list(FILES)))
        assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_unpack_notices_damage(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    archive = write(tmp_path / "archive", LONG)
    content = archive.read_bytes()
    flipped = content[:60] + bytes(byte ^ 255 for byte in content[60:120]) + content[120:]
    for damaged in (content[: len(content) // 2], flipped):
        archive.write_bytes(damaged)
        refused(lambda: unpack(archive, None, tmp_path / "SMALL", list(FILES)))
        assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.slow
def test_rar_is_read_by_bsdtar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    there = write_folder(tmp_path / "there", {f"SMALL/{n}": text for n, text in FILES.items()})
    archive = tmp_path / "my small.rar"
    archive.write_bytes(b"Rar!\x1a\x07\x01\x00 anything")
    program = tmp_path / "bin" / "bsdtar"
    for body in ("echo sorry, no RAR5 >&2; exit 2", f'/bin/cp -R {there}/. "$5"'):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        if "sorry" in body:
            said = refused(lambda: unpack(archive, None, tmp_path / "A", list(FILES)))
            assert "sorry, no RAR5" in said
    unpack(archive, None, tmp_path / "A", list(FILES))
    assert read_folder(tmp_path / "A") == FILES


def test_an_archive_is_known_by_its_digest(tmp_path: Path) -> None:
    archive, folder = tmp_path / "a.zip", tmp_path / "SMALL"
    assert "no such file" in refused(lambda: unpack(archive, None, folder, list(FILES)))
    right = hashlib.sha256(write_zip(archive, FILES).read_bytes()).hexdigest()
    public = PublicSet("a", "PAGE", "a.zip", "0" * 64)
    message = refused(lambda: unpack(archive, public, folder, list(FILES)))
    assert all(word in message for word in (right, "0" * 64, "from PAGE", "leave archive= out"))
    unpack(archive, PublicSet("a", "PAGE", "a.zip", right), folder, list(FILES))
    assert read_folder(folder) == FILES
