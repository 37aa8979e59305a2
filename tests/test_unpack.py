"""Unpacking takes what is wanted, from anywhere in an archive, and lets nothing lead out of it."""

import bz2
import gzip
import hashlib
import io
import lzma
import signal
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import processes
import pytest
from folders import read_folder, refused, write_folder

from ltr.data.unpack import check_archive, unpack
from ltr.errors import DataError

ROOT = Path(__file__).parents[1]
SPLITS = ("train", "vali", "test")
FILES = {f"Fold{fold}/{split}.txt": f"{fold} {split}\n" for fold in (1, 2) for split in SPLITS}


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
    unpack(archive, tmp_path / "data" / "SMALL", list(FILES))
    assert read_folder(tmp_path / "data") == {f"SMALL/{name}": t for name, t in FILES.items()}


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


LEADS_OUT = {
    "zip, up": lambda path: write_zip(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, up inside": lambda path: write_zip(path, {"a/../../evil.txt": "evil"} | FILES),
    "zip, root": lambda path: write_zip(path, FILES | {"/evil.txt": "evil"}),
    "zip, drive": lambda path: write_zip(path, FILES | {"C:\\evil.txt": "evil"}),
    "zip, backslash": lambda path: write_zip(path, FILES | {"..\\evil.txt": "evil"}),
    "tar, up": lambda path: write_tar(path, FILES | {"../evil.txt": "evil"}),
    "tar, root": lambda path: write_tar(path, FILES | {"/evil.txt": "evil"}),
}
LINKS = {
    "zip, link": zip_link,
    "tar, link": lambda path: write_tar(path, FILES, link("Fold1", tarfile.SYMTYPE, "/tmp")),
    "tar, hard link": lambda path: write_tar(
        path, FILES, link("a", tarfile.LNKTYPE, "/etc/passwd")
    ),
    "tar, device": lambda path: write_tar(path, FILES, link("a", tarfile.CHRTYPE)),
    "tar, pipe": lambda path: write_tar(path, FILES, link("Fold1/vali.txt", tarfile.FIFOTYPE)),
}


@pytest.mark.parametrize("name", LEADS_OUT | LINKS)
def test_nothing_leads_out_of_an_archive(tmp_path: Path, name: str) -> None:
    archive = (LEADS_OUT | LINKS)[name](tmp_path / "archive")
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
        (FILES | {"old/Fold1/train.txt": "x"}, "holds Fold1/train.txt twice, Fold1/train.txt and"),
        (
            {f"{'a' if '1' in name else 'b'}/{name}": text for name, text in FILES.items()},
            "the files lie in different folders, a/Fold1/test.txt, ",
        ),
    ],
)
def test_unpack_wants_one_complete_set(tmp_path: Path, files: dict[str, str], message: str) -> None:
    archive = write_zip(tmp_path / "archive", files)
    assert message in refused(lambda: unpack(archive, tmp_path / "SMALL", list(FILES)))
    assert not (tmp_path / "SMALL").exists()


def damaged(path: Path, *, cut: bool) -> Path:
    content = bytearray(path.read_bytes())
    if cut:
        del content[len(content) // 2 :]
    else:
        for place in range(60, 120):
            content[place] ^= 255
    path.write_bytes(content)
    return path


LONG = {name: "".join(f"{i * i}\n" for i in range(20000)) for name in FILES}


@pytest.mark.parametrize("write", [write_zip, write_tar])
@pytest.mark.parametrize("cut", [True, False])
def test_unpack_notices_damage(tmp_path: Path, write: Callable[..., Path], cut: bool) -> None:
    archive = damaged(write(tmp_path / "archive", LONG), cut=cut)
    message = refused(lambda: unpack(archive, tmp_path / "SMALL", list(FILES)))
    assert message.endswith("download it again")
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_compressed_archive_is_read_to_its_end(tmp_path: Path, compression: str) -> None:
    plain = write_tar(tmp_path / "archive", LONG).read_bytes()
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[compression]
    content = bytearray(compress(gzip.decompress(plain)))
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    unpack(archive, tmp_path / "SMALL", list(FILES))
    content[-6] ^= 1  # gz: the CRC-32 of all; bz2: its combined CRC; xz: the size of the index
    archive.write_bytes(content)
    message = refused(lambda: unpack(archive, tmp_path / "OTHER", list(FILES)))
    assert "damaged" in message
    assert message.endswith("download it again")
    assert not (tmp_path / "OTHER").exists()


def test_unpack_needs_an_archive(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>please log in</html>")
    message = refused(lambda: unpack(tmp_path / "page.html", tmp_path / "SMALL", list(FILES)))
    assert "neither a folder nor a .zip, .tar, .tar.gz or .rar file" in message


@pytest.mark.slow
def test_a_killed_unpacking_leaves_nothing_that_counts(tmp_path: Path) -> None:
    archive, target = write_zip(tmp_path / "archive", FILES), tmp_path / "SMALL"
    code = (
        "import os, sys; from pathlib import Path; from ltr.data import unpack\n"
        "unpack._found = lambda *rest: os.kill(os.getpid(), 9)\n"
        "unpack.unpack(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])\n"
    )
    done = processes.run(code, str(archive), str(target), *FILES)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    assert (tmp_path / ".SMALL.unpacking").exists()
    unpack(archive, target, list(FILES))
    assert read_folder(target) == FILES
    assert not (tmp_path / ".SMALL.unpacking").exists()


RAR = b"Rar!\x1a\x07\x01\x00"


@pytest.fixture
def only_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Make a program the only ones on the PATH; each call adds one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))

    def add(name: str, body: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)

    return add


def test_rar_needs_a_program(tmp_path: Path, only_tools: Callable[[str, str], None]) -> None:
    (tmp_path / "SMALL.rar").write_bytes(RAR)
    message = refused(lambda: unpack(tmp_path / "SMALL.rar", tmp_path / "SMALL", list(FILES)))
    assert "install one of unar, 7zz, 7z, unrar, bsdtar, or unpack it yourself" in message


@pytest.mark.slow
def test_rar_is_read_by_the_first_program_that_can(
    tmp_path: Path, only_tools: Callable[[str, str], None]
) -> None:
    there = write_folder(tmp_path / "there", {f"SMALL/{n}": text for n, text in FILES.items()})
    (tmp_path / "SMALL.rar").write_bytes(RAR)
    only_tools("7z", "echo sorry, no RAR5 >&2; exit 2")
    message = refused(lambda: unpack(tmp_path / "SMALL.rar", tmp_path / "SMALL", list(FILES)))
    assert "7z: sorry, no RAR5; download it again" in message
    only_tools("bsdtar", f'[ "$3" = "{tmp_path}/SMALL.rar" ] && /bin/cp -R {there}/. "$5"')
    unpack(tmp_path / "SMALL.rar", tmp_path / "SMALL", list(FILES))
    assert read_folder(tmp_path / "SMALL") == FILES
    only_tools("unar", '/bin/mkdir "$5/Fold1"; /bin/ln -s /etc/passwd "$5/Fold1/train.txt"')
    message = refused(lambda: unpack(tmp_path / "SMALL.rar", tmp_path / "B", list(FILES)))
    assert "does not hold Fold1/train.txt" in message


def test_check_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    page = "https://example.org/"
    check = check_archive
    assert "no such file" in refused(lambda: check(archive, size=None, sha256="", page=page))
    archive.write_bytes(b"abc")
    right = hashlib.sha256(b"abc").hexdigest()
    check(archive, size=3, sha256=right, page=page)
    check(archive, size=None, sha256="", page=page)
    short = refused(lambda: check(archive, size=4000, sha256=right, page=page))
    assert short.endswith(
        f"a.zip has 3 bytes, not 4,000: it is incomplete; download it again from {page}"
    )
    assert "another file" in refused(lambda: check(archive, size=2, sha256=right, page=page))
    wrong = refused(lambda: check(archive, size=3, sha256="0" * 64, page=page))
    assert f"has the SHA-256 {right}, not {'0' * 64}: it is damaged or another file" in wrong
