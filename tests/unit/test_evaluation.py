"""Evaluation: every metric of a batch from one order, the same as each metric by itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.metrics import Convention, ordering, parse_metric
from ltr.metrics.ordering import order_by_score, sorted_once
from ltr.metrics.spec import METRICS
from ltr.training.evaluation import means, metrics_of_scores, predict
from tests.helpers.made_lists import make_lists

LENGTHS = [1, 30, 3, 17, 9, 9, 2]


class Rounded(nn.Module):
    """A model with many ties: the first feature, rounded."""

    def forward(self, features, mask, ranks=None):
        return features[..., 0].round().masked_fill(~mask, 0)


def evaluated(names: list[str], convention: Convention) -> dict[str, np.ndarray]:
    lists = make_lists(LENGTHS, empty=(4,))
    data = ItemTensors(lists, no_transform(lists))
    metrics = [parse_metric(name) for name in names]
    scores = predict(Rounded(), data, items=40)
    return metrics_of_scores(data, scores, metrics, convention, items=40)


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["file", "averaged"])
def test_metrics_of_scores_give_each_metric_as_by_itself(ties: str) -> None:
    names = [f"{name}{k}" for name in METRICS for k in ("", "@1", "@3", "@10")]
    if ties == "averaged":
        names = [name for name in names if not name.startswith("err")]
    convention = replace(Convention(), ties=ties)
    together = evaluated(names, convention)
    lists = make_lists(LENGTHS, empty=(4,))
    for i, (_, features, labels) in enumerate(lists):
        scores = torch.from_numpy(features[None, :, 0]).round().double()
        mask = torch.ones(1, len(labels), dtype=torch.bool)
        for name in names:
            alone = parse_metric(name)(scores, torch.from_numpy(labels)[None], mask, convention)
            np.testing.assert_allclose(together[name][i], alone.item(), atol=1e-12)


def test_metrics_of_scores_do_not_depend_on_the_batch_size() -> None:
    names = ["ndcg@5", "map"]
    lists = make_lists(LENGTHS, empty=(4,))
    metrics = [parse_metric(name) for name in names]
    convention = Convention(empty="skip")
    expected = evaluated(names, convention)
    scores = predict(Rounded(), ItemTensors(lists, no_transform(lists)))
    for items in (1, 9999):
        values = metrics_of_scores(lists, scores.numpy(), metrics, convention, items=items)
        assert means(values, convention) == means(expected, convention)


def test_metrics_of_scores_sort_a_batch_twice_whatever_the_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sorts = []
    original = ordering._keys
    monkeypatch.setattr(ordering, "_keys", lambda *args: sorts.append(1) or original(*args))
    evaluated(["ndcg@5"], Convention())
    once = len(sorts)
    evaluated(["ndcg@1", "ndcg@5", "ndcg", "dcg@3", "map", "mrr@10", "precision@5"], Convention())
    assert len(sorts) == 2 * once > 0, "by score and by label, once a batch"


def test_sorted_once_keeps_an_order_for_the_same_tensors_only() -> None:
    first = torch.tensor([[0.1, 0.9]])
    second = torch.tensor([[0.9, 0.1]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    half = torch.tensor([[True, False]])
    with sorted_once():
        assert order_by_score(first, mask).tolist() == [[1, 0]]
        assert order_by_score(second, mask).tolist() == [[0, 1]]
        assert order_by_score(first, half).tolist() == [[0, 1]]
        assert order_by_score(first, mask).tolist() == [[1, 0]]
    first.copy_(second)
    assert order_by_score(first, mask).tolist() == [[0, 1]]
