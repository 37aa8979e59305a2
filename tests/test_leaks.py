"""Warnings of the same queries in two splits, and of features that hold the position shown."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_lists

from ltr import Ranker
from ltr.data.lists import Columns, Lists
from ltr.experiment.leaks import counting_columns, warn_of_leaks


def splits(**parts: Lists) -> dict[str, Lists]:
    made = {
        s: make_lists([5, 7, 6, 4] * 3, seed=i) for i, s in enumerate(("train", "vali", "test"))
    }
    return made | parts


def test_queries_with_the_same_items_are_counted(caplog) -> None:
    warn_of_leaks(splits())
    assert not caplog.text
    train = splits()["train"]
    again = train.subset(np.array([3, 0, 4]))
    order = np.concatenate([again.offsets[i] + np.random.default_rng(i).permutation(n)
                            for i, n in enumerate(again.lengths)])  # fmt: skip
    shuffled = replace(again, features=again.features[order], qids=np.array(["x", "y", "z"]))
    warn_of_leaks(splits(test=shuffled))
    assert "3 of 3 queries of test have the same items as a query of train" in caplog.text
    assert caplog.text.count("WARNING") == 1
    caplog.clear()
    warn_of_leaks({"train": train, "vali": train.subset(np.arange(2))})
    assert "2 of 2 queries of vali have the same items as a query of train" in caplog.text
    caplog.clear()
    alike = replace(train, features=np.zeros_like(train.features))  # there is nothing to rank
    warn_of_leaks({"train": alike, "vali": alike})
    assert not caplog.text


def test_a_zero_below_0_is_a_zero(caplog) -> None:
    train = splits()["train"]
    zeros = train.features.copy()
    zeros[:, 0] = 0
    negative = zeros.copy()
    negative[:, 0] = -0.0
    lists = {"train": replace(train, features=zeros), "vali": replace(train, features=negative)}
    warn_of_leaks(lists)
    assert f"{len(train)} of {len(train)} queries of vali have the same items" in caplog.text


def numbered(lists: Lists, kind: str) -> Lists:
    rng = np.random.default_rng(0)
    starts = {"from 1": 1, "from 0": 0, "shuffled": 1}.get(kind)
    if starts is None:
        column = np.arange(lists.items)
    else:
        column = np.concatenate([starts + np.arange(n) for n in lists.lengths])
    if kind == "shuffled":
        column = np.concatenate([1 + rng.permutation(n) for n in lists.lengths])
    if kind == "rows apart":
        rows = rng.permutation(lists.items)
        lists, column = replace(lists, rows=rows), rows + 7
    features = lists.features.copy()
    features[:, 2] = column
    return replace(lists, features=features)


@pytest.mark.parametrize("kind", ["from 1", "from 0", "shuffled", "rows", "rows apart"])
def test_a_feature_that_counts_the_items_is_named(kind, caplog) -> None:
    train = numbered(splits()["train"], kind)
    assert counting_columns(train) == [2]
    warn_of_leaks(splits(train=train))
    assert "feature 3 (numbers the items of each query)" in caplog.text
    other = train.features.copy()
    other[-1, 2] += 1
    assert counting_columns(replace(train, features=other)) == []
    assert counting_columns(train.subset(np.arange(2))) == [], "too few to tell"


def test_a_feature_without_a_value_is_named(caplog) -> None:
    train = splits()["train"]
    features = train.features.copy()
    features[1:, 0] = np.nan
    warn_of_leaks(splits(train=replace(train, features=features, missing=train.items - 1)))
    assert "no value" not in caplog.text
    features[:, 2] = np.nan
    missing = int(np.isnan(features).sum())
    warn_of_leaks(splits(train=replace(train, features=features, missing=missing)))
    assert "no value in any row of train: feature 3: leave it out" in caplog.text


def test_a_feature_is_known_by_its_name(caplog) -> None:
    train = splits()["train"]
    names = ["price", "Shown Position", "index", "page_rank", "composition"][: train.width]
    named = replace(train, columns=Columns(tuple(names)))
    warn_of_leaks(splits(train=named))
    assert "Shown Position (by its name), index (by its name): if it is not" in caplog.text


@pytest.mark.slow
def test_a_ranker_says_so_of_its_eval_set_and_of_a_position_that_it_does_not_read(caplog) -> None:
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(60, 3)), rng.integers(0, 3, 60), np.arange(60) // 6
    keys = {"epochs": 1, "threads": 1, "verbose": 0}
    Ranker("linear", "listnet", **keys).fit(X, y, qid, eval_set=[(X[:12], y[:12], qid[:12])])
    assert "2 of 2 queries of vali have the same items as a query of train" in caplog.text
    assert "position=" not in caplog.text
    caplog.clear()
    shown = np.tile(np.arange(6), 10)
    Ranker("linear", "listnet", **keys).fit(X, y, qid, position=shown)
    assert "position= is not read by this model" in caplog.text
    caplog.clear()
    reads = {"model.position": "fixed", "model.blocks": 1, "model.feed_forward": 8}
    Ranker("transformer", "listnet", **keys, **reads).fit(X, y, qid, position=shown)
    assert "position=" not in caplog.text
