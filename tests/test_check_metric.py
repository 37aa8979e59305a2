"""The battery of metrics: ours hold, each planted fault is caught, and so are wrong names."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ltr.battery import FAILS, HOLDS, METRIC_PROPERTIES, MetricSubject, judge
from ltr.checks.metrics import checked
from ltr.console.compose import typed
from ltr.errors import ConfigError
from ltr.metrics import Metric, err, ndcg
from ltr.metrics.ordering import at_ranks, ranks_like
from ltr.metrics.per_list import settle
from ltr.metrics.spec import METRICS

BY_NAME = {prop.__name__: prop for prop in METRIC_PROPERTIES}
Function = Callable[..., Tensor]


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
def test_a_metric_of_ours_has_every_property(name: str) -> None:
    subject = MetricSubject(Metric(name, 5), most=None if name == "dcg" else 1)
    verdicts = [judge(prop, subject) for prop in METRIC_PROPERTIES]
    assert not [verdict for verdict in verdicts if verdict.outcome == FAILS]
    assert sum(verdict.outcome == HOLDS for verdict in verdicts) >= 21


def precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    *,
    k: int | None = None,
    empty: float | str = 1.0,
    relevant: float = 1,
) -> Tensor:
    """A right one: the share of relevant items among the first k; the faults are made from it."""
    hit = ((labels >= relevant) & mask).to(torch.promote_types(scores.dtype, torch.float32))
    found = at_ranks(hit, scores, mask)[:, :k].sum(-1) / (k or mask.sum(-1).clamp(min=1))
    return settle(found, scores, mask, without=~hit.any(-1), empty=empty)


def coupled(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return precision(scores, labels, mask) / precision(scores, labels, mask).amax()


def of_padding(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return precision(scores, labels, torch.ones_like(mask))


def upside_down(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None) -> Tensor:
    return precision(-scores, labels, mask, k=k)


def in_file_order(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return precision(-ranks_like(scores).expand_as(scores).double(), labels, mask, k=2)


def constant(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return 0 * ndcg(scores, labels, mask) + 0.5


def of_score_sizes(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return (weights * (labels.masked_fill(~mask, 0) >= 1)).sum(-1)


def ties_from_behind(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = 2) -> Tensor:
    return precision(scores.flip(-1), labels.flip(-1), mask.flip(-1), k=k)


def averaged_is_file(
    scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None, ties: str = "file"
) -> Tensor:
    return ndcg(scores, labels, mask, k=k)


def k_ignored(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None) -> Tensor:
    return precision(scores, labels, mask, k=3)


def k_crashes(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None) -> Tensor:
    found = labels.masked_fill(~mask, 0).gather(-1, scores.topk(k or scores.shape[-1]).indices)
    return found.mean(-1) / 4


def empty_ignored(
    scores: Tensor, labels: Tensor, mask: Tensor, *, empty: float | str = 1.0
) -> Tensor:
    return ndcg(scores, labels, mask, empty=0)


def empty_for_low(
    scores: Tensor, labels: Tensor, mask: Tensor, *, empty: float | str = 1.0
) -> Tensor:
    low = labels.masked_fill(~mask, 0).amax(-1) < 3
    return settle(ndcg(scores, labels, mask), scores, mask, without=low, empty=empty)


def relevant_ignored(
    scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None, relevant: float = 1
) -> Tensor:
    return precision(scores, labels, mask, k=k)


def levels_ignored(scores: Tensor, labels: Tensor, mask: Tensor, *, levels: int = 5) -> Tensor:
    return err(scores, labels, mask, levels=9)


def gain_ignored(scores: Tensor, labels: Tensor, mask: Tensor, *, gain: str = "exp2") -> Tensor:
    return ndcg(scores, labels, mask)


def nan_ranked(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = 2) -> Tensor:
    return precision(scores.nan_to_num(), labels, mask, k=k)


def rounded(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = 2) -> Tensor:
    return precision(scores.float(), labels, mask, k=k).double()


def drawn(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return precision(scores + 1e-6 * torch.rand_like(scores), labels, mask, k=2)


def in_percent(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return 100 * ndcg(scores, labels, mask)


def changing(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return ndcg(scores, labels.clamp_(max=1), mask)


def one_number(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return ndcg(scores, labels, mask).mean()


def nan_where_none(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    hit = ((labels >= 1) & mask).double()
    return at_ranks(hit, scores, mask)[:, :3].sum(-1) / hit.sum(-1)


CAUGHT: dict[Function, tuple[str, str]] = {
    one_number: ("there_is_one_value_per_list", "returned shape []"),
    in_percent: ("values_are_between_the_bounds", "most=null"),
    upside_down: ("no_order_is_better_than_that_of_the_labels", "in the best order"),
    constant: ("no_order_is_better_than_that_of_the_labels", "the scores are not used"),
    in_file_order: ("the_order_of_the_items_means_nothing", "given in another order"),
    of_score_sizes: ("a_monotone_transform_of_the_scores_changes_nothing", "3 s + 7"),
    of_padding: ("padding_is_never_read", "padding is read"),
    coupled: ("lists_do_not_see_each_other", "of the lists beside it"),
    ties_from_behind: ("tied_scores_stand_in_file_order_or_share_ranks", "wrong tie rule"),
    averaged_is_file: ("averaged_ties_are_the_mean_over_all_orders", "to ties=averaged"),
    k_ignored: ("the_cutoff_is_honoured", "k is ignored"),
    k_crashes: ("a_cutoff_beyond_the_list_is_none", "crashed"),
    empty_ignored: ("an_empty_list_counts_what_the_convention_says", "counts 0 under empty=0.5"),
    empty_for_low: ("an_empty_list_counts_what_the_convention_says", "is not empty"),
    relevant_ignored: ("labels_below_relevant_do_not_count", "relevant=2"),
    levels_ignored: ("the_number_of_grades_is_read", "ignored"),
    gain_ignored: ("a_table_of_gains_is_looked_up", "ignored"),
    nan_ranked: ("a_score_of_nan_makes_its_list_nan_and_no_other", "give NaN"),
    rounded: ("float64_is_not_rounded", "digits are lost"),
    drawn: ("nothing_is_drawn", "it draws"),
    changing: ("inputs_are_left_as_they_are", "the labels were changed"),
    nan_where_none: ("degenerate_lists_are_defined_in_float64", "nan for an empty list"),
}


@pytest.mark.parametrize("fault", CAUGHT, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_caught(fault: Function) -> None:
    prop, seen = CAUGHT[fault]
    assert judge(BY_NAME[prop], MetricSubject(Metric("right", own=precision))).outcome != FAILS
    verdict = judge(BY_NAME[prop], MetricSubject(Metric("own", own=fault)))
    assert verdict.outcome == FAILS, verdict
    assert seen in verdict.seen
    assert "\n" not in verdict.seen


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "mine.py").write_text(
        "from ltr.metrics import ndcg\n"
        "def twice(scores, labels, mask, *, times=2.0):\n"
        "    return times * ndcg(scores, labels, mask)\n"
    )
    (tmp_path / "configs" / "metric").mkdir(parents=True)
    (tmp_path / "configs/metric/double.yaml").write_text("_target_: mine.twice\ntimes: 2.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mine", None)


@pytest.mark.slow
def test_a_metric_is_named_by_its_file_or_its_function(here: None) -> None:
    text, sound = checked(typed("check_metric", ["double"]))
    assert not sound
    assert "most=null" in text
    assert checked(typed("check_metric", ["mine.twice", "most=null", "grades=2"]))[1]
    assert checked(typed("check_metric", ["double", "times=1"]))[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ndgc@5", "'ndgc@5' is not a metric"),
        ("ndcg@5 k=3", "k: the battery tries"),
        ("double@5", "double@5: the function takes no k: write double"),
        ("double time=3", "time: double has no such knob; it has times"),
        ("mine.thrice", "mine has no thrice; it has twice"),
        ("mine.gone.f", "there is no module mine.gone"),
        ("ndcg grades=1", "grades=1: give a whole number >= 2"),
        ("ndcg most=much", "most=much: give a number"),
    ],
)
def test_a_mistake_is_one_line(here: None, arguments: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked(typed("check_metric", arguments.split()))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
