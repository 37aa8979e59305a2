"""The data set that reads files: where they lie, what is missing, what is read again."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from ltr.data import files
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Dataset
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError, DataError

DATA = os.environ.get("LTR_DATA_DIR")
real_data = pytest.mark.skipif(DATA is None, reason="LTR_DATA_DIR names no folder of real lists")

TEXT = {
    "train": "2 qid:1 1:0.5 3:1\n0 qid:1 2:1\n1 qid:2 1:4\n",
    "vali": "1 qid:3 1:2\n",
    "test": "0 qid:4 2:-1\n4 qid:5 1:1e39 2:-1e300\n",
}


def write(folder: Path, **text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, content in (text or TEXT).items():
        (folder / f"{split}.txt").write_text(content)


def dataset(tmp_path: Path, **knobs) -> LetorFiles:
    knobs = {"name": "letor", "folder": "mine", **knobs}
    return LetorFiles(data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", **knobs)


def said(error: type[Exception], call) -> str:
    with pytest.raises(error) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def count_parses(monkeypatch) -> list[str]:
    parsed = []
    plain = files.read_blocks

    def counted(path, *args, **knobs):
        parsed.append(path.name)
        return plain(path, *args, **knobs)

    monkeypatch.setattr(files, "read_blocks", counted)
    return parsed


def test_three_splits_of_one_width(tmp_path, monkeypatch, caplog) -> None:
    parsed = count_parses(monkeypatch)
    write(tmp_path / "data" / "mine")
    data: Dataset = dataset(tmp_path)
    data.check()
    assert parsed == []
    with caplog.at_level(logging.INFO):
        vali, train, test = (data.split(split) for split in ("vali", "train", "test"))
    assert (data.name, data.fold, data.width) == ("letor", None, 3)
    assert train.features.tolist() == [[0.5, 0, 1], [0, 1, 0], [4, 0, 0]]
    assert vali.features.tolist() == [[2, 0, 0]]
    assert np.array_equal(test.features, [[0, -1, 0], [np.nan, np.nan, 0]], equal_nan=True)
    assert [lists.qids.tolist() for lists in (train, vali, test)] == [["1", "2"], ["3"], ["4", "5"]]
    assert caplog.messages == [
        f"2 values of {tmp_path}/data/mine/test.txt are missing: nan, or beyond float32"
    ]
    again = dataset(tmp_path)
    for split in SPLITS:
        assert np.array_equal(again.split(split).labels, data.split(split).labels)
    assert sorted(parsed) == ["test.txt", "train.txt", "vali.txt"]


def test_the_width_of_train_holds_for_the_others(tmp_path) -> None:
    write(tmp_path / "data" / "mine", **{**TEXT, "vali": "1 qid:3 4:2\n"})
    assert said(DataError, lambda: dataset(tmp_path).split("vali")) == (
        f"{tmp_path}/data/mine/vali.txt:1: index '4' in '4:2'; "
        "expected a whole number from 1 to 3 (dataset.width)"
    )
    wide = dataset(tmp_path, width=7)
    assert [wide.split(split).width for split in SPLITS] == [7, 7, 7]


def test_settings_reach_the_reader_and_the_cache_key(tmp_path) -> None:
    write(tmp_path / "data" / "mine", train="3 qid:1 1:1\n0 qid:2 1:2\n0.5 qid:1 1:3\n")
    path = tmp_path / "data" / "mine" / "train.txt"
    real = dataset(tmp_path, labels="real", regroup=True).split("train")
    assert real.labels.tolist() == [3, 0.5, 0]
    assert "query id '1' comes back" in said(
        DataError, lambda: dataset(tmp_path, labels="real").split("train")
    )
    assert said(DataError, lambda: dataset(tmp_path, regroup=True).split("train")).startswith(
        f"{path}:3: label '0.5'; expected a grade"
    )
    assert said(DataError, lambda: dataset(tmp_path, max_grade=2).split("train")).startswith(
        f"{path}:1: label '3'; expected a grade, a whole number from 0 to 2"
    )
    assert list((tmp_path / "cache").glob("*.tmp")) == []


def test_a_changed_file_is_parsed_again(tmp_path, monkeypatch) -> None:
    parsed = count_parses(monkeypatch)
    write(tmp_path / "data" / "mine")
    path = tmp_path / "data" / "mine" / "train.txt"
    first = dataset(tmp_path).split("train")
    before = path.stat()
    path.write_text(TEXT["train"].replace("1:4", "1:5"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = dataset(tmp_path).split("train")
    assert (first.features[2, 0], second.features[2, 0]) == (4, 5)
    assert first.digest != second.digest
    path.write_text(TEXT["train"])
    assert dataset(tmp_path).split("train").digest == first.digest
    assert parsed == ["train.txt"] * 2  # the first content is still in the cache


def test_a_file_that_changes_after_it_was_hashed(tmp_path, monkeypatch) -> None:
    write(tmp_path / "data" / "mine")
    monkeypatch.setattr(files, "file_digest", lambda path, cache_dir: "0" * 64)
    assert said(DataError, lambda: dataset(tmp_path).split("train")) == (
        f"{tmp_path}/data/mine/train.txt: changed while it was read; run again when it is complete"
    )


def test_folds(tmp_path) -> None:
    for fold in (1, 2):
        write(tmp_path / "data" / "mine" / f"Fold{fold}", train=f"{fold} qid:1 1:1\n")
    assert dataset(tmp_path, fold=2).split("train").labels.tolist() == [2]
    data = dataset(tmp_path, fold=2, folds=5, name="mq2008", width=46)
    assert data.path("vali") == tmp_path / "data" / "mine" / "Fold2" / "vali.txt"
    assert (data.fold, data.width, data.split("train").width) == (2, 46, 46)
    for call in (dataset(tmp_path).check, lambda: dataset(tmp_path).split("train")):
        assert said(DataError, call) == (
            f"{tmp_path}/data/mine holds Fold1, Fold2; set dataset.fold=1, or another of them"
        )
    assert said(DataError, dataset(tmp_path, fold=3).check) == (
        f"{tmp_path}/data/mine/Fold3: no such folder; {tmp_path}/data/mine holds Fold1, Fold2; "
        "set dataset.fold to one there, or to null"
    )
    for fold in (None, 0, 6):
        assert said(ConfigError, lambda fold=fold: dataset(tmp_path, fold=fold, folds=5)) == (
            f"fold={fold}: letor has 5 folds, set dataset.fold=1..5"
        )
    message = said(ConfigError, lambda: dataset(tmp_path, fold=0))
    assert message.startswith("fold=0: ")
    assert message.endswith("dataset.fold=1")


def test_settings_are_checked_at_once(tmp_path) -> None:
    assert said(ConfigError, lambda: dataset(tmp_path, folder=None)) == (
        f"dataset=letor needs a folder: set dataset.folder=NAME, a folder in {tmp_path}/data"
    )
    assert said(ConfigError, lambda: dataset(tmp_path, labels="grades")) == (
        "labels='grades' is not known: set dataset.labels to grade or real"
    )
    assert said(ConfigError, lambda: dataset(tmp_path).split("valid")) == (
        "split=valid: choose one of train, vali, test"
    )


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_called_so(tmp_path, make) -> None:
    write(tmp_path / "data" / "mine", train=TEXT["train"], test=TEXT["test"])
    path = tmp_path / "data" / "mine" / "vali.txt"
    make(path)
    assert said(DataError, dataset(tmp_path).check).startswith(f"{path}: a folder, a pipe or a li")


def test_names_that_yaml_takes_for_numbers(tmp_path, monkeypatch) -> None:
    write(tmp_path / "2024" / "2025")
    monkeypatch.chdir(tmp_path)
    data = LetorFiles(name="letor", folder=2025, data_dir=2024, cache_dir=2026)
    assert data.split("train").features.shape == (3, 3)
    assert data.path("vali") == Path("2024/2025/vali.txt")
    assert (tmp_path / "2026").is_dir()


def test_names_that_are_too_long_are_one_line(tmp_path) -> None:
    (tmp_path / "data").mkdir()
    long = "a" * 300
    assert said(DataError, dataset(tmp_path, folder=long).check).endswith(
        "File name too long; set dataset.folder and data_dir to a folder that can be read"
    )
    data = LetorFiles(name="letor", folder="x", data_dir=tmp_path / long, cache_dir=tmp_path)
    assert "File name too long; set dataset.folder" in said(DataError, lambda: data.split("train"))
    write(tmp_path / "data" / "mine")
    data = dataset(tmp_path)
    data.cache_dir = tmp_path / long
    assert "File name too long; free space there or set cache_dir=DIR" in said(
        DataError, lambda: data.split("train")
    )


def test_missing_files_of_a_users_folder(tmp_path) -> None:
    assert said(DataError, dataset(tmp_path).check) == (
        f"{tmp_path}/data/mine: no such folder; set data_dir=DIR to the folder that holds it"
    )
    write(tmp_path / "data" / "yours")
    assert said(DataError, dataset(tmp_path).check) == (
        f"{tmp_path}/data/mine: no such folder; {tmp_path}/data holds yours; "
        "set dataset.folder to one there, or data_dir=DIR"
    )
    write(tmp_path / "data" / "mine", train=TEXT["train"], valid=TEXT["vali"])
    assert said(DataError, dataset(tmp_path).check) == (
        f"{tmp_path}/data/mine: no vali.txt, test.txt; "
        "it holds train.txt, valid.txt; "
        "name the files train.txt, vali.txt and test.txt"
    )
    assert dataset(tmp_path).split("train").items == 3  # what is there can be used
    for i in range(10):
        (tmp_path / "data" / "mine" / f"other{i}").mkdir()
    assert "other5 and 4 more; name the files" in said(DataError, dataset(tmp_path).check)


def test_missing_files_of_a_public_set(tmp_path) -> None:
    remedy = public_sets()["web30k"].how_to_get(tmp_path / "data")
    data = dataset(tmp_path, name="web30k", folder="MSLR-WEB30K", folds=5, fold=1)
    assert said(DataError, data.check) == (
        f"{tmp_path}/data/MSLR-WEB30K/Fold1: no such folder; {remedy}"
    )
    (tmp_path / "data" / "MSLR-WEB30K" / "Fold1").mkdir(parents=True)
    assert said(DataError, data.check) == (
        f"{tmp_path}/data/MSLR-WEB30K/Fold1: no train.txt, vali.txt, test.txt; "
        f"it holds nothing; {remedy}"
    )
    assert said(DataError, dataset(tmp_path, name="own", folder="x").check).endswith(
        "set dataset.folder to one there, or data_dir=DIR"
    )


def test_progress_is_shown_on_a_terminal_and_only_when_parsing(tmp_path, monkeypatch) -> None:
    shown = []

    class Bar:
        def __init__(self, **knobs) -> None:
            assert knobs["disable"] is None
            assert "file" not in knobs  # tqdm writes to stderr
            self.total, self.done = knobs["total"], 0

        def __enter__(self):
            return self

        def __exit__(self, *error) -> None:
            shown.append((self.done, self.total))

        def update(self, n: int) -> None:
            self.done += n

    monkeypatch.setattr(files, "tqdm", Bar)
    write(tmp_path / "data" / "mine")
    for _ in range(2):
        dataset(tmp_path).split("train")
    size = len(TEXT["train"])
    assert shown == [(size, size)]


def test_silent_when_not_on_a_terminal(tmp_path, capfd) -> None:
    write(tmp_path / "data" / "mine")
    dataset(tmp_path).split("train")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@real_data
def test_mq2008(tmp_path) -> None:
    rows = lists = empty = 0
    for fold in range(1, 6):
        data = LetorFiles(
            name="mq2008",
            folder="MQ2008",
            data_dir=Path(DATA),
            cache_dir=tmp_path,
            fold=fold,
            folds=5,
            width=46,
            max_grade=2,
        )
        data.check()
        test = data.split("test")
        assert test.width == 46
        assert test.missing == 0
        rows, lists, empty = rows + test.items, lists + len(test), empty + int(test.empty.sum())
        if fold == 1:
            assert data.split("train").items == 9630
            assert data.split("train").features[0, 0] == np.float32(0.007477)
            assert data.split("train").qids[0] == "10002"
    assert (rows, lists, empty) == (15211, 784, 220)


@pytest.mark.slow
@real_data
def test_web_sample(tmp_path) -> None:
    data = LetorFiles(
        name="letor", folder="MSLR-WEB-sample", data_dir=Path(DATA), cache_dir=tmp_path, fold=1
    )
    assert data.width == 136
    assert [len(data.split(split)) for split in SPLITS] == [32, 10, 42]
    assert data.split("train").features[0, [15, 17]].tolist() == [
        np.float32(6.931275),
        np.float32(19.673353),
    ]
    fixed = LetorFiles(
        name="web30k",
        folder="MSLR-WEB-sample",
        data_dir=Path(DATA),
        cache_dir=tmp_path,
        fold=1,
        folds=5,
        width=136,
        max_grade=4,
    )
    for split in SPLITS:
        assert np.array_equal(fixed.split(split).features, data.split(split).features)
