"""The facts about the official sets agree with the configs, each other and their source."""

from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ltr.data.archives import SETS, Known, PublishedSet, published
from ltr.errors import ConfigError

ROOT = Path(__file__).parents[1]
SPLITS = ("train", "vali", "test")


@pytest.mark.parametrize("name", SETS)
def test_facts_agree_with_the_configs(name: str) -> None:
    config = OmegaConf.load(ROOT / f"configs/dataset/{name}.yaml")
    for parent in [entry for entry in config.defaults if isinstance(entry, str)]:
        base = OmegaConf.load(ROOT / f"configs/dataset/{parent}.yaml")
        config = OmegaConf.merge(base, config)
    settings = config.get("dataset", config)
    shared = {field.name for field in fields(PublishedSet)} & set(settings)
    assert shared >= {"name", "folder", "folds", "width", "labels", "max_grade", "regroup"}
    assert {key: getattr(SETS[name], key) for key in shared} == {k: settings[k] for k in shared}


@pytest.mark.parametrize("name", SETS)
def test_facts_agree_with_each_other(name: str) -> None:
    dataset = SETS[name]
    folds = range(1, dataset.folds + 1) or [None]
    files = {
        f"{split}.txt" if fold is None else f"Fold{fold}/{split}.txt"
        for fold in folds
        for split in dataset.splits
    }
    assert set(dataset.files) in (set(), files)
    assert {len(digest) for digest in dataset.files.values()} <= {64}
    for fold in folds:
        known = {each.splits: each for each in dataset.known if each.fold == fold}
        for count in ("rows", "lists", "empty"):
            parts = [getattr(known.get((split,), Known(())), count) for split in SPLITS]
            if known.get(SPLITS) and None not in parts:
                assert sum(parts) == getattr(known[SPLITS], count)


def test_facts_of_web30k() -> None:
    known = {(each.fold, each.splits): each for each in published("web30k").known}
    empty = {1: (602, 191, 189), 2: (587, 189, 206), 3: (581, 206, 195), 4: (586, 195, 201)}
    empty[5] = (590, 201, 191)
    lists = {1: (18919, 6306, 6306), 2: (18918, 6306, 6307), 3: (18918, 6307, 6306)}
    lists |= {4: (18919, 6306, 6306), 5: (18919, 6306, 6306)}
    for fold in range(1, 6):
        records = [known[fold, (split,)] for split in SPLITS]
        assert tuple(record.empty for record in records) == empty[fold]
        assert tuple(record.lists for record in records) == lists[fold]
    rows = [known[1, (split,)].rows for split in SPLITS]
    assert rows == [2_270_296, 747_218, 753_611]
    assert known[5, ("test",)].rows == 747_218  # the part that fold 1 validates on


def test_facts_of_mq2007() -> None:
    known = {(each.fold, each.splits): each for each in published("mq2007").known}
    rows = {1: (42158, 13813, 13652), 2: (41958, 13652, 14013), 3: (41320, 14013, 14290)}
    rows |= {4: (41478, 14290, 13855), 5: (41955, 13855, 13813)}
    for fold, expected in rows.items():
        assert tuple(known[fold, (split,)].rows for split in SPLITS) == expected


def test_how_to_get() -> None:
    assert published("istella").how_to_get("my data") == (
        "download istella-letor.tar.gz from https://istella.ai/datasets/letor-dataset/ and run: "
        "ltr prepare_data dataset=istella archive=PATH/istella-letor.tar.gz "
        "data_dir='my data'"
    )
    with pytest.raises(ConfigError) as error:
        published("web3k")
    assert str(error.value) == (
        "dataset=web3k is not downloaded; choose one of "
        "web30k, web10k, istella, istella_s, mq2007, mq2008"
    )
