"""Metrics: hand arithmetic, independent computations, the official LETOR figures."""

import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_metric_family import slow_values

from ltr.errors import ConfigError
from ltr.metrics import Convention, Metric, dcg, mean_over_lists, ndcg, parse_metric
from ltr.metrics.ordering import rank_of_item


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def all_items(values: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def test_dcg_by_hand() -> None:
    scores, labels = row(0.1, 0.9, 0.5), row(2, 1, 0)
    # ranked: label 1, label 0, label 2
    whole = (2**1 - 1) / math.log2(1 + 1) + (2**2 - 1) / math.log2(1 + 3)
    assert dcg(scores, labels, all_items(scores)).item() == pytest.approx(whole, abs=1e-15)
    assert dcg(scores, labels, all_items(scores), k=2).item() == 1 / math.log2(1 + 1)
    linear = dcg(scores, labels, all_items(scores), gain="linear").item()
    assert linear == pytest.approx(1 + 2 / math.log2(1 + 3))
    letor = dcg(scores, labels, all_items(scores), discount="letor").item()
    assert letor == pytest.approx(1 + 3 / math.log2(3))


def test_letor_discount_is_one_at_ranks_one_and_two() -> None:
    labels = row(1, 1, 1, 1)
    found = [
        dcg(-row(1, 2, 3, 4), labels, all_items(labels), k=k, discount="letor") for k in (1, 2, 4)
    ]
    assert [value.item() for value in found] == pytest.approx([1, 2, 2 + 1 / math.log2(3) + 1 / 2])


def test_ndcg_by_hand() -> None:
    scores, labels = row(0.1, 0.9, 0.5), row(2, 1, 0)
    ideal = 3 + 1 / math.log2(1 + 2)
    whole = (1 + 3 / math.log2(1 + 3)) / ideal
    assert ndcg(scores, labels, all_items(scores)).item() == pytest.approx(whole, abs=1e-15)
    assert ndcg(scores, labels, all_items(scores), k=1).item() == pytest.approx(1 / 3, abs=1e-15)
    # the ideal list is cut at k too
    assert ndcg(scores, labels, all_items(scores), k=2).item() == pytest.approx(1 / ideal)
    assert ndcg(scores, labels, all_items(scores), k=99).item() == pytest.approx(whole, abs=1e-15)


def test_ties_keep_the_order_given() -> None:
    scores = torch.zeros(1, 100)
    labels = torch.zeros(1, 100)
    labels[0, 36] = 1
    assert ndcg(scores, labels, all_items(scores)).item() == pytest.approx(1 / math.log2(1 + 37))
    assert rank_of_item(scores, all_items(scores)).tolist() == [list(range(1, 101))]


def test_an_item_scored_minus_infinity_stands_before_the_padding() -> None:
    mask = torch.tensor([[False, True, True]])
    found = ndcg(row(-math.inf, -math.inf, 0), row(9, 1, 0), mask)
    assert found.item() == pytest.approx(1 / math.log2(1 + 2))


def test_skipped_lists_leave_the_mean() -> None:
    labels = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    values = ndcg(torch.tensor([[0.3, 0.1]] * 3), labels, all_items(labels), empty="skip")
    assert values[0].isnan()
    assert mean_over_lists(values) == pytest.approx((1 / math.log2(1 + 2) + 1) / 2)
    assert math.isnan(mean_over_lists(values[:1]))
    assert math.isnan(mean_over_lists(values[:0]))


def test_mean_is_taken_in_float64() -> None:
    values = torch.full((100_000,), 0.1)
    assert mean_over_lists(values) == pytest.approx(float(values[0]), rel=1e-13)


def test_mean_does_not_hide_a_model_that_broke_down() -> None:
    assert math.isnan(mean_over_lists(torch.tensor([1.0, math.nan]), empty=1.0))
    assert mean_over_lists(torch.tensor([1.0, math.nan]), empty="skip") == 1


def test_bad_knobs_end_with_the_remedy() -> None:
    data = row(1.0), row(1.0), all_items(row(1.0))
    with pytest.raises(ConfigError, match=r"^k=0 is not a cutoff: write an integer k >= 1"):
        ndcg(*data, k=0)
    with pytest.raises(
        ConfigError, match=r"^gain=exp is not known: choose one of exp2, linear, or"
    ):
        dcg(*data, gain="exp")
    with pytest.raises(ConfigError, match=r"^discount=ln is not known: choose one of log2, letor$"):
        dcg(*data, discount="ln")
    for empty in (2.0, -1, math.nan, "drop"):
        with pytest.raises(ConfigError, match=r"write a number from 0 to 1, or skip$"):
            ndcg(*data, empty=empty)


@pytest.mark.parametrize(
    "text", ["ndcg", "ndcg@5", "dcg@100", "mean_ndcg", "map@3", "ndcg_beta", "a.b2.C@7"]
)
def test_metric_names_round_trip(text: str) -> None:
    assert str(parse_metric(text)) == text
    assert parse_metric(str(parse_metric(text))) == parse_metric(text)


MISSPELT = [
    *("ndgc@5", "ndcg@0", "ndcg@-1", "ndcg@", "ndcg@5.0", "NDCG@5", "ndcg_5", "ndcg@05"),
    *("", "ndcg @5", "ndcg@5\n", "ndcg@\N{ARABIC-INDIC DIGIT FIVE}"),
]


@pytest.mark.parametrize("text", MISSPELT)
def test_misspelt_metric_says_how_to_write_it(text: str) -> None:
    expected = (
        f"'{text}' is not a metric: write <name> or <name>@<k> with k >= 1, name one of dcg, "
        "ndcg, mean_ndcg, ndcg_beta, map, mrr, precision, recall, err, a file of your own "
        "configs/metric, or <module>.<function> of your own"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        parse_metric(text)


def test_metric_checks_what_it_is_made_of() -> None:
    with pytest.raises(ConfigError, match="'auc' is not a metric"):
        Metric("auc")
    for k in (0, 10**18):
        with pytest.raises(ConfigError, match=f"k={k} is not a cutoff"):
            Metric("ndcg", k)


def test_metric_applies_cutoff_and_convention() -> None:
    data = row(0.1, 0.9, 0.5, 0.4), row(2, 1, 0, 3), all_items(row(0, 0, 0, 0))
    convention = Convention(gain="linear", discount="letor")
    assert torch.equal(parse_metric("ndcg@2")(*data), ndcg(*data, k=2))
    assert torch.equal(parse_metric("ndcg")(*data), ndcg(*data))
    for name, function in (("ndcg", ndcg), ("dcg", dcg)):
        found = parse_metric(f"{name}@3")(*data, convention)
        assert torch.equal(found, function(*data, k=3, gain="linear", discount="letor"))
        assert not torch.equal(found, function(*data, k=3))
    empty = row(0.0, 0.0), row(0.0, 0.0), all_items(row(0, 0))
    assert parse_metric("ndcg")(*empty, Convention(empty=0.5)).item() == 0.5


def test_convention_describes_itself() -> None:
    assert Convention().describe() == (
        "empty list = 1 (no label > 0; map, mrr, precision, recall: none relevant), "
        "gain 2^y-1, discount 1/log2(1+rank), ties in file order, short lists "
        "scored, relevant from label 1, map@k over all relevant items, 5 grades"
    )
    other = Convention("skip", [0, 1, 2.5], "letor", "averaged", "zero", 2, "reachable", 3)
    assert other.describe() == (
        "empty lists left out (no label > 0; map, mrr, precision, recall: none relevant), "
        "gains [0, 1, 2.5], discount 1 at ranks 1 and 2, then 1/log2(rank), "
        "ties averaged over their orders, ndcg@k of fewer than k items = 0, relevant from label 2, "
        "map@k over at most k relevant items, 3 grades"
    )
    assert hash(other) == hash(replace(other, gain=(0, 1, 2.5)))


@pytest.mark.parametrize(
    ("knob", "value", "message"),
    [
        ("gain", "2", r"^gain=2 is not known: choose one of exp2, linear, or write a list of"),
        ("gain", [0], r"^gain=\[0\] is not a table of gains: write a list of gains such as"),
        ("gain", [0, 2, 1], r"^gain=\[0, 2, 1\] is not a table of gains"),
        ("gain", [-1, 2], r"^gain=\[-1, 2\] is not a table of gains"),
        ("discount", "2", r"^discount=2 is not known: choose one of log2, letor$"),
        ("ties", "random", r"^ties=random is not known: choose one of file, averaged$"),
        ("short", "0", r"^short=0 is not known: choose one of scored, zero$"),
        ("relevant", 0, r"^relevant=0 is out of range: write a finite number above 0$"),
        pytest.param(
            "relevant",
            10**400,
            r"^relevant=10+ is out of range: write a finite number above 0$",
            id="relevant-long",
        ),
        ("map_over", "k", r"^map_over=k is not known: choose one of relevant, reachable$"),
        ("levels", 1, r"^levels=1 is not a number of grades: write an integer >= 2"),
        pytest.param(
            "levels",
            10**400,
            r"^levels=10+ is not a number of grades: write an integer >= 2",
            id="levels-long",
        ),
        ("empty", "one", r"^empty=one is not a value of an empty list: write a number from 0 to"),
    ],
)
def test_a_convention_checks_its_values(knob: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Convention(**{knob: value})  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_convention_checks_the_types_of_its_values() -> None:
    """In a process of its own, where no test tool checks them first."""
    wrong = [
        ("gain", ["a", "b"]),
        ("gain", None),
        ("gain", 2),
        ("relevant", "one"),
        ("empty", None),
    ]
    code = (
        "from ltr.errors import ConfigError; from ltr.metrics import Convention\n"
        f"for knob, value in {[*wrong, ('short', 0), ('levels', '5'), ('discount', None)]!r}:\n"
        "    try: Convention(**{knob: value})\n"
        "    except ConfigError as error: assert str(error).startswith(f'{knob}={value} is ')\n"
        "    else: raise AssertionError((knob, value))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


@pytest.mark.slow
def test_a_config_can_be_checked_without_torch() -> None:
    code = (
        "import sys; from ltr.metrics import Convention, parse_metric; parse_metric('ndcg@5'); "
        "Convention().describe(); assert 'torch' not in sys.modules; "
        "from ltr.metrics import ndcg, dcg, mean_over_lists; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


DATA = Path(os.environ.get("LTR_DATA_DIR", ""))
OFFICIAL = DATA.parent / "reference" / "letor4_eval"
official = pytest.mark.skipif(
    "LTR_DATA_DIR" not in os.environ or not OFFICIAL.is_dir() or not (DATA / "MQ2008").is_dir(),
    reason="LTR_DATA_DIR does not name MQ2008 with the official evaluation beside it",
)


def read_official(prediction: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, labels and mask ``[lists, longest]`` of an official prediction file."""
    fold = prediction.name.split(".")[1]
    lists: dict[str, list[tuple[float, float]]] = {}
    rows = (DATA / "MQ2008" / fold / "test.txt").read_text().splitlines()
    for line, score in zip(rows, prediction.read_text().split(), strict=True):
        label, qid, _ = line.split(maxsplit=2)
        lists.setdefault(qid, []).append((float(score), float(label)))
    values = torch.zeros(2, len(lists), max(map(len, lists.values())), dtype=torch.float64)
    mask = torch.zeros(values.shape[1:], dtype=torch.bool)
    for i, items in enumerate(lists.values()):
        values[:, i, : len(items)] = torch.tensor(items, dtype=torch.float64).T
        mask[i, : len(items)] = True
    return values[0], values[1], mask


LETOR4 = Convention(empty=0, discount="letor", short="zero", levels=3)
OFFICIAL_NAMES = {"NDCG": "ndcg", "P": "precision", "MeanNDCG": "mean_ndcg", "MAP": "map"}


@official
def test_official_letor_figures() -> None:
    predictions = sorted(OFFICIAL.glob("MQ2008.*.pred.txt"))
    assert predictions
    for prediction in predictions:
        data = read_official(prediction)
        figures = prediction.with_name(prediction.name.replace(".pred.", ".perf.")).read_text()
        printed: dict[str, str] = {}
        for table in figures.strip().split("\n\n"):
            head, average = (line.split() for line in table.splitlines()[:2])
            printed |= dict(zip(head[1:], average[1:], strict=True))
        assert len(printed) == 22
        for name, figure in printed.items():
            ours = "@".join([OFFICIAL_NAMES[name.partition("@")[0]], *name.split("@")[1:]])
            found = mean_over_lists(parse_metric(ours)(*data, LETOR4), empty=0)
            assert f"{found:.4f}" == figure, (prediction.name, name)


@official
def test_official_predictions_under_the_paper_convention() -> None:
    for prediction in sorted(OFFICIAL.glob("MQ2008.*.pred.txt")):
        scores, labels, mask = read_official(prediction)
        for k in (5, 10, 1000):
            found = ndcg(scores, labels, mask, k=k)
            expected = slow_values("ndcg", k, Convention(), (scores, labels, mask))
            np.testing.assert_allclose(found.numpy(), expected, atol=1e-12, rtol=0)
