"""From an archive to counted lists: what is not as published is named, what is there is kept."""

import hashlib
import os
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import processes
import pytest
from filelock import FileLock
from folders import read_folder, refused, sha256, write_folder

from ltr.data.archives import Known, PublishedSet, published
from ltr.data.files import LetorFiles
from ltr.data.lists import Lists
from ltr.data.prepare import own_lists, prepare
from ltr.data.summary import differences, summarise, table
from ltr.errors import ConfigError

ROOT = Path(__file__).parents[1]
SPLITS = ("train", "vali", "test")
TEXT = {
    "train": "2 qid:1 1:0.5 2:1\n0 qid:1 1:1 2:1\n0 qid:2 1:1 2:1\n",
    "vali": "1 qid:3 1:0.5 2:1\n",
    "test": "0 qid:4 1:0.25 2:1\n0 qid:4 1:1e39 2:1\n",
}
FILES = {f"Fold{fold}/{split}.txt": TEXT[split] for fold in (1, 2) for split in SPLITS}
KNOWN = tuple(
    known
    for fold in (1, 2)
    for known in (
        Known(("train",), fold, rows=3, lists=2, empty=1),
        Known(SPLITS, fold, rows=6, lists=4, empty=2, labels=(4, 1, 1)),
    )
)


SMALL = PublishedSet(
    name="mq2008",
    folder="SMALL",
    page="https://example.org/",
    archive="SMALL.zip",
    folds=2,
    width=2,
    max_grade=2,
    files={path: sha256(text) for path, text in FILES.items()},
    known=KNOWN,
)


def write_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files.items():
            file.writestr(name, text)
    return path


def prepared(tmp_path: Path, dataset: PublishedSet = SMALL, **options: object) -> str:
    options |= {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache"}
    report = prepare(dataset, **options)  # type: ignore[arg-type]
    report.check()
    return report.table


def test_prepare_from_archive_to_table(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "SMALL.zip", FILES)
    dataset = replace(
        SMALL,
        size=archive.stat().st_size,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
    )
    text = prepared(tmp_path, dataset, archive=archive)
    lines = [line.split() for line in text.splitlines()]
    assert ["1", "train", "3", "3", "2", "2", "1", "1"] in lines
    assert ["2", "train+vali+test", "6", "6", "4", "4", "2", "2"] in lines
    assert ["1", "vali", "1", "1", "0"] in lines  # nothing known of it
    assert ["1", "train", "2", "0", "1", "1", "1.5", "2", "1", "0"] in lines
    assert ["2", "test", "2", "0", "0", "2", "2.0", "2", "2", "1"] in lines
    archive.unlink()
    assert prepared(tmp_path, dataset, archive=archive) == text  # in place already


def test_prepare_only_some_folds(tmp_path: Path) -> None:
    write_folder(tmp_path / "data/SMALL", {k: v for k, v in FILES.items() if "Fold2" in k})
    for folds in (2, [2]):
        assert "train+vali+test" in prepared(tmp_path, folds=folds)
    for folds in (0, 3, [1, 3], [], "two"):
        message = refused(lambda folds=folds: prepared(tmp_path, folds=folds), ConfigError)
        assert message == f"folds={folds}: give all, or some of 1 to 2 as in 'folds=[1,2]'"
    flat = replace(SMALL, folds=0)
    message = refused(lambda: prepared(tmp_path, flat, folds=1), ConfigError)
    assert message == "folds=1: mq2008 has no folds; leave folds=all"


def test_prepare_names_every_difference(tmp_path: Path) -> None:
    files = FILES | {
        "Fold1/train.txt": TEXT["train"] + "1 qid:9 1:1\n",
        "Fold2/test.txt": TEXT["test"].replace("0.25", "0.26"),
    }
    archive = write_zip(tmp_path / "SMALL.zip", files)
    message = refused(lambda: prepared(tmp_path, archive=archive))
    assert message == (
        "Fold1 train has 4 rows, not 3; Fold1 train has 3 lists, not 2; "
        "Fold1 train+vali+test has 7 rows, not 6; Fold1 train+vali+test has 5 lists, not 4; "
        "Fold1 train+vali+test has 2 items of grade 1, not 1; "
        f"{tmp_path}/data/SMALL/Fold1/train.txt is not the official file; "
        f"{tmp_path}/data/SMALL/Fold2/test.txt is not the official file; "
        "download SMALL.zip from https://example.org/ and run: ltr prepare_data "
        f"dataset=mq2008 archive=PATH/SMALL.zip data_dir={tmp_path}/data"
    )


def test_empty_lists_and_unknown_grades_are_differences(tmp_path: Path) -> None:
    lists = Lists(
        features=np.zeros((3, 1), np.float32),
        labels=np.array([0, 0, 3], np.float32),
        offsets=np.array([0, 2, 3]),
        qids=np.array(["a", "b"]),
    )
    known = [Known(("test",), empty=0, labels=(3,)), Known(("vali",), rows=1)]
    assert differences({(None, "test"): summarise(lists)}, known) == [
        "test has 1 empty lists, not 0",
        "test has 2 items of grade 0, not 3",
        "test has 1 items of grade 3, not 0",
    ]


def test_a_file_that_is_not_the_official_one_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path / "data/SMALL", FILES)
    prepared(tmp_path)
    (tmp_path / "data/SMALL/Fold1/vali.txt").write_text(TEXT["vali"] + " ")
    assert "Fold1/vali.txt is not the official file" in refused(lambda: prepared(tmp_path))


def test_vali_is_cut_from_train_where_there_is_none(tmp_path: Path) -> None:
    rows = "".join(f"{i % 3} qid:{i // 4} 1:{i} 2:1\n" for i in range(80))
    write_folder(tmp_path / "data/SMALL", {"train.txt": rows, "test.txt": TEXT["test"]})
    dataset = replace(SMALL, folds=0, files={}, known=(), vali_share=0.25)
    lines = [line.split() for line in prepared(tmp_path, dataset).splitlines()]
    assert ["train", "60", "15", "0"] in lines
    assert ["vali", "20", "5", "0"] in lines
    places = {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache"}
    knobs = {"name": "mine", "folder": "SMALL", "vali_share": 0.25, **places}
    cut = {name: LetorFiles(**knobs).split(name) for name in ("train", "vali")}
    assert {*cut["train"].qids} | {*cut["vali"].qids} == {str(i) for i in range(20)}
    assert {*cut["train"].qids}.isdisjoint(cut["vali"].qids)
    for lists in cut.values():
        assert lists.features[:, 0].tolist() == lists.rows.tolist(), "rows of the file"
    assert cut["train"].digest != cut["vali"].digest
    other = LetorFiles(**knobs, seed=2).split("vali")
    assert {*other.qids} != {*cut["vali"].qids}
    write_folder(tmp_path / "data/SMALL", {"vali.txt": TEXT["vali"]})
    assert len(LetorFiles(**knobs).split("train")) == 20, "a vali.txt of its own is taken"


def test_a_folder_that_is_there_is_never_touched(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "SMALL.zip", FILES)
    write_folder(tmp_path / "data/SMALL", {"Fold1/train.txt": "mine"})
    message = refused(lambda: prepared(tmp_path, archive=archive))
    assert f"{tmp_path}/data/SMALL is there, but without Fold1/vali.txt, " in message
    assert message.endswith("; move it away, or give another data_dir=DIR")
    assert read_folder(tmp_path / "data") == {"SMALL/Fold1/train.txt": "mine"}
    write_folder(tmp_path / "data/SMALL", FILES | {"Fold1/vali.txt": "0 qid:1 1:7\n"})
    message = refused(lambda: prepared(tmp_path, archive=archive))
    assert "Fold1/vali.txt is not the official file" in message
    assert (tmp_path / "data/SMALL/Fold1/vali.txt").read_text() == "0 qid:1 1:7\n"


def test_an_empty_folder_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "data/SMALL").mkdir(parents=True)
    prepared(tmp_path, archive=write_zip(tmp_path / "SMALL.zip", FILES))


def test_nothing_there(tmp_path: Path) -> None:
    message = refused(lambda: prepared(tmp_path))
    assert message.startswith(f"there is no folder {tmp_path}/data/SMALL; download SMALL.zip from")


def test_two_runs_at_once(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    archive = write_zip(tmp_path / "SMALL.zip", FILES)
    with FileLock(tmp_path / "data/.SMALL.lock"):
        message = refused(lambda: prepared(tmp_path, archive=archive))
    assert message == f"another run is preparing {tmp_path}/data/SMALL; wait until it is done"
    prepared(tmp_path, archive=archive)


def test_own_lists_are_summarised(tmp_path: Path) -> None:
    write_folder(tmp_path / "data/mine", {f"{split}.txt": TEXT[split] for split in SPLITS})
    text = prepared(tmp_path, own_lists("mine", data_dir=tmp_path / "data"))
    assert "known" not in text
    write_folder(tmp_path / "data/folds", FILES | {"Fold9/x": "", "Folder/x": ""})
    dataset = own_lists("folds", data_dir=tmp_path / "data")
    assert dataset.folds == 2
    assert len(prepared(tmp_path, dataset).splitlines()) == 2 * (2 + 6) + 1
    message = refused(lambda: own_lists(None, data_dir="data"), ConfigError)
    assert message == "give dataset.folder=NAME, the folder of your lists in data"
    dataset = own_lists("no", data_dir=tmp_path / "data")
    assert refused(lambda: prepared(tmp_path, dataset)) == (
        f"there is no folder {tmp_path}/data/no; put train.txt, vali.txt, test.txt into "
        f"{tmp_path}/data/no, or into Fold1, ... in it"
    )


def test_many_different_labels_are_not_listed() -> None:
    labels = np.arange(12, dtype=np.float32) / 8
    features = np.full((12, 2), np.nan, np.float32)
    features[3:5, 0] = (1, 2)
    lists = Lists(features, labels, np.array([0, 12]), np.array(["a"]), missing=22)
    text = table({(None, "test"): summarise(lists)}, [])
    assert text.splitlines()[-1].split() == [
        "test",
        "12",
        "0",
        "1.375",
        "12",
        "12.0",
        "12",
        "1",
        "22",
    ]


@pytest.mark.slow
@pytest.mark.skipif("LTR_DATA_DIR" not in os.environ, reason="LTR_DATA_DIR names no folder")
def test_real_mq2008_is_as_published(tmp_path: Path) -> None:
    data_dir = os.environ["LTR_DATA_DIR"]
    report = prepare(published("mq2008"), data_dir=data_dir, cache_dir=tmp_path)
    report.check()
    altered = replace(
        published("mq2008"), files={f"Fold3/{split}.txt": "0" * 64 for split in SPLITS}
    )
    report = prepare(altered, data_dir=data_dir, cache_dir=tmp_path, folds=3)
    assert len(report.differences) == 3


def command(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return processes.run("scripts/prepare_data.py", *arguments, cwd=cwd)


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    write_folder(tmp_path / "data/mine", {f"{split}.txt": TEXT[split] for split in SPLITS})
    own = ["dataset=letor", "dataset.folder=mine"]
    done = command(*own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "longest list" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    assert command(*own, "dataset.max_grade=1", cwd=tmp_path).returncode == 2


SCRIPT = "python scripts/prepare_data.py"


@pytest.mark.slow
def test_command_line_errors_are_one_line(tmp_path: Path) -> None:
    done = command("dataset=web10k", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "error: there is no folder data/MSLR-WEB10K; "
        + published("web10k").how_to_get("data").replace("ltr prepare_data", SCRIPT)
    )
    assert "give dataset=..." in command(cwd=tmp_path).stderr


def test_names_that_yaml_takes_for_numbers(tmp_path: Path, monkeypatch) -> None:
    write_folder(tmp_path / "2024" / "2025", FILES)
    monkeypatch.chdir(tmp_path)
    found = own_lists(2025, data_dir=2024)
    assert (found.folder, found.folds) == ("2025", 2)
    assert replace(found, folder=2025).folder == "2025"
    assert "train" in prepare(found, data_dir=2024, cache_dir=2026).table
    assert not prepare(
        replace(SMALL, folder=2027), data_dir=2024, cache_dir=2026, archive=write_2028()
    ).differences


def write_2028() -> int:
    write_zip(Path("2028"), FILES)
    return 2028


def test_names_that_are_too_long_are_one_line(tmp_path: Path) -> None:
    long, places = "a" * 300, {"data_dir": tmp_path, "cache_dir": tmp_path / "cache"}
    for known, archive in (
        (own_lists(long, data_dir=tmp_path), None),
        (SMALL, tmp_path / long),
        (replace(SMALL, folder=long), write_zip(tmp_path / "archive", FILES)),
    ):
        message = refused(lambda k=known, a=archive: prepare(k, archive=a, **places))
        assert "File name too long; set data_dir, dataset.folder and archive" in message
