"""Bagging: which lists a member is trained on, and that a run trains on them."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import compose, make_lists

from ltr.errors import ConfigError
from ltr.experiment.list_steps import check_bagging, draw_lists
from ltr.experiment.run import run
from ltr.training.checkpoint import load_checkpoint
from ltr.training.network import NetworkLearner


def test_lists_are_taken_whole_and_again_where_they_were_drawn_again() -> None:
    lists = make_lists([3, 1, 4])
    lists = replace(lists, weights=np.array([1, 2, 3], np.float32))
    bag = lists.subset(np.array([2, 0, 2]))
    entries = list(lists)
    for (qid, features, labels), number in zip(bag, (2, 0, 2), strict=True):
        assert qid == entries[number][0]
        np.testing.assert_array_equal(features, entries[number][1])
        np.testing.assert_array_equal(labels, entries[number][2])
    assert bag.weights.tolist() == [3, 1, 3]
    assert bag.rows.tolist() == [4, 5, 6, 7, 0, 1, 2, 4, 5, 6, 7]


def test_a_bag_is_of_its_seed_and_its_kind() -> None:
    bags = [draw_lists(1000, "bootstrap", seed) for seed in range(5)]
    unique = [len({*bag.tolist()}) / 1000 for bag in bags]
    assert all(abs(part - (1 - np.exp(-1))) < 0.05 for part in unique)
    assert len({tuple(bag) for bag in bags}) == 5
    assert len(draw_lists(1, 0.1, 1)) == 1


@pytest.mark.parametrize("wrong", [True, 0, 1, 1.5, "boot", [0.5]])
def test_a_wrong_bagging_is_refused(wrong) -> None:
    with pytest.raises(ConfigError, match=r"bagging=.*bootstrap"):
        check_bagging(wrong)


@pytest.mark.slow
def test_a_run_trains_on_its_bag_and_is_still_of_the_whole_data(
    tiny, tmp_path, monkeypatch
) -> None:
    seen = {}

    def fit(self, data):
        seen.update(data)
        return trained(self, data)

    trained = NetworkLearner.fit
    monkeypatch.setattr(NetworkLearner, "fit", fit)
    own = [item for item in tiny if not item.startswith("model.")]
    kept, bags = [], []
    for bagging in ("null", "0.5"):
        cfg = compose(*own, "epochs=1", "model=linear", "loss=listnet", f"bagging={bagging}")
        (folder := tmp_path / bagging).mkdir()
        run(cfg, folder, {})
        kept.append(load_checkpoint(folder / "last.pt"))
        bags.append(seen["train"].qids.tolist())
    assert bags[1] == [bags[0][i] for i in draw_lists(24, 0.5, 1)]
    assert len(seen["vali"]) == 8
    for key in ("data", "transform"):
        assert kept[0][key] == kept[1][key]
