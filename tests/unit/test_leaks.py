"""Warnings of the same queries in two make_splits, and of features that hold the position shown."""

from dataclasses import replace

import numpy as np
import pytest

from ltr import Ranker
from ltr.data.lists import Columns, Lists
from ltr.experiment.leaks import counting_columns, warn_of_leaks
from tests.helpers.made_lists import make_lists


def make_splits(**replaced: Lists) -> dict[str, Lists]:
    """Return lists of three splits; those of ``replaced`` take the place of others."""
    splits = {
        split: make_lists([5, 7, 6, 4] * 3, seed=seed)
        for seed, split in enumerate(("train", "vali", "test"))
    }
    return splits | replaced


def test_warn_of_leaks_counts_shared_queries(caplog) -> None:
    warn_of_leaks(make_splits())
    assert not caplog.text
    train = make_splits()["train"]
    repeated = train.subset(np.array([3, 0, 4]))
    orders = [
        offset + np.random.default_rng(seed).permutation(length)
        for seed, (offset, length) in enumerate(
            zip(repeated.offsets[:-1], repeated.lengths, strict=True)
        )
    ]
    features = repeated.features[np.concatenate(orders)]
    shuffled = replace(repeated, features=features, qids=np.array(["x", "y", "z"]))
    warn_of_leaks(make_splits(test=shuffled))
    assert "3 of 3 queries of test have the same items as a query of train" in caplog.text
    assert caplog.text.count("WARNING") == 1
    caplog.clear()
    warn_of_leaks({"train": train, "vali": train.subset(np.arange(2))})
    assert "2 of 2 queries of vali have the same items as a query of train" in caplog.text
    caplog.clear()
    alike = replace(train, features=np.zeros_like(train.features))  # there is nothing to rank
    warn_of_leaks({"train": alike, "vali": alike})
    assert not caplog.text


def test_warn_of_leaks_takes_negative_zero_for_zero(caplog) -> None:
    train = make_splits()["train"]
    zeros = train.features.copy()
    zeros[:, 0] = 0
    negative = zeros.copy()
    negative[:, 0] = -0.0
    lists = {"train": replace(train, features=zeros), "vali": replace(train, features=negative)}
    warn_of_leaks(lists)
    assert f"{len(train)} of {len(train)} queries of vali have the same items" in caplog.text


def with_positions(lists: Lists, kind: str) -> Lists:
    """Return ``lists`` with positions as their third feature."""
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
        lists = replace(lists, rows=rows)
        column = rows + 7
    features = lists.features.copy()
    features[:, 2] = column
    return replace(lists, features=features)


@pytest.mark.parametrize("kind", ["from 1", "from 0", "shuffled", "rows", "rows apart"])
def test_counting_columns_finds_positions(kind, caplog) -> None:
    train = with_positions(make_splits()["train"], kind)
    assert counting_columns(train) == [2]
    warn_of_leaks(make_splits(train=train))
    assert "feature 3 (it holds consecutive numbers)" in caplog.text
    features = train.features.copy()
    features[-1, 2] += 1
    assert counting_columns(replace(train, features=features)) == []
    assert counting_columns(train.subset(np.arange(2))) == [], "too few to tell"


def test_warn_of_leaks_names_features_without_a_value(caplog) -> None:
    train = make_splits()["train"]
    features = train.features.copy()
    features[1:, 0] = np.nan
    warn_of_leaks(make_splits(train=replace(train, features=features, missing=train.items - 1)))
    assert "no value" not in caplog.text
    features[:, 2] = np.nan
    missing = int(np.isnan(features).sum())
    warn_of_leaks(make_splits(train=replace(train, features=features, missing=missing)))
    assert (
        "features without a value in any training row: feature 3; leave out these columns"
        in caplog.text
    )


def test_warn_of_leaks_finds_positions_by_name(caplog) -> None:
    train = make_splits()["train"]
    names = ["price", "Shown Position", "index", "page_rank", "composition"][: train.width]
    named = replace(train, columns=Columns(tuple(names)))
    warn_of_leaks(make_splits(train=named))
    assert (
        "Shown Position (because of its name), index (because of its name); leave out"
        in caplog.text
    )


@pytest.mark.slow
def test_ranker_warns_of_shared_queries_and_of_an_unread_position(caplog) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = rng.integers(0, 3, 60)
    qid = np.arange(60) // 6
    settings = {"epochs": 1, "threads": 1, "verbose": 0}
    Ranker("linear", "listnet", **settings).fit(X, y, qid, eval_set=[(X[:12], y[:12], qid[:12])])
    assert "2 of 2 queries of vali have the same items as a query of train" in caplog.text
    assert "position=" not in caplog.text
    caplog.clear()
    shown = np.tile(np.arange(6), 10)
    Ranker("linear", "listnet", **settings).fit(X, y, qid, position=shown)
    assert "this model does not read position=" in caplog.text
    caplog.clear()
    reading = {"model.position": "fixed", "model.blocks": 1, "model.feed_forward": 8}
    Ranker("transformer", "listnet", **settings, **reading).fit(X, y, qid, position=shown)
    assert "position=" not in caplog.text
