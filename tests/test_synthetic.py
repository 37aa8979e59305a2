"""The synthetic lists have Web30K's shape, are a function of their recipe, and reward context."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from folders import refused
from omegaconf import OmegaConf

from ltr.data import synthetic
from ltr.data.lists import SPLITS, Lists
from ltr.data.synthetic import EMPTY, SyntheticLists, draw_lengths
from ltr.errors import ConfigError

WEB30K = OmegaConf.load(Path(__file__).parents[1] / "configs/transform/web30k.yaml")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lists]:
    """The three splits of 300 queries."""
    cache = tmp_path_factory.mktemp("cache")
    dataset = SyntheticLists(queries=300, seed=0, cache_dir=cache)
    return {split: dataset.split(split) for split in SPLITS}


@pytest.fixture(params=SPLITS)
def lists(request: pytest.FixtureRequest, made: dict[str, Lists]) -> Lists:
    """Each split in turn."""
    return made[request.param]


def test_sizes_of_the_splits_and_three_percent_empty(
    made: dict[str, Lists], tmp_path: Path
) -> None:
    assert [len(made[split]) for split in SPLITS] == [300, 100, 100]
    assert all(round(EMPTY * len(lists)) == lists.empty.sum() for lists in made.values())
    one = SyntheticLists(queries=1, seed=0, cache_dir=tmp_path)
    assert [len(one.split(split)) for split in SPLITS] == [1, 1, 1]


def test_lengths_of_web30ks_size() -> None:
    lengths = draw_lengths(np.random.default_rng(0), 18919)
    assert lengths.sum() == pytest.approx(2_270_296, rel=0.01)
    assert (lengths.min(), (lengths > 1000).sum() > 10, lengths.max() <= 1251) == (1, True, True)


def test_columns_suit_the_published_transform(lists: Lists) -> None:
    low, high = lists.features.min(axis=0), lists.features.max(axis=0)
    negative = np.zeros(lists.width, bool)
    negative[list(WEB30K.negate)] = True
    free = np.zeros(lists.width, bool)
    free[list(WEB30K.never_log)] = True
    assert (high[negative] < 0).all()
    assert (low[~negative & ~free] >= 0).all()
    assert (low[free] < 0).any()


def test_relevance_shows_only_beside_the_rest_of_the_list(made: dict[str, Lists]) -> None:
    """A column tells little of the grade; how far it is from its list's mean tells much."""
    lists = made["train"]
    log = np.log(lists.features[:, 45:50]).mean(axis=1)
    of = np.repeat(np.arange(len(lists)), lists.lengths)
    centre = np.bincount(of, log) / lists.lengths
    own = np.abs(log - log.mean())
    in_list = np.abs(log - centre[of])

    def within(values: np.ndarray) -> float:
        mean = np.bincount(of, values) / lists.lengths
        label = lists.labels - (np.bincount(of, lists.labels) / lists.lengths)[of]
        return float(np.corrcoef(values - mean[of], label)[0, 1])

    assert within(in_list) < -0.3
    assert abs(within(own)) < 0.2
    assert within(np.log(lists.features[:, 105:110]).mean(axis=1)) > 0.2  # match: for everyone


def test_the_recipe_alone_gives_the_arrays(made: dict[str, Lists], tmp_path: Path) -> None:
    again = SyntheticLists(queries=300, seed=0, cache_dir=tmp_path).split("test")
    for field in ("features", "labels", "offsets", "qids", "digest"):
        np.testing.assert_array_equal(getattr(again, field), getattr(made["test"], field))
    other = SyntheticLists(queries=300, seed=2**70, cache_dir=tmp_path)
    lists = [made["vali"], made["test"], other.split("vali")]
    assert len({each.digest for each in lists}) == 3
    assert len({each.labels.tobytes() for each in lists}) == 3
    assert len({each.features[:, 105].tobytes() for each in lists}) == 3
    assert len(set(np.concatenate([made[split].qids for split in SPLITS]))) == 500


def test_a_change_of_the_arrays_needs_a_new_version(made: dict[str, Lists]) -> None:
    """Lengths and grades are exact everywhere, so a digest of them stands for the generator."""
    lists = made["vali"]
    digest = hashlib.sha256(lists.offsets.tobytes() + lists.labels.tobytes()).hexdigest()
    assert (synthetic.VERSION, digest[:16]) == (1, "8e33ae500311f0dd")
    shown = lists.features[:: lists.items // 7, [0, 8, 15, 45, 57, 95, 110, 121, 129, 134]]
    np.testing.assert_allclose(np.log1p(np.abs(shown)).sum(), 142.26196, rtol=1e-4)


@pytest.mark.parametrize(
    "wrong", [{"queries": 0}, {"queries": 2.5}, {"queries": True}, {"seed": -1}]
)
def test_settings_out_of_range(tmp_path: Path, wrong: dict[str, int]) -> None:
    dataset = SyntheticLists(**({"queries": 3, "seed": 0} | wrong), cache_dir=tmp_path)
    for use in (dataset.check, lambda: dataset.split("train")):
        assert f"dataset.{next(iter(wrong))}=" in refused(use, ConfigError)
    assert not list(tmp_path.iterdir())
