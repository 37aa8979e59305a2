"""Data sets in files, when they are read again; synthetic lists of Web30K's shape."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from ltr.data import files, synthetic
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Dataset, Lists
from ltr.data.public_sets import public_sets
from ltr.data.synthetic import EMPTY, SyntheticLists, draw_lengths
from ltr.errors import ConfigError
from tests.helpers.folders import refused, write_folder
from tests.helpers.paths import ROOT

TEXT = {
    "train": "2 qid:1 1:0.5 3:1\n0 qid:1 2:1\n1 qid:2 1:4\n",
    "vali": "1 qid:3 1:2\n",
    "test": "0 qid:4 2:-1\n4 qid:5 1:1e39 2:-1e300\n",
}


def write(folder: Path, **text: str) -> Path:
    files = {f"{split}.txt": content for split, content in (text or TEXT).items()}
    return write_folder(folder, files)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The folder of the three files."""
    return write(tmp_path / "data" / "mine")


def dataset(tmp_path: Path, **knobs: Any) -> LetorFiles:
    folders = {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache"}
    return LetorFiles(**folders | {"name": "letor", "folder": "mine"} | knobs)


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """The names of the files that are parsed."""
    names: list[str] = []
    real_reader = files.read_blocks

    def read_blocks(path: Path, *args: Any) -> Any:
        names.append(path.name)
        return real_reader(path, *args)

    monkeypatch.setattr(files, "read_blocks", read_blocks)
    return names


def test_letor_files_read_each_split_once(tmp_path, mine, parsed) -> None:
    data: Dataset = dataset(tmp_path)
    data.check()
    assert parsed == []
    vali, train, test = (data.split(split) for split in ("vali", "train", "test"))
    assert (data.name, data.fold, data.width) == ("letor", None, 3)
    assert train.features.tolist() == [[0.5, 0, 1], [0, 1, 0], [4, 0, 0]]
    assert vali.features.tolist() == [[2, 0, 0]]
    np.testing.assert_array_equal(test.features, [[0, -1, 0], [np.nan, np.nan, 0]])
    assert (train.missing, test.missing) == (0, 2)
    assert [lists.qids.tolist() for lists in (train, vali, test)] == [["1", "2"], ["3"], ["4", "5"]]
    reopened = dataset(tmp_path)
    assert [reopened.split(split).items for split in SPLITS] == [3, 1, 2]
    assert sorted(parsed) == ["test.txt", "train.txt", "vali.txt"]


def test_letor_files_take_the_width_of_train_for_every_split(tmp_path, mine) -> None:
    write(mine, vali="1 qid:3 4:2\n")
    message = refused(lambda: dataset(tmp_path).split("vali"))
    assert message.startswith(f"{mine}/vali.txt:1: '4:2'; ")
    assert "from 1 to 3 (dataset.width)" in message
    wide = dataset(tmp_path, width=7)
    assert [wide.split(split).width for split in SPLITS] == [7, 7, 7]


def test_letor_files_pass_settings_to_reader_and_cache_key(tmp_path, mine) -> None:
    write(mine, train="3 qid:1 1:1\n0 qid:2 1:2\n0.5 qid:1 1:3\n")
    real = dataset(tmp_path, labels="real", regroup=True).split("train")
    assert real.labels.tolist() == [3, 0.5, 0]
    for knobs, expected in (
        ({"labels": "real"}, "query id '1' appears again"),
        ({"regroup": True}, "train.txt:3: label '0.5'; expected a grade"),
        (
            {"max_grade": 2},
            "train.txt:1: label '3'; expected a grade, which is a whole number from 0 to 2",
        ),
    ):
        message = refused(lambda knobs=knobs: dataset(tmp_path, **knobs).split("train"))
        assert expected in message
    assert list((tmp_path / "cache").glob("*.tmp")) == []


def test_letor_files_parse_a_changed_file_again(tmp_path, mine, parsed) -> None:
    path = mine / "train.txt"
    first = dataset(tmp_path).split("train")
    old_status = path.stat()
    path.write_text(TEXT["train"].replace("1:4", "1:5"))
    os.utime(path, ns=(old_status.st_atime_ns, old_status.st_mtime_ns))
    second = dataset(tmp_path).split("train")
    assert (first.features[2, 0], second.features[2, 0]) == (4, 5)
    assert first.digest != second.digest
    path.write_text(TEXT["train"])
    assert dataset(tmp_path).split("train").digest == first.digest
    assert parsed == ["train.txt"] * 2  # the first content is still in the cache


def test_letor_files_refuse_a_file_that_changes_meanwhile(tmp_path, mine, monkeypatch) -> None:
    digests = iter(("0" * 64, "1" * 64))
    monkeypatch.setattr(files, "file_digest", lambda *_: next(digests))
    message = refused(lambda: dataset(tmp_path).split("train"))
    assert message.startswith(
        f"{mine}/train.txt: the file changed while it was being read; run again"
    )


def test_letor_files_read_folds(tmp_path) -> None:
    mine = tmp_path / "data" / "mine"
    for fold in (1, 2):
        write(mine / f"Fold{fold}", train=f"{fold} qid:1 1:1\n")
    assert dataset(tmp_path, fold=2).split("train").labels.tolist() == [2]
    data = dataset(tmp_path, fold=2, folds=5, name="mq2008", width=46)
    assert data.path("vali") == mine / "Fold2" / "vali.txt"
    assert (data.fold, data.width, data.split("train").width) == (2, 46, 46)
    message = refused(lambda: dataset(tmp_path).split("train"))
    assert "; the folder has folds: set dataset.fold=1, or dataset.folds=2" in message
    message = refused(lambda: dataset(tmp_path, fold=3).split("train"))
    assert "; set dataset.folder, dataset.fold" in message
    for fold in (None, 0, 6, True):
        message = refused(lambda fold=fold: dataset(tmp_path, fold=fold, folds=5), ConfigError)
        assert message == f"dataset.fold={fold}: give a whole number from 1 to 5"


def test_letor_files_accept_numbers_as_names_and_refuse_long_names(
    tmp_path, mine, monkeypatch
) -> None:
    write(tmp_path / "2024" / "2025")
    monkeypatch.chdir(tmp_path)
    data = LetorFiles(name="letor", folder=2025, data_dir=2024, cache_dir=2026)
    assert data.split("train").features.shape == (3, 3)
    assert (tmp_path / "2026").is_dir()
    for key, expected in (("folder", "set dataset.folder"), ("cache_dir", "set cache_dir to")):
        knobs = {key: str(tmp_path / ("a" * 300))}
        message = refused(lambda knobs=knobs: dataset(tmp_path, **knobs).split("train"))
        assert expected in message


def test_letor_files_name_missing_files(tmp_path) -> None:
    mine = tmp_path / "data" / "mine"
    check = dataset(tmp_path).check
    assert f"{mine}: missing train.txt, vali.txt; set dataset.folder" in refused(check)
    write(mine, train=TEXT["train"], valid=TEXT["vali"])
    assert "missing vali.txt; " in refused(check)
    assert dataset(tmp_path).split("train").items == 3  # what is there can be used
    (mine / "vali.txt").mkdir()
    assert "missing vali.txt; " in refused(check), "a folder is none"
    remedy = public_sets()["web30k"].how_to_get(tmp_path / "data")
    message = refused(lambda: dataset(tmp_path).split("dev"), ConfigError)
    assert "choose one of train, vali" in message
    assert "dataset.folder=NAME" in refused(lambda: dataset(tmp_path, folder=None), ConfigError)
    check = dataset(tmp_path, name="web30k", folder="MSLR-WEB30K", folds=5, fold=1).check
    assert refused(check).endswith(remedy)


# Synthetic lists.


@pytest.fixture(scope="module")
def synthetic_lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lists]:
    """The three splits of 300 queries."""
    cache = tmp_path_factory.mktemp("cache")
    dataset = SyntheticLists(queries=300, seed=0, cache_dir=cache)
    return {split: dataset.split(split) for split in SPLITS}


def test_synthetic_lists_have_the_sizes_of_web30k(synthetic_lists, tmp_path) -> None:
    assert [len(synthetic_lists[split]) for split in SPLITS] == [300, 100, 100]
    assert all(round(EMPTY * len(lists)) == lists.empty.sum() for lists in synthetic_lists.values())
    smallest = SyntheticLists(queries=1, seed=0, cache_dir=tmp_path)
    assert [len(smallest.split(split)) for split in SPLITS] == [1, 1, 1]
    lengths = draw_lengths(np.random.default_rng(0), 18919)
    assert lengths.sum() == pytest.approx(2_270_296, rel=0.01)
    assert (lengths.min(), (lengths > 1000).sum() > 10, lengths.max() <= 1251) == (1, True, True)


@pytest.mark.parametrize("split", SPLITS)
def test_synthetic_lists_suit_the_published_recipe(synthetic_lists, split) -> None:
    features = synthetic_lists[split].features
    recipe = OmegaConf.load(ROOT / "configs/transform/web30k.yaml")
    negative = list(recipe.negate)
    free = list(recipe.never_log)
    assert (features[:, negative] < 0).all()
    assert (np.delete(features, negative + free, axis=1) >= 0).all()
    assert (features[:, free] < 0).any()


def test_synthetic_lists_show_relevance_only_within_the_list(
    synthetic_lists: dict[str, Lists],
) -> None:
    """A column says little about the grade; its distance from the list's mean says much."""
    lists = synthetic_lists["train"]
    log = np.log(lists.features[:, 45:50]).mean(axis=1)
    numbers = np.repeat(np.arange(len(lists)), lists.lengths)
    centres = np.bincount(numbers, log) / lists.lengths
    distance_from_all = np.abs(log - log.mean())
    distance_in_list = np.abs(log - centres[numbers])

    def correlation(values: np.ndarray) -> float:
        means = np.bincount(numbers, values) / lists.lengths
        mean_labels = np.bincount(numbers, lists.labels) / lists.lengths
        labels = lists.labels - mean_labels[numbers]
        return float(np.corrcoef(values - means[numbers], labels)[0, 1])

    assert correlation(distance_in_list) < -0.3
    assert abs(correlation(distance_from_all)) < 0.2
    assert correlation(np.log(lists.features[:, 105:110]).mean(axis=1)) > 0.2  # match: for everyone


def test_synthetic_lists_depend_on_the_recipe_alone(
    synthetic_lists: dict[str, Lists], tmp_path: Path
) -> None:
    repeated = SyntheticLists(queries=300, seed=0, cache_dir=tmp_path).split("test")
    for field in ("features", "labels", "offsets", "qids", "digest"):
        np.testing.assert_array_equal(
            getattr(repeated, field), getattr(synthetic_lists["test"], field)
        )
    large_seed = SyntheticLists(queries=300, seed=2**70, cache_dir=tmp_path)
    splits = [synthetic_lists["vali"], synthetic_lists["test"], large_seed.split("vali")]
    assert len({lists.digest for lists in splits}) == 3
    assert len({lists.labels.tobytes() for lists in splits}) == 3
    assert len({lists.features[:, 105].tobytes() for lists in splits}) == 3
    assert len(set(np.concatenate([synthetic_lists[split].qids for split in SPLITS]))) == 500


def test_synthetic_lists_of_this_version_do_not_change(synthetic_lists: dict[str, Lists]) -> None:
    """Lengths and grades are exact everywhere, so a digest of them stands for the generator."""
    lists = synthetic_lists["vali"]
    digest = hashlib.sha256(lists.offsets.tobytes() + lists.labels.tobytes()).hexdigest()
    assert (synthetic.VERSION, digest[:16]) == (1, "8e33ae500311f0dd")
    shown = lists.features[:: lists.items // 7, [0, 8, 15, 45, 57, 95, 110, 121, 129, 134]]
    np.testing.assert_allclose(np.log1p(np.abs(shown)).sum(), 142.26196, rtol=1e-4)


@pytest.mark.parametrize(
    "wrong", [{"queries": 0}, {"queries": 2.5}, {"queries": True}, {"seed": -1}]
)
def test_synthetic_lists_refuse_settings_out_of_range(
    tmp_path: Path, wrong: dict[str, int]
) -> None:
    dataset = SyntheticLists(**({"queries": 3, "seed": 0} | wrong), cache_dir=tmp_path)
    for use in (dataset.check, lambda: dataset.split("train")):
        assert f"dataset.{next(iter(wrong))}=" in refused(use, ConfigError)
    assert not list(tmp_path.iterdir())


def test_letor_files_name_a_shared_missing_file_once(tmp_path) -> None:
    shared = LetorFiles(
        name="x", folder="mine", data_dir=tmp_path, cache_dir=tmp_path / "cache", vali_share=0.2
    )
    assert "missing train.txt; " in refused(shared.check)
