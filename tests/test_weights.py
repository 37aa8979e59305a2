"""Weights of lists in training: a weight of 2 is the list twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from made_columns import COLUMNS, mixed, mixed_data, train_mixed
from made_trees import a_loss, tensors

from ltr.data.lists import Lists
from ltr.data.memory import MemoryLists
from ltr.losses.batch import mean_over_batch
from ltr.models.rounds import LossObjective


def twice(lists: Lists, which: int) -> Lists:
    """``lists`` with the list ``which`` once more at the end."""
    rows = slice(lists.offsets[which], lists.offsets[which + 1])
    return replace(
        lists,
        features=np.concatenate([lists.features, lists.features[rows]]),
        labels=np.concatenate([lists.labels, lists.labels[rows]]),
        offsets=np.append(lists.offsets, lists.items + lists.lengths[which]),
        qids=np.append(lists.qids, "again"),
    )


def heavy(lists: Lists, which: int) -> Lists:
    """``lists`` in which the list ``which`` weighs 2."""
    return replace(lists, weights=np.where(np.arange(len(lists)) == which, 2, 1).astype(np.float32))


def test_a_mean_with_weights_is_the_mean_with_lists_repeated() -> None:
    values, mask = torch.tensor([4.0, 1.0, 7.0]), torch.tensor([[True], [True], [False]])
    labels, weights = torch.tensor([[1.0], [0.0], [1.0]]), torch.tensor([2.0, 1.0, 9.0])
    for empty, expected in (("keep", (4 + 4 + 1) / 3), ("skip", 4.0)):
        found = mean_over_batch(values, labels, mask, empty=empty, weights=weights)
        assert found.item() == pytest.approx(expected)
    assert mean_over_batch(values, labels, mask, weights=torch.zeros(3)) == 0


@pytest.mark.parametrize("loss", ["neuralndcg", "mse"])
def test_the_gradient_of_a_list_that_weighs_2_is_twice_that_of_the_list(loss) -> None:
    lists = mixed(5)
    scores = np.random.default_rng(0).normal(size=lists.items)
    once = LossObjective(a_loss(loss), tensors(lists))
    more = LossObjective(a_loss(loss), tensors(heavy(lists, 3)))
    factor = np.repeat([1, 1, 1, 2, 1], lists.lengths)
    np.testing.assert_allclose(more.gradient(scores), factor * once.gradient(scores), rtol=1e-6)


@pytest.mark.slow
def test_networks_and_trees_learn_the_same_from_a_list_twice(tmp_path: Path) -> None:
    train, others = mixed(8), {"vali": mixed(5, seed=1), "test": mixed(5, seed=2)}
    assert train.columns == COLUMNS
    for model, more in (
        ("linear", ["loss=mse", "batch_size=99", "optimizer.lr=0.1", "transform=none"]),
        ("lightgbm", ["model.min_data_in_leaf=1", "+model.options.min_data_in_bin=1"]),
    ):
        scores = {}
        for name, lists in (("twice", twice(train, 3)), ("heavy", heavy(train, 3))):
            data = MemoryLists(name="m", lists={"train": lists, **others})
            args = (f"model={model}", *more, "epochs=3", "select=last", "threads=1")
            train_mixed(tmp_path / f"{model}-{name}", data, *args)
            scores[name] = pd.read_csv(tmp_path / f"{model}-{name}" / "scores.csv").score
        np.testing.assert_allclose(scores["heavy"], scores["twice"], atol=2e-5)
        assert scores["heavy"].nunique() > 3


@pytest.mark.slow
def test_the_loss_of_an_epoch_is_the_weighted_mean_however_lists_are_batched(tmp_path) -> None:
    data, losses = mixed_data(6, weights=True), []
    for name, more in (("steps", ["batch_size=4"]), ("slices", ["batch_size=3", "shards=2"])):
        args = ("model=linear", "loss=mse", "optimizer.lr=0", "epochs=1", "threads=1", *more)
        train_mixed(tmp_path / name, data, *args)
        losses.append(pd.read_csv(tmp_path / name / "history.csv").loss[1])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
