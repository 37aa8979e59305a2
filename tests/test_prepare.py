"""From an archive to counted lists: what is not as published is named, what is there is kept."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import read_folder, refused, sha256, write_folder
from omegaconf import OmegaConf
from test_unpack import write_zip

from ltr.data.files import LetorFiles
from ltr.data.lists import Lists
from ltr.data.public_sets import Known, PublicSet, public_sets
from ltr.errors import LTRError
from ltr.experiment import prepare_data as room
from ltr.experiment.prepare_data import counts_of, differences, prepare_data, table

ROOT = Path(__file__).parents[1]
SPLITS = ("train", "vali", "test")
TEXT = {
    "train": "2 qid:1 1:0.5 2:1\n0 qid:1 1:1 2:1\n0 qid:2 1:1 2:1\n",
    "vali": "1 qid:3 1:0.5 2:1\n",
    "test": "0 qid:4 1:0.25 2:1\n0 qid:4 1:1e39 2:1\n",
}
FLAT = {f"{split}.txt": text for split, text in TEXT.items()}
FILES = {f"Fold{fold}/{name}": text for fold in (1, 2) for name, text in FLAT.items()}
KNOWN = tuple(
    known
    for fold in (1, 2)
    for known in (
        Known(("train",), fold, rows=3, lists=2, empty=1),
        Known(SPLITS, fold, rows=6, lists=4, empty=2, labels=(4, 1, 1)),
    )
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

    def run(given: Mapping[str, Any] = GIVEN, public: PublicSet = SMALL, **options: Any) -> str:
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
    message = refused(lambda: ask(archive=archive))
    assert message.split("; ") == [
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
    assert differences([row], known) == [
        "test has empty lists 1, not 0",
        "test has labels 0: 2  3: 1, not 0: 3",
    ]


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


@pytest.mark.parametrize("name", public_sets())
def test_facts_agree_with_each_other_and_with_the_configs(name: str) -> None:
    public = public_sets()[name]
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
