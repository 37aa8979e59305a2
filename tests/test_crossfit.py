"""Crossfit: the choice of an epoch, measured on lists that did not make it."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose, make_lists

from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.metrics import Convention, parse_metric
from ltr.metrics.crossfit import HALVINGS, Crossfit, Halves, crossfit_of_halves
from ltr.scorers.parts import make_settings
from ltr.training.evaluation import metrics_of_scores
from ltr.training.monitor import Monitor

DRAWS = np.random.default_rng(0)


def by_hand(values: np.ndarray) -> tuple[float, float]:
    """The definition, a split and a half at a time."""
    lists = [i for i in range(values.shape[1]) if not np.isnan(values[0, i])]
    draws, measured, squares = np.random.default_rng(0), [], []
    for _ in range(HALVINGS):
        order = [int(i) for i in draws.permutation(lists)]
        halves = order[: len(lists) // 2], order[len(lists) // 2 :]
        pair = []
        for mine, other in (halves, halves[::-1]):
            means = [float(np.mean([row[i] for i in mine])) for row in values]
            pair.append(np.mean([values[int(np.argmax(means)), i] for i in other]))
        measured += pair
        squares.append((pair[0] - pair[1]) ** 2)
    return float(np.mean(measured)), math.sqrt(np.mean(squares)) / 2


def crossfit(values: np.ndarray) -> Crossfit | None:
    """Of the values of every list, ``[epochs, lists]``; NaN: it does not count."""
    halves = Halves.of(np.atleast_1d(~np.isnan(values).all(axis=0)))
    return crossfit_of_halves(np.array([halves.means(row) for row in values]))


@pytest.mark.parametrize("lists", [2, 7, 30])
def test_it_is_what_its_definition_says(lists) -> None:
    values = DRAWS.random((12, lists + 2))
    values[:, [1, 3]] = np.nan  # do not count
    found = crossfit(values)
    assert found is not None
    assert (found.value, found.error) == pytest.approx(by_hand(values), rel=1e-12)


def test_there_is_none_of_one_list_or_no_epoch() -> None:
    assert crossfit(DRAWS.random((5, 1))) is None
    assert crossfit(np.empty((0, 9))) is None


def record_of(folder: Path, *overrides: str) -> Monitor:
    settings = make_settings(compose(*overrides, "select_on=ndcg"))
    convention = Convention(empty="skip")
    return Monitor(
        settings, metrics=[parse_metric("ndcg")], convention=convention, folder=folder, state={}
    )


def test_a_record_keeps_halves_that_give_the_value_of_its_lists(tmp_path) -> None:
    lists = make_lists([3] * 15, seed=2)
    data = ItemTensors(lists, no_transform(lists))
    record = record_of(tmp_path, "epochs=9")
    values, means = [], []
    for epoch in range(10):
        scores = torch.tensor(DRAWS.random(45))
        row = record.measure("vali", data, scores)
        record.progress.epoch = epoch
        record.add({"epoch": epoch, **row})
        found = metrics_of_scores(data, scores, [parse_metric("ndcg")], Convention(empty="skip"))
        values.append(found["ndcg"])
        means.append(row["vali_ndcg"])
    assert record.crossfit == crossfit(np.array(values[1:]))  # to the last bit
    assert record.progress.best_epoch == 1 + int(np.argmax(means[1:]))
    assert record.progress.best_value == max(means[1:])
    assert record_of(tmp_path, "select=last").crossfit is None
