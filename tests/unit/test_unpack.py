"""From an archive to counted lists: nothing leads out of one, what is not as published is named."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from ltr.cli.cli import call_command
from ltr.cli.unpack import unpack
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Lists
from ltr.data.public_sets import PublicSet, PublishedCounts, public_sets
from ltr.errors import DataError, LTRError
from ltr.experiment import prepare_data as prepare_data_module
from ltr.experiment.prepare_data import counts_of, differences, prepare_data, table
from tests.helpers.folders import read_folder, refused, sha256, write_folder
from tests.helpers.paths import ROOT
from tests.helpers.runs import compose

TEXT = {
    "train": "2 qid:1 1:0.5 2:1\n0 qid:1 1:1 2:1\n0 qid:2 1:1 2:1\n",
    "vali": "1 qid:3 1:0.5 2:1\n",
    "test": "0 qid:4 1:0.25 2:1\n0 qid:4 1:1e39 2:1\n",
}
FLAT = {f"{split}.txt": text for split, text in TEXT.items()}
FILES = {f"Fold{fold}/{name}": text for fold in (1, 2) for name, text in FLAT.items()}
LONG = {name: "".join(f"{i * i}\n" for i in range(20000)) for name in FILES}


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


@pytest.mark.parametrize(("write", "prefix"), [(write_zip, "a/b/"), (write_tar, "./")])
def test_unpack_takes_the_required_files_from_any_folder(tmp_path, write, prefix) -> None:
    files = {f"{prefix}{name}": text for name, text in FILES.items()}
    archive = write(tmp_path / "archive", files | {"README": "hello", f"{prefix}S1.txt": "no"})
    content = archive.read_bytes()
    unpack(archive, None, tmp_path / "data" / "SMALL", list(FILES))
    expected = {f"SMALL/{name}": text for name, text in FILES.items()}
    assert read_folder(tmp_path / "data") == expected
    assert archive.read_bytes() == content


def link(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
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
LEADS_OUT = {
    "zip, up": lambda path: write_zip(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, root": lambda path: write_zip(path, FILES | {"/Fold1/vali.txt": "evil"}),
    "tar, up": lambda path: write_tar(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, link": zip_link,
    **{
        name: lambda path, member=member: write_tar(path, FILES, member)
        for name, member in LINKS.items()
    },
}


@pytest.mark.parametrize("name", LEADS_OUT)
def test_unpack_writes_nothing_outside_the_folder(tmp_path: Path, name: str) -> None:
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


def test_unpack_requires_exactly_one_complete_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    archive = tmp_path / "archive"
    apart = {f"{'a' if '1' in name else 'b'}/{name}": text for name, text in FILES.items()}
    for files, message in (
        ({"Fold1/train.txt": "x"}, "one folder with Fold1/train.txt, Fold1/vali.txt"),
        (FILES | {f"old/{name}": "x" for name in FILES}, "found 2"),
        (apart, "found 0"),
        ({}, "expected a .zip or .tar file; if this is a .rar file, install bsdtar"),
    ):
        write_zip(archive, files)
        if not files:
            archive.write_text("<html>please log in</html>")
        assert message in refused(lambda: unpack(archive, None, tmp_path / "SMALL", list(FILES)))
        assert [path.name for path in tmp_path.iterdir()] == ["archive"]


KILLED = """
import os, signal, sys
from pathlib import Path
from ltr.cli import unpack
def kill(archive, into, folder):
    (into / "half").write_text("of it")
    os.kill(os.getpid(), signal.SIGKILL)
unpack._extract = kill
unpack.unpack(Path(sys.argv[1]), None, Path(sys.argv[2]), ["train.txt"])
"""


@pytest.mark.slow
def test_prepare_data_removes_what_a_killed_process_unpacked(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", FILES)
    folder = tmp_path / "data" / "SMALL"
    subprocess.run([sys.executable, "-c", KILLED, str(archive), str(folder)], check=False)
    assert [path.name for path in folder.parent.rglob("half")] == ["half"]
    write_folder(folder, dict.fromkeys(("train.txt", "vali.txt", "test.txt"), "1 qid:1 1:1\n"))
    call_command(prepare_data,
        compose(
            "dataset=letor", "dataset.folder=SMALL", f"data_dir={folder.parent}",
            f"cache_dir={tmp_path}/cache", config="prepare_data",
        )
    )  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == ["SMALL"]


def test_unpack_copies_files_from_a_downloaded_folder(tmp_path: Path) -> None:
    downloaded = {f"MSLR/{name}": text for name, text in FILES.items()}
    archive = write_folder(tmp_path / "archive", downloaded)
    unpack(archive, PublicSet("a", "PAGE", "a.zip", "0" * 64), tmp_path / "data/S", list(FILES))
    assert read_folder(tmp_path / "data") == {f"S/{name}": text for name, text in FILES.items()}
    assert read_folder(archive) == downloaded
    message = refused(lambda: unpack(archive, None, tmp_path / "data/T", ["train.txt"]))
    assert "exactly one folder with train.txt" in message
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["S"]


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_unpack_refuses_a_damaged_archive(tmp_path, write, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    archive = write(tmp_path / "archive", LONG)
    content = archive.read_bytes()
    flipped = content[:60] + bytes(byte ^ 255 for byte in content[60:120]) + content[120:]
    for damaged in (content[: len(content) // 2], flipped):
        archive.write_bytes(damaged)
        refused(lambda: unpack(archive, None, tmp_path / "SMALL", list(FILES)))
        assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.slow
def test_unpack_reads_rar_with_bsdtar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    small = {f"SMALL/{name}": text for name, text in FILES.items()}
    unpacked = write_folder(tmp_path / "there", small)
    archive = tmp_path / "my small.rar"
    archive.write_bytes(b"Rar!\x1a\x07\x01\x00 anything")
    program = tmp_path / "bin" / "bsdtar"
    program.write_text("#!/bin/sh\necho sorry, no RAR5 >&2; exit 2\n")
    program.chmod(0o755)
    message = refused(lambda: unpack(archive, None, tmp_path / "A", list(FILES)))
    assert "sorry, no RAR5" in message
    program.write_text(f'#!/bin/sh\n/bin/cp -R {unpacked}/. "$5"\n')
    unpack(archive, None, tmp_path / "A", list(FILES))
    assert read_folder(tmp_path / "A") == FILES


def test_unpack_checks_the_digest_of_a_public_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    folder = tmp_path / "SMALL"
    assert "no such file" in refused(lambda: unpack(archive, None, folder, list(FILES)))
    right = hashlib.sha256(write_zip(archive, FILES).read_bytes()).hexdigest()
    public = PublicSet("a", "PAGE", "a.zip", "0" * 64)
    message = refused(lambda: unpack(archive, public, folder, list(FILES)))
    assert all(text in message for text in (right, "0" * 64, "from PAGE", "leave out archive"))
    unpack(archive, PublicSet("a", "PAGE", "a.zip", right), folder, list(FILES))
    assert read_folder(folder) == FILES


COUNTS = (
    *(PublishedCounts(("train",), fold, rows=3, lists=2, empty=1) for fold in (1, 2)),
    *(PublishedCounts(SPLITS, fold, rows=6, lists=4, empty=2, labels=(4, 1, 1)) for fold in (1, 2)),
)
SMALL = PublicSet(
    "small", "https://example.org/", "SMALL.zip",
    files={path: sha256(text) for path, text in FILES.items()}, counts=COUNTS,
)  # fmt: skip
SETTINGS = {"name": "small", "folder": "SMALL", "folds": 2, "fold": 1, "width": 2, "max_grade": 2}
USER_SETTINGS = {"name": "letor", "folder": "mine"}


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Any:
    """Prepare the set SMALL; what is printed."""
    sets = {"small": SMALL}
    monkeypatch.setattr(prepare_data_module, "public_sets", lambda: sets)

    def run(settings: dict[str, Any] = SETTINGS, public: PublicSet = SMALL, **options: Any) -> str:
        sets["small"] = public
        folders = {"data_dir": str(tmp_path / "data"), "cache_dir": str(tmp_path / "cache")}
        folders |= {key: options.pop(key) for key in folders if key in options}
        dataset = {"_target_": "ltr.data.files.LetorFiles", **settings, **folders}
        call_command(
            prepare_data,
            OmegaConf.create({"archive": None, "dataset": dataset, **folders, **options}),
        )
        return capsys.readouterr().out.strip()

    return run


def test_prepare_data_counts_an_archive(tmp_path: Path, prepare) -> None:
    archive = write_zip(tmp_path / "SMALL.zip", FILES)
    exact = replace(SMALL, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    (tmp_path / "data/SMALL").mkdir(parents=True)  # an empty folder may be there
    text = prepare(public=exact, archive=archive)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "1 train 3 2 1 2 0 0: 2 2: 1" in lines
    assert "2 test 2 1 1 2 1 0: 2" in lines
    assert text.endswith("all counts match the published ones")
    archive.unlink()
    assert prepare(public=exact, archive=archive) == text  # in place already


def test_prepare_data_names_every_difference(tmp_path: Path, prepare) -> None:
    files = FILES | {
        "Fold1/train.txt": TEXT["train"] + "1 qid:9 1:1\n",
        "Fold2/test.txt": TEXT["test"].replace("0.25", "0.26"),
    }
    archive = write_zip(tmp_path / "SMALL.zip", files)
    assert refused(lambda: prepare(archive=archive)).split("; ") == [
        *("Fold1 train, rows: expected 3, got 4", "Fold1 train, lists: expected 2, got 3"),
        *(
            "Fold1 train+vali+test, rows: expected 6, got 7",
            "Fold1 train+vali+test, lists: expected 4, got 5",
        ),
        "Fold1 train+vali+test, labels: expected 0: 4  1: 1  2: 1, got 0: 4  1: 2  2: 1",
        f"{tmp_path}/data/SMALL/Fold1/train.txt is not the official file",
        f"{tmp_path}/data/SMALL/Fold2/test.txt is not the official file",
        "download SMALL.zip from https://example.org/ and run: ltr prepare_data "
        f"dataset=small archive=PATH/SMALL.zip data_dir={tmp_path}/data",
    ]


def test_prepare_data_counts_every_fold_of_user_lists(tmp_path: Path, prepare) -> None:
    write_folder(tmp_path / "data/mine", FLAT)
    assert "published" not in prepare(USER_SETTINGS)
    write_folder(tmp_path / "data/folds", FILES | {"Folder/x": ""})
    assert len(prepare(USER_SETTINGS | {"folder": "folds"}).splitlines()) == 2 + 6
    for folder, message in ((None, "dataset.folder is not set"), ("no", "missing train.txt")):
        settings = USER_SETTINGS | {"folder": folder}
        assert message in refused(lambda settings=settings: prepare(settings), LTRError)


def test_table_does_not_list_many_labels_and_unknown_grades_are_differences() -> None:
    labels = np.arange(12, dtype=np.float32) / 8
    features = np.zeros((12, 2), np.float32)
    lists = Lists(features, labels, np.array([0, 12]), np.array(["a"]), missing=22)
    assert " ".join(table([counts_of(lists)]).split()).endswith("12 1 0 12 22 12 from 0 to 1.375")
    labels = np.array([0, 0, 3], np.float32)
    lists = Lists(features[:3], labels, np.array([0, 2, 3]), np.array(["a", "b"]))
    published = [PublishedCounts(("test",), empty=0, labels=(3,))]
    row = {"fold": None, "split": "test", **counts_of(lists)}
    expected = [
        "test, empty lists: expected 0, got 1",
        "test, labels: expected 0: 3, got 0: 2  3: 1",
    ]
    assert differences([row], published) == expected


def test_letor_files_cut_vali_from_train_if_there_is_none(tmp_path: Path, prepare) -> None:
    rows = "".join(f"{i % 3} qid:{i // 4} 1:{i} 2:1\n" for i in range(80))
    archive = write_zip(tmp_path / "a.zip", {"train.txt": rows, "test.txt": TEXT["test"]})
    settings = SETTINGS | {"folds": 0, "fold": None, "vali_share": 0.25}
    text = prepare(settings, replace(SMALL, files={}, counts=()), archive=archive)
    lines = [line.split()[:4] for line in text.splitlines()]
    assert ["train", "60", "15", "0"] in lines
    assert ["vali", "20", "5", "0"] in lines
    folders = {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache"}
    knobs = {"name": "mine", "folder": "SMALL", "vali_share": 0.25, **folders}
    cut = {name: LetorFiles(**knobs).split(name) for name in ("train", "vali")}
    assert {*cut["train"].qids} | {*cut["vali"].qids} == {str(i) for i in range(20)}
    assert {*cut["train"].qids}.isdisjoint(cut["vali"].qids)
    for lists in cut.values():
        assert lists.features[:, 0].tolist() == lists.rows.tolist(), "rows of the file"
    assert {*LetorFiles(**knobs, seed=2).split("vali").qids} != {*cut["vali"].qids}
    write_folder(tmp_path / "data/SMALL", {"vali.txt": TEXT["vali"]})
    assert len(LetorFiles(**knobs).split("train")) == 20, "a vali.txt of its own is taken"


def test_prepare_data_never_touches_an_existing_folder(tmp_path: Path, prepare) -> None:
    archive = write_zip(tmp_path / "SMALL.zip", FILES)
    assert "missing train.txt" in refused(prepare)
    write_folder(tmp_path / "data/SMALL", {"Fold1/train.txt": "mine"})
    assert "missing vali.txt, test.txt" in refused(lambda: prepare(archive=archive))
    assert read_folder(tmp_path / "data/SMALL") == {"Fold1/train.txt": "mine"}
    write_folder(tmp_path / "data/SMALL", FILES | {"Fold1/vali.txt": "0 qid:1 1:7\n"})
    assert "Fold1/vali.txt is not the official file" in refused(lambda: prepare(archive=archive))
    assert (tmp_path / "data/SMALL/Fold1/vali.txt").read_text() == "0 qid:1 1:7\n"


@pytest.mark.parametrize(("name", "public"), public_sets().items())
def test_public_sets_agree_with_the_configs(name, public) -> None:
    config = OmegaConf.load(ROOT / f"configs/dataset/{name}.yaml")
    for parent in [entry for entry in config.defaults if isinstance(entry, str)]:
        config = OmegaConf.merge(OmegaConf.load(ROOT / f"configs/dataset/{parent}.yaml"), config)
    settings = config.dataset
    assert settings.name == public.name
    folds = range(1, settings.folds + 1) or [None]
    splits = [split for split in SPLITS if split != "vali" or not settings.get("vali_share")]
    files = {
        f"Fold{fold}/{split}.txt" if fold else f"{split}.txt" for fold in folds for split in splits
    }
    assert set(public.files) in (set(), files)
    assert {len(digest) for digest in public.files.values()} <= {64}
    assert {record.fold for record in public.counts} == set(folds)


@pytest.mark.parametrize("public", public_sets().values(), ids=public_sets())
def test_public_sets_have_counts_that_add_up(public) -> None:
    for fold in {record.fold for record in public.counts}:
        records = {record.splits: record for record in public.counts if record.fold == fold}
        for count in ("rows", "lists", "empty"):
            singles = [records.get((split,), PublishedCounts(())) for split in SPLITS]
            numbers = [getattr(record, count) for record in singles]
            if records.get(SPLITS) and None not in numbers:
                assert sum(numbers) == getattr(records[SPLITS], count)


@pytest.mark.slow
@pytest.mark.skipif("LTR_DATA_DIR" not in os.environ, reason="LTR_DATA_DIR names no folder")
def test_prepare_data_finds_mq2008_as_published(prepare, monkeypatch) -> None:
    settings = SETTINGS | {"name": "mq2008", "folder": "MQ2008", "folds": 5, "width": 46}
    monkeypatch.setattr(prepare_data_module, "public_sets", public_sets)
    assert "match the published ones" in prepare(settings, data_dir=os.environ["LTR_DATA_DIR"])
