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
from conftest import compose
from folders import read_folder, refused, sha256, write_folder
from omegaconf import OmegaConf

from ltr.console.unpack import unpack
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Lists
from ltr.data.public_sets import Known, PublicSet, public_sets
from ltr.errors import DataError, LTRError
from ltr.experiment import prepare_data as room
from ltr.experiment.prepare_data import counts_of, differences, prepare_data, table

ROOT = Path(__file__).parents[1]
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
def test_the_wanted_files_are_taken_from_any_folder(tmp_path, write, prefix) -> None:
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
LEADS_OUT = {
    "zip, up": lambda path: write_zip(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, root": lambda path: write_zip(path, FILES | {"/Fold1/vali.txt": "evil"}),
    "tar, up": lambda path: write_tar(path, FILES | {"../Fold1/train.txt": "evil"}),
    "zip, link": zip_link,
    **{name: lambda path, one=one: write_tar(path, FILES, one) for name, one in LINKS.items()},
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


def test_one_complete_set_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    archive = tmp_path / "archive"
    apart = {f"{'a' if '1' in name else 'b'}/{name}": text for name, text in FILES.items()}
    for files, message in (
        ({"Fold1/train.txt": "x"}, "0 of its folders hold Fold1/train.txt, Fold1/vali.txt"),
        (FILES | {f"old/{name}": "x" for name in FILES}, "2 of its folders"),
        (apart, "0 of its folders"),
        ({}, "neither .zip nor .tar; for .rar install bsdtar"),
    ):
        write_zip(archive, files)
        if not files:
            archive.write_text("<html>please log in</html>")
        assert message in refused(lambda: unpack(archive, None, tmp_path / "SMALL", list(FILES)))
        assert [path.name for path in tmp_path.iterdir()] == ["archive"]


KILLED = """
import os, signal, sys
from pathlib import Path
from ltr.console import unpack
def kill(archive, into, folder):
    (into / "half").write_text("of it")
    os.kill(os.getpid(), signal.SIGKILL)
unpack._extract = kill
unpack.unpack(Path(sys.argv[1]), None, Path(sys.argv[2]), ["train.txt"])
"""


@pytest.mark.slow
def test_what_a_killed_process_has_unpacked_is_removed_by_the_next(tmp_path: Path) -> None:
    archive, folder = write_zip(tmp_path / "a.zip", FILES), tmp_path / "data" / "SMALL"
    subprocess.run([sys.executable, "-c", KILLED, str(archive), str(folder)], check=False)
    assert [path.name for path in folder.parent.rglob("half")] == ["half"]
    write_folder(folder, dict.fromkeys(("train.txt", "vali.txt", "test.txt"), "1 qid:1 1:1\n"))
    prepare_data(
        compose(
            "dataset=letor", "dataset.folder=SMALL", f"data_dir={folder.parent}",
            f"cache_dir={tmp_path}/cache", config="prepare_data",
        )
    )  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == ["SMALL"]


def test_files_are_copied_from_a_folder_that_was_downloaded(tmp_path: Path) -> None:
    downloaded = {f"MSLR/{name}": text for name, text in FILES.items()}
    archive = write_folder(tmp_path / "archive", downloaded)
    unpack(archive, PublicSet("a", "PAGE", "a.zip", "0" * 64), tmp_path / "data/S", list(FILES))
    assert read_folder(tmp_path / "data") == {f"S/{name}": text for name, text in FILES.items()}
    assert read_folder(archive) == downloaded
    message = refused(lambda: unpack(archive, None, tmp_path / "data/T", ["train.txt"]))
    assert "2 of its folders hold train.txt" in message
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["S"]


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_unpack_notices_damage(tmp_path, write, monkeypatch) -> None:
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
    program.write_text("#!/bin/sh\necho sorry, no RAR5 >&2; exit 2\n")
    program.chmod(0o755)
    said = refused(lambda: unpack(archive, None, tmp_path / "A", list(FILES)))
    assert "sorry, no RAR5" in said
    program.write_text(f'#!/bin/sh\n/bin/cp -R {there}/. "$5"\n')
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


# What is there, counted.

KNOWN = (
    *(Known(("train",), fold, rows=3, lists=2, empty=1) for fold in (1, 2)),
    *(Known(SPLITS, fold, rows=6, lists=4, empty=2, labels=(4, 1, 1)) for fold in (1, 2)),
)
SMALL = PublicSet(
    "small", "https://example.org/", "SMALL.zip",
    files={path: sha256(text) for path, text in FILES.items()}, known=KNOWN,
)  # fmt: skip
GIVEN = {"name": "small", "folder": "SMALL", "folds": 2, "fold": 1, "width": 2, "max_grade": 2}
OWN = {"name": "letor", "folder": "mine"}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Any:
    """Prepare the set SMALL; what is printed."""
    sets = {"small": SMALL}
    monkeypatch.setattr(room, "public_sets", lambda: sets)

    def run(given: dict[str, Any] = GIVEN, public: PublicSet = SMALL, **options: Any) -> str:
        sets["small"] = public
        places = {"data_dir": str(tmp_path / "data"), "cache_dir": str(tmp_path / "cache")}
        places |= {key: options.pop(key) for key in places if key in options}
        dataset = {"_target_": "ltr.data.files.LetorFiles", **given, **places}
        prepare_data(OmegaConf.create({"archive": None, "dataset": dataset, **places, **options}))
        return capsys.readouterr().out.strip()

    return run


def test_prepare_from_archive_to_table(tmp_path: Path, ask) -> None:
    archive = write_zip(tmp_path / "SMALL.zip", FILES)
    exact = replace(SMALL, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    (tmp_path / "data/SMALL").mkdir(parents=True)  # an empty folder may be there
    text = ask(public=exact, archive=archive)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "1 train 3 2 1 2 0 0: 2 2: 1" in lines
    assert "2 test 2 1 1 2 1 0: 2" in lines
    assert text.endswith("all counts are as published")
    archive.unlink()
    assert ask(public=exact, archive=archive) == text  # in place already


def test_prepare_names_every_difference(tmp_path: Path, ask) -> None:
    files = FILES | {
        "Fold1/train.txt": TEXT["train"] + "1 qid:9 1:1\n",
        "Fold2/test.txt": TEXT["test"].replace("0.25", "0.26"),
    }
    archive = write_zip(tmp_path / "SMALL.zip", files)
    assert refused(lambda: ask(archive=archive)).split("; ") == [
        *("Fold1 train has rows 4, not 3", "Fold1 train has lists 3, not 2"),
        *("Fold1 train+vali+test has rows 7, not 6", "Fold1 train+vali+test has lists 5, not 4"),
        "Fold1 train+vali+test has labels 0: 4  1: 2  2: 1, not 0: 4  1: 1  2: 1",
        f"{tmp_path}/data/SMALL/Fold1/train.txt is not the official file",
        f"{tmp_path}/data/SMALL/Fold2/test.txt is not the official file",
        "download SMALL.zip from https://example.org/ and run: ltr prepare_data "
        f"dataset=small archive=PATH/SMALL.zip data_dir={tmp_path}/data",
    ]


def test_own_lists_are_counted_in_every_fold(tmp_path: Path, ask) -> None:
    write_folder(tmp_path / "data/mine", FLAT)
    assert "published" not in ask(OWN)
    write_folder(tmp_path / "data/folds", FILES | {"Folder/x": ""})
    assert len(ask(OWN | {"folder": "folds"}).splitlines()) == 2 + 6
    for folder, found in ((None, "give dataset.folder=NAME"), ("no", "no file train.txt")):
        assert found in refused(lambda f=folder: ask(OWN | {"folder": f}), LTRError)


def test_many_labels_are_not_listed_and_unknown_grades_are_differences() -> None:
    labels = np.arange(12, dtype=np.float32) / 8
    features = np.zeros((12, 2), np.float32)
    lists = Lists(features, labels, np.array([0, 12]), np.array(["a"]), missing=22)
    assert " ".join(table([counts_of(lists)]).split()).endswith("12 1 0 12 22 12 from 0 to 1.375")
    labels, offsets = np.array([0, 0, 3], np.float32), np.array([0, 2, 3])
    lists = Lists(features[:3], labels, offsets, np.array(["a", "b"]))
    known = [Known(("test",), empty=0, labels=(3,))]
    row = {"fold": None, "split": "test", **counts_of(lists)}
    found = ["test has empty lists 1, not 0", "test has labels 0: 2  3: 1, not 0: 3"]
    assert differences([row], known) == found


def test_vali_is_cut_from_train_where_there_is_none(tmp_path: Path, ask) -> None:
    rows = "".join(f"{i % 3} qid:{i // 4} 1:{i} 2:1\n" for i in range(80))
    archive = write_zip(tmp_path / "a.zip", {"train.txt": rows, "test.txt": TEXT["test"]})
    given = GIVEN | {"folds": 0, "fold": None, "vali_share": 0.25}
    text = ask(given, replace(SMALL, files={}, known=()), archive=archive)
    lines = [line.split()[:4] for line in text.splitlines()]
    assert ["train", "60", "15", "0"] in lines
    assert ["vali", "20", "5", "0"] in lines
    places = {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache"}
    knobs = {"name": "mine", "folder": "SMALL", "vali_share": 0.25, **places}
    cut = {name: LetorFiles(**knobs).split(name) for name in ("train", "vali")}
    assert {*cut["train"].qids} | {*cut["vali"].qids} == {str(i) for i in range(20)}
    assert {*cut["train"].qids}.isdisjoint(cut["vali"].qids)
    for lists in cut.values():
        assert lists.features[:, 0].tolist() == lists.rows.tolist(), "rows of the file"
    assert {*LetorFiles(**knobs, seed=2).split("vali").qids} != {*cut["vali"].qids}
    write_folder(tmp_path / "data/SMALL", {"vali.txt": TEXT["vali"]})
    assert len(LetorFiles(**knobs).split("train")) == 20, "a vali.txt of its own is taken"


def test_a_folder_that_is_there_is_never_touched(tmp_path: Path, ask) -> None:
    archive = write_zip(tmp_path / "SMALL.zip", FILES)
    assert "no file train.txt" in refused(ask)
    write_folder(tmp_path / "data/SMALL", {"Fold1/train.txt": "mine"})
    assert "no file vali.txt, test.txt" in refused(lambda: ask(archive=archive))
    assert read_folder(tmp_path / "data/SMALL") == {"Fold1/train.txt": "mine"}
    write_folder(tmp_path / "data/SMALL", FILES | {"Fold1/vali.txt": "0 qid:1 1:7\n"})
    assert "Fold1/vali.txt is not the official file" in refused(lambda: ask(archive=archive))
    assert (tmp_path / "data/SMALL/Fold1/vali.txt").read_text() == "0 qid:1 1:7\n"


@pytest.mark.parametrize(("name", "public"), public_sets().items())
def test_facts_agree_with_each_other_and_with_the_configs(name, public) -> None:
    config = OmegaConf.load(ROOT / f"configs/dataset/{name}.yaml")
    for parent in [entry for entry in config.defaults if isinstance(entry, str)]:
        config = OmegaConf.merge(OmegaConf.load(ROOT / f"configs/dataset/{parent}.yaml"), config)
    settings = config.dataset
    assert settings.name == public.name
    folds = range(1, settings.folds + 1) or [None]
    splits = [split for split in SPLITS if split != "vali" or not settings.get("vali_share")]
    files = {f"Fold{f}/{one}.txt" if f else f"{one}.txt" for f in folds for one in splits}
    assert set(public.files) in (set(), files)
    assert {len(digest) for digest in public.files.values()} <= {64}
    assert {known.fold for known in public.known} == set(folds)
    for fold in folds:
        known = {each.splits: each for each in public.known if each.fold == fold}
        for count in ("rows", "lists", "empty"):
            parts = [getattr(known.get((split,), Known(())), count) for split in SPLITS]
            if known.get(SPLITS) and None not in parts:
                assert sum(parts) == getattr(known[SPLITS], count)


@pytest.mark.slow
@pytest.mark.skipif("LTR_DATA_DIR" not in os.environ, reason="LTR_DATA_DIR names no folder")
def test_real_mq2008_is_as_published(ask, monkeypatch) -> None:
    given = GIVEN | {"name": "mq2008", "folder": "MQ2008", "folds": 5, "width": 46}
    monkeypatch.setattr(room, "public_sets", public_sets)
    assert "as published" in ask(given, data_dir=os.environ["LTR_DATA_DIR"])
