"""Every metric under every convention against slow float64 formulas, and what all have in common.

The reference scores one order of one list in plain Python; averaged ties are the mean of it over
all orders of the tied items.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import processes
import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score

from ltr import metrics
from ltr.errors import ConfigError
from ltr.losses import neural_err_loss
from ltr.metrics import (
    Convention,
    Metric,
    err,
    map,
    mean_ndcg,
    mean_over_lists,
    mrr,
    ndcg,
    ndcg_beta,
    parse_metric,
    precision,
    recall,
)
from ltr.metrics.spec import METRICS

NORMALISED = sorted(set(METRICS) - {"dcg"})
CONVENTIONS = [
    Convention(),
    Convention(empty=0, discount="letor", short="zero"),
    Convention(empty=0.5, gain="linear", relevant=2, map_over="reachable"),
    Convention(empty=0.25, gain=[0, 1, 3, 3, 10]),
]


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def all_items(values: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def slow_value(name: str, y: Sequence[float], k: int | None, c: Convention) -> float:
    """One metric of a list whose labels stand in the order ``y``."""
    n, top = len(y), len(y) if k is None else min(k, len(y))

    def gain(label: float) -> float:
        if not isinstance(c.gain, str):
            return c.gain[int(label)]
        return 2**label - 1 if c.gain == "exp2" else label

    def dcg(labels: Sequence[float], k: int) -> float:
        total = 0.0
        for rank, label in enumerate(labels[:k], 1):
            total += gain(label) / math.log2(1 + rank if c.discount == "log2" else max(rank, 2))
        return total

    ideal = sorted(y, reverse=True)
    hits = [label >= c.relevant for label in y]
    no_gain = dcg(ideal, n) == 0
    assert c.empty != "skip"
    if name == "dcg":
        return dcg(y, top)
    if (not any(hits)) if name in ("map", "mrr", "precision", "recall") else no_gain:
        return float(c.empty)
    if name == "ndcg":
        return 0 if c.short == "zero" and k and n < k else dcg(y, top) / dcg(ideal, top)
    if name == "mean_ndcg":
        return sum(dcg(y, i) / dcg(ideal, i) for i in range(1, top + 1)) / top
    if name == "ndcg_beta":
        best = sum(label * (n - r) for r, label in enumerate(ideal[:top], 1))
        return 1 if n == 1 else sum(label * (n - r) for r, label in enumerate(y[:top], 1)) / best
    if name == "precision":
        return sum(hits[:top]) / (k or n)
    if name == "recall":
        return sum(hits[:top]) / sum(hits)
    if name == "mrr":
        return next((1 / r for r in range(1, top + 1) if hits[r - 1]), 0)
    if name == "map":
        over = min(sum(hits), k) if k and c.map_over == "reachable" else sum(hits)
        return sum(sum(hits[:r]) / r for r in range(1, top + 1) if hits[r - 1]) / over
    assert name == "err"
    total, still = 0.0, 1.0
    for rank, label in enumerate(y[:top], 1):
        satisfied = (2**label - 1) / 2 ** (c.levels - 1)
        total += still * satisfied / rank
        still *= 1 - satisfied
    return total


def orders(scores: Sequence[float], averaged: bool) -> list[list[int]]:
    """The orders of the items by descending score: the stable one, or all of them."""
    stable = sorted(range(len(scores)), key=lambda i: -scores[i])
    if not averaged:
        return [stable]
    tied = [list(same) for _, same in itertools.groupby(stable, key=lambda i: scores[i])]
    every = itertools.product(*(itertools.permutations(same) for same in tied))
    return [list(itertools.chain(*parts)) for parts in every]


def random_lists(
    lengths: Sequence[int], width: int, scores: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores of few values (ties), labels 0-4, some lists empty; NaN on padding anywhere."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((len(lengths), width), dtype=bool)
    for places, n in zip(mask, lengths, strict=True):
        places[rng.choice(width, n, replace=False)] = True
    values = np.where(mask, rng.integers(-scores, scores, mask.shape) / 4.0, np.nan)
    labels = rng.choice([0, 0, 0, 1, 2, 3, 4], mask.shape)
    labels[::5] = 0
    return torch.tensor(values), torch.tensor(np.where(mask, labels, np.nan)), torch.tensor(mask)


def expected(
    name: str, k: int | None, convention: Convention, data: tuple[torch.Tensor, ...]
) -> list[float]:
    found = []
    for s, y, m in zip(*data, strict=True):
        labels = y[m].tolist()
        every = orders(s[m].tolist(), convention.ties == "averaged")
        values = [slow_value(name, [labels[i] for i in order], k, convention) for order in every]
        found.append(sum(values) / len(values))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("convention", CONVENTIONS, ids=range(len(CONVENTIONS)))
def test_agrees_with_slow_formulas(name: str, convention: Convention) -> None:
    data = random_lists([1, 1, 2, 3, 4, 7, 50, 50, 120, 300], 310, scores=20)
    for k in (None, 1, 3, 10, 400):
        found = Metric(name, k)(*data, convention)
        assert found.dtype == torch.float64
        np.testing.assert_allclose(found, expected(name, k, convention, data), atol=1e-12, rtol=0)
        single = Metric(name, k)(data[0].float(), data[1].float(), data[2], convention)
        assert single.dtype == torch.float32
        np.testing.assert_allclose(single, found, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METRICS) - {"err"}))
@pytest.mark.parametrize("convention", CONVENTIONS, ids=range(len(CONVENTIONS)))
def test_averaged_ties_are_the_mean_over_all_orders(name: str, convention: Convention) -> None:
    data = random_lists([1, 2, 3, 5, 6, 6, 6, 6, 7, 7], 8, scores=1, seed=1)
    averaged = Convention(**{**vars(convention), "ties": "averaged"})
    for k in (None, 1, 3, 6):
        found = Metric(name, k)(*data, averaged)
        np.testing.assert_allclose(found, expected(name, k, averaged, data), atol=1e-12, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METRICS) - {"err"}))
def test_averaged_ties_of_long_lists_stay_exact(name: str) -> None:
    """500 items all tied: the mean of 4,000 drawn orders lies within four standard errors."""
    labels = torch.zeros(1, 500, dtype=torch.float64)
    labels[0, :20] = 2
    scores, mask = torch.zeros_like(labels), torch.ones_like(labels, dtype=torch.bool)
    convention = Convention(ties="averaged")
    found = Metric(name, 100)(scores, labels, mask, convention).item()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(4_000, 500, generator=generator, dtype=torch.float64)
    wide = labels.expand(4_000, -1), mask.expand(4_000, -1)
    values = Metric(name, 100)(drawn, *wide, Convention())
    assert found == pytest.approx(values.mean().item(), abs=4 * values.std().item() / 4_000**0.5)


def test_err_refuses_averaged_ties() -> None:
    with pytest.raises(ConfigError, match=r"^err has no averaged ties: leave err out, or set ties"):
        parse_metric("err@5")(row(1), row(1), all_items(row(1)), Convention(ties="averaged"))


@pytest.mark.parametrize("name", METRICS)
def test_another_tie_rule_is_refused(name: str) -> None:
    function = parse_metric(name).function
    with pytest.raises(ConfigError, match=r"^ties=random is not known: choose one of file, ave"):
        function(row(1), row(1), all_items(row(1)), ties="random")


def test_by_hand() -> None:
    # in the order of the scores: labels 0, 2, 0, 1
    scores, labels = row(0.1, 0.9, 0.7, 0.2), row(1, 0, 2, 0)
    data = scores, labels, all_items(scores)
    assert map(*data).item() == (1 / 2 + 2 / 4) / 2
    assert map(*data, k=2).item() == (1 / 2) / 2
    assert map(*data, k=1, map_over="reachable").item() == 0
    assert map(*data, k=2, relevant=2).item() == 1 / 2
    assert mrr(*data).item() == 1 / 2
    assert mrr(*data, k=1).item() == 0
    assert [precision(*data, k=k).item() for k in (1, 2, 4, 8)] == [0, 1 / 2, 2 / 4, 2 / 8]
    assert [recall(*data, k=k).item() for k in (1, 2, 4, 8)] == [0, 1 / 2, 1, 1]
    satisfied = (2**2 - 1) / 2**4, (2**1 - 1) / 2**4
    by_hand = satisfied[0] / 2 + (1 - satisfied[0]) * satisfied[1] / 4
    assert err(*data).item() == pytest.approx(by_hand, abs=1e-15)
    assert ndcg_beta(*data).item() == pytest.approx((2 * 2 + 1 * 0) / (2 * 3 + 1 * 2))
    by_hand = (0 + 3 / (3 + 1) + 3 / (3 + 1) + (3 + 1 / 2) / (3 + 1)) / 4
    assert mean_ndcg(*data, discount="letor").item() == pytest.approx(by_hand, abs=1e-15)


def test_a_list_of_fewer_than_k_items_is_zero_under_letor() -> None:
    data = row(0.9, 0.1), row(1, 0), all_items(row(1, 1))
    assert ndcg(*data, k=2, short="zero").item() == 1
    assert ndcg(*data, k=3, short="zero").item() == 0
    assert ndcg(*data, k=3).item() == 1
    assert ndcg(*data, short="zero").item() == 1
    empty = row(0.9), row(0), all_items(row(1))
    assert ndcg(*empty, k=3, short="zero", empty=0.5).item() == 0.5


def test_gain_tables_look_up_the_label() -> None:
    data = row(0.9, 0.5, 0.1), row(1, 2, 0), all_items(row(1, 1, 1))
    found = ndcg(*data, gain=[0, 2, 7]).item()
    assert found == pytest.approx((2 + 7 / math.log2(3)) / (7 + 2 / math.log2(3)))
    assert ndcg(*data, gain=[0, 1, 3]).item() == ndcg(*data, gain="exp2").item()
    # a gain of grade 0 is not given to padding
    half = torch.tensor([[True, False, True]])
    assert parse_metric("dcg@9")(*data[:2], half, Convention(gain=[1, 1, 1])).item() == (
        pytest.approx(1 + 1 / math.log2(3))
    )
    for labels in (row(0, 3, 0), row(0.5, 0, 0), row(math.nan, 0, 0)):
        with pytest.raises(ConfigError, match=r"^gain=\[0, 2, 7\] has the grades 0 to 2, but othe"):
            ndcg(data[0], labels, data[2], gain=[0, 2, 7])


def test_an_empty_list_is_what_the_convention_says() -> None:
    scores, none, one = row(0.9, 0.5), row(0, 0), row(0, 1)
    for gain, labels, empty in (([1, 2], none, False), ([0, 0, 1], one, True)):
        convention = Convention(gain=gain, empty=0.25)
        assert "= 0.25 (no gain > 0; err, ndcg_beta: no label > 0; map, " in convention.describe()
        found = {
            name: Metric(name)(scores, labels, all_items(scores), convention).item()
            for name in ("ndcg", "mean_ndcg", "err", "ndcg_beta")
        }
        assert {found["ndcg"] == 0.25, found["mean_ndcg"] == 0.25} == {empty}
        assert {found["err"] == 0.25, found["ndcg_beta"] == 0.25} == {labels is none}


WHOLE_LABELS = """
import torch
from ltr.metrics import Metric
from ltr.metrics.spec import METRICS
scores, mask = torch.tensor([[0.9, 0.5, 0.1, 0.3]]), torch.tensor([[True, True, True, False]])
whole = torch.tensor([[1, 0, 2, 9]])
for name in METRICS:
    for given in (scores, scores.double()):
        expected = Metric(name, 2)(given, whole.to(given.dtype), mask)
        assert torch.equal(Metric(name, 2)(given, whole, mask), expected), name
"""


@pytest.mark.slow
def test_whole_labels_may_be_integers() -> None:
    """In a process of its own, where no test tool checks types."""
    done = processes.run(WHOLE_LABELS)
    assert done.returncode == 0, done.stderr


def test_the_ideal_is_computed_as_the_figure_is() -> None:
    labels = torch.rand(200, 30, generator=torch.Generator().manual_seed(0))  # float32
    mask = torch.ones_like(labels, dtype=torch.bool)
    for name in ("ndcg", "mean_ndcg", "ndcg_beta"):
        assert Metric(name)(labels.double(), labels, mask).tolist() == [1.0] * 200


def test_err_of_many_grades_is_finite() -> None:
    scores = row(0.1, 0.3)
    mask = all_items(scores)
    for levels in (128, 129, 1000):
        for dtype in (torch.float32, torch.float64):
            labels = torch.tensor([[levels - 1, 0]], dtype=dtype)
            found = err(scores.to(dtype), labels, mask, levels=levels)
            assert found.item() == pytest.approx(1 / 2)  # satisfied at rank 2
    assert 0 <= err(scores, row(4, 0), mask, levels=1100).item() < 1e-300  # 15 / 2^1099
    assert 0 <= -neural_err_loss(scores, row(4, 0), mask, levels=1100).item() < 1e-300


def test_err_refuses_labels_above_its_grades() -> None:
    with pytest.raises(ConfigError, match=r"^levels=3 means labels up to 2, .* number of grades"):
        err(row(0.1), row(3), all_items(row(1)), levels=3)


@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("name", NORMALISED)
def test_value_of_an_empty_list(name: str, k: int | None) -> None:
    mask = torch.tensor([[True, True], [False, False], [True, True]])
    data = torch.tensor([[0.3, 0.1]] * 3), torch.tensor([[0.0, 0], [1, 1], [1, 0]]), mask
    for empty in (0, 0.5, 1.0):
        found = Metric(name, k)(*data, Convention(empty=empty))
        assert found[:2].tolist() == [empty, empty]
        assert found[2] > 0
    assert Metric(name, k)(*data, Convention(empty="skip")).isnan().tolist() == [True, True, False]
    none = torch.empty(1, 0), torch.empty(1, 0), mask[:1, :0]
    assert Metric(name, k)(*none, Convention(empty=0.5)).tolist() == [0.5]


@pytest.mark.parametrize("ties", ["file", "averaged"])
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_padding_is_never_read(name: str, junk: float, ties: str) -> None:
    if (name, ties) == ("err", "averaged"):
        return
    mask = torch.tensor([[False, True, True, False, True]])
    scores, labels = row(junk, 0.1, 0.9, junk, 0.1), row(junk, 2, 1, junk, 0)
    convention = Convention(ties=ties)
    for k in (None, 2, 4):
        alone = Metric(name, k)(
            scores[mask][None], labels[mask][None], mask[mask][None], convention
        )
        assert torch.equal(Metric(name, k)(scores, labels, mask, convention), alone)


@pytest.mark.parametrize("name", METRICS)
def test_a_nan_score_makes_its_list_nan_and_no_other(name: str) -> None:
    scores = torch.tensor([[0.5, math.nan], [0.5, math.nan], [0.5, 0.1]])
    labels = torch.tensor([[1.0, 0], [0, 0], [1, 0]])
    found = Metric(name, 1)(scores, labels, all_items(scores))
    assert found.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("ties", ["file", "averaged"])
@pytest.mark.parametrize("name", METRICS)
def test_a_nan_label_makes_its_list_nan_and_no_other(name: str, ties: str) -> None:
    scores = torch.tensor([[0.5, 0.1], [0.5, 0.1], [0.5, 0.1]])
    labels = torch.tensor([[1.0, math.nan], [0, math.nan], [1, math.nan]])
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    knobs = {} if name == "err" else {"ties": ties}
    for k in (None, 1):
        found = getattr(metrics, name)(scores, labels, mask, k=k, **knobs)
        assert found.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("name", NORMALISED)
def test_perfect_and_extreme_scores(name: str) -> None:
    labels = row(*[0, 1, 2, 3, 4] * 20)
    best = Metric(name, 10)(labels, labels, all_items(labels)).item()
    for scores in (labels * 1e4, labels * 1e-12 + 1, labels.where(labels > 0, -math.inf)):
        assert Metric(name, 10)(scores, labels, all_items(labels)).item() == best
    assert Metric(name, 10)(-labels, labels, all_items(labels)).item() < best


@pytest.mark.parametrize("k", [1, 3, 10, 15, 30])
def test_sklearn_convention_is_sklearn_with_ties(k: int) -> None:
    rng = np.random.default_rng(k)
    labels, scores = rng.choice([0, 0, 0, 1, 2, 4], (60, 15)), rng.integers(0, 4, (60, 15))
    labels[:3] = 0
    convention = Convention(empty=0, gain="linear", ties="averaged")
    data = torch.tensor(scores).double(), torch.tensor(labels).double()
    values = Metric("ndcg", k)(*data, all_items(data[0]), convention)
    expected = [ndcg_score(y[None], s[None], k=k) for y, s in zip(labels, scores, strict=True)]
    np.testing.assert_allclose(values, expected, atol=1e-12, rtol=0)
    assert mean_over_lists(values, empty=0) == pytest.approx(ndcg_score(labels, scores, k=k))


def test_map_is_sklearn_s_average_precision_without_ties() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, (20, 15)), rng.normal(size=(20, 15))
    labels[:, 0] = 1
    found = map(torch.tensor(scores), torch.tensor(labels).double(), torch.tensor(labels) >= 0)
    expected = [average_precision_score(y, s) for y, s in zip(labels, scores, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12, rtol=0)
