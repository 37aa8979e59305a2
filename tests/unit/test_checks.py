"""The property checks: ours hold, each planted fault is caught; and their commands."""

import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ltr.__main__ import main
from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.errors import ConfigError
from ltr.metrics import Metric, err, ndcg
from ltr.metrics.ordering import at_ranks
from ltr.metrics.per_list import settle
from ltr.metrics.spec import METRICS
from ltr.models import ContextAwareTransformer
from ltr.testing.command import check_loss, check_metric, check_model
from ltr.testing.loss_properties import LOSS_PROPERTIES, METRIC_PROPERTIES, SHARP_LIMIT_OF
from ltr.testing.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.testing.subject import DOES_NOT_APPLY, FAILS, HOLDS, Subject, Verdict, judge
from tests.helpers.folders import refused, write_folder
from tests.helpers.planted_faults import FAULTS

LOSS, METRIC, MODEL = (
    {prop.__name__: prop for prop in properties}
    for properties in (LOSS_PROPERTIES, METRIC_PROPERTIES, MODEL_PROPERTIES)
)


def expect_caught(verdict: Verdict, seen: str) -> None:
    assert verdict.outcome == FAILS, verdict
    assert seen in verdict.seen
    assert "\n" not in verdict.seen


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_loss_properties_catch_a_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    prop = LOSS[fault.caught_by]
    metric = SHARP_LIMIT_OF.get(fault.right.__name__)
    verdict = judge(prop, Subject(fault.right, metric=metric))
    assert verdict.outcome == HOLDS, verdict.seen
    for target, value in fault.puts.items():
        monkeypatch.setattr(target, value)
    expect_caught(judge(prop, Subject(fault.wrong, metric=metric)), fault.seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
def test_metric_properties_hold_for_every_metric(name: str) -> None:
    subject = Subject.of_metric(Metric(name, 5), upper=float("inf") if name == "dcg" else 1)
    verdicts = [judge(prop, subject) for prop in METRIC_PROPERTIES]
    assert not [verdict for verdict in verdicts if verdict.outcome == FAILS]
    assert sum(verdict.outcome == HOLDS for verdict in verdicts) >= 15


def precision(scores, labels, mask, *, k=None, empty=1.0, relevant=1) -> Tensor:
    """A right metric: the share of relevant items among the first k, without a fault."""
    hits = ((labels >= relevant) & mask).to(torch.promote_types(scores.dtype, torch.float32))
    values = at_ranks(hits, scores, mask)[:, :k].sum(-1) / (k or mask.sum(-1).clamp(min=1))
    return settle(values, scores, mask, without=~hits.any(-1), empty=empty)


def real(x: Tensor, mask: Tensor, fill: float = 0) -> Tensor:
    return x.masked_fill(~mask, fill)


# Property, a part of its message, and the metric it catches; faults of losses are tried above.
WRONG_METRICS = [
    ("values_are_between_the_bounds", "most=null", lambda s, y, m: 100 * ndcg(s, y, m)),
    ("no_order_is_better_than_that_of_the_labels", "but the best order",
     lambda s, y, m, *, k=None: precision(-s, y, m, k=k)),
    ("no_order_is_better_than_that_of_the_labels", "the scores are not used",
     lambda s, y, m: 0 * ndcg(s, y, m) + 0.5),
    ("a_monotone_transform_of_the_scores_changes_nothing", "3 s + 7",
     lambda s, y, m: (real(s, m, -torch.inf).softmax(-1) * (real(y, m) >= 1)).sum(-1)),
    ("averaged_ties_are_the_mean_over_all_orders", "and ties=averaged",
     lambda s, y, m, *, k=None, ties="file": ndcg(s, y, m, k=k)),
    ("the_cutoff_is_honoured", "k is ignored",
     lambda s, y, m, *, k=None: precision(s, y, m, k=3)),
    ("an_empty_list_counts_what_the_convention_says", "gives 0 with empty=0.5",
     lambda s, y, m, *, empty=1.0: ndcg(s, y, m, empty=0)),
    ("an_empty_list_counts_what_the_convention_says", "it has a relevant item",
     lambda s, y, m, *, empty=1.0: settle(
         ndcg(s, y, m), s, m, without=real(y, m).amax(-1) < 3, empty=empty)),
    ("labels_below_relevant_do_not_count", "relevant=2",
     lambda s, y, m, *, k=None, relevant=1: precision(s, y, m, k=k)),
    ("what_the_convention_says_is_read", "levels=6 changed no value",
     lambda s, y, m, *, levels=5: err(s, y, m, levels=9)),
    ("what_the_convention_says_is_read", "ignored", lambda s, y, m, *, gain="exp2": ndcg(s, y, m)),
    ("a_score_of_nan_makes_its_list_nan_and_no_other", "return NaN",
     lambda s, y, m, *, k=2: precision(s.nan_to_num(), y, m, k=k)),
    ("a_monotone_transform_of_the_scores_changes_nothing", "1 + 1e-12 s",
     lambda s, y, m, *, k=2: precision(s.float(), y, m, k=k).double()),
    ("nothing_is_drawn", "it draws",
     lambda s, y, m: precision(s + 1e-6 * torch.rand_like(s), y, m, k=2)),
]  # fmt: skip


@pytest.mark.parametrize(("prop", "seen", "wrong"), WRONG_METRICS)
def test_metric_properties_catch_a_fault(prop: str, seen: str, wrong: Any) -> None:
    right = Subject.of_metric(Metric("right", own=precision))
    assert judge(METRIC[prop], right).outcome != FAILS
    expect_caught(judge(METRIC[prop], Subject.of_metric(Metric("own", own=wrong))), seen)


class Right(nn.Module):
    """A right pointwise model; the wrong ones are derived from it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 4)
        self.last = nn.Linear(4, 1)
        self.offset = torch.randn(())  # no buffer: it is not saved

    def scored(self, features: Tensor, mask: Tensor) -> Tensor:
        hidden = self.inner(features.masked_fill(~mask[..., None], 0)).tanh()
        return self.last(hidden).squeeze(-1).masked_fill(~mask, 0)

    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
        return self.scored(features, mask)


class Unused(Right):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.spare = nn.Linear(width, 4)


class OwnSeed(Right):
    built = 0

    def __init__(self, width: int) -> None:
        super().__init__(width)
        OwnSeed.built += 1
        nn.init.constant_(self.last.bias, OwnSeed.built)


class Leak(torch.autograd.Function):
    """A clearing of padding whose backward gives padding a gradient."""

    forward = staticmethod(lambda ctx, x, mask: x.masked_fill(~mask[..., None], 0))
    backward = staticmethod(lambda ctx, grad: (grad + 1, None))


def without_its_mean(scores: Tensor, mask: Tensor, share: float = 1) -> Tensor:
    return real(scores - share * scores[mask].mean(), mask)


# Property, a part of its message, and the forward (or class) it catches.
WRONG_MODELS = [
    ("evaluation_is_deterministic", "expected one score per item, [4, 9]",
     lambda my, x, m, r: my.inner(x)),
    ("padding_is_never_read", "masked_fill", lambda my, x, m, r: my.scored(x, m) - 1e9 * ~m),
    ("padding_is_never_read", "padding is read",
     lambda my, x, m, r: my.scored(x, m) + (0 if torch.is_grad_enabled() else 0 * x.sum())),
    ("training_sees_each_list_alone", "in training mode",  # as batch norm is
     lambda my, x, m, r: without_its_mean(my.scored(x, m), m, my.training)),
    ("the_gradient_is_finite_and_reaches_every_parameter", "nan with NaN on padding",
     lambda my, x, m, r: real(my.last(my.inner(x).tanh()).squeeze(-1), m)),
    ("the_gradient_is_finite_and_reaches_every_parameter", "with respect to the features",
     lambda my, x, m, r: my.scored(Leak.apply(x, m), m)),
    ("the_gradient_is_finite_and_reaches_every_parameter", "reaches spare.weight", Unused),
    ("lists_of_any_size_are_scored", "of a list of 1 items", lambda my, x, m, r: (
        my.scored(x, m) / my.scored(x, m).std(-1, correction=0, keepdim=True))),
    ("evaluation_is_deterministic", "at a second call",
     lambda my, x, m, r: nn.functional.dropout(my.scored(x, m), 0.5)),
    ("the_state_dict_holds_the_model", "register a buffer",
     lambda my, x, m, r: real(my.scored(x, m) + my.offset, m)),
    ("a_seed_gives_the_model", "with the same seed", OwnSeed),
]  # fmt: skip


@pytest.mark.parametrize(("prop", "seen", "wrong"), WRONG_MODELS)
def test_model_properties_catch_a_fault(prop: str, seen: str, wrong: Any) -> None:
    assert judge(MODEL[prop], ModelSubject(Right)).outcome == HOLDS
    kind = wrong if isinstance(wrong, type) else type("Wrong", (Right,), {"forward": wrong})
    expect_caught(judge(MODEL[prop], ModelSubject(kind)), seen)


def test_model_properties_allow_declared_batch_statistics_in_training() -> None:
    class Declared(Right):
        batch_statistics = True

        def forward(self, features: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
            return without_its_mean(self.scored(features, mask), mask, self.training)

    class AlwaysTraining(Declared):
        def train(self, mode: bool = True) -> "AlwaysTraining":
            return super().train()  # in evaluation too

    alone = MODEL["lists_do_not_see_each_other"]
    assert judge(MODEL["training_sees_each_list_alone"], ModelSubject(Declared)).outcome == HOLDS
    assert judge(alone, ModelSubject(Declared)).outcome == HOLDS
    assert judge(alone, ModelSubject(AlwaysTraining)).outcome == FAILS


def test_model_properties_say_what_kind_a_model_is() -> None:
    small: dict[str, Any] = {"fc_sizes": (8,), "feed_forward": 8, "blocks": 1}
    plain, positions = (
        ModelSubject(partial(ContextAwareTransformer, position=position, **small))
        for position in (None, "fixed")
    )
    verdict = judge(MODEL["an_item_is_scored_by_its_own_features_alone"], plain)
    assert (verdict.outcome, "list-aware" in verdict.seen) == (DOES_NOT_APPLY, True)
    ranks = MODEL["the_given_ranks_mean_nothing"]
    assert judge(ranks, plain).outcome == HOLDS
    assert "positions" in judge(ranks, positions).seen
    assert judge(MODEL["the_order_of_the_items_means_nothing"], positions).outcome == HOLDS


MINE = """
from ltr.metrics import ndcg
from ltr.models import Linear

def squared(scores, labels, mask, *, power=2.0):
    error = (scores - labels).masked_fill(~mask, 0)
    return error.abs().pow(power).sum(-1) / mask.sum(-1).clamp(min=1)

def coupled(scores, labels, mask):
    scale = scores.masked_fill(~mask, 0).abs().amax().clamp(min=1e-6)
    return squared(scores / scale, labels, mask)

def crashing(scores, labels, mask):
    raise KeyError("no\\nsuch thing")

def risen(scores, labels, mask):
    return -squared(scores, labels, mask)

def binary(scores, labels, mask):
    assert (labels[mask] <= 1).all(), "labels are 0 or 1"
    return squared(scores, labels, mask)

def two(prediction, target): ...
number = 3

def twice(scores, labels, mask, *, times=2.0):
    return times * ndcg(scores, labels, mask)

class Stepped(Linear):
    def __init__(self, width, *, step=0.0):
        super().__init__(width)
        self.step = step
    def forward(self, features, mask, ranks=None):
        return super().forward(features, mask, ranks) + self.step  # on padding too
"""


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a user's own code, in which commands run."""
    double = "_target_: mine.twice\ntimes: 2.0\n"
    write_folder(tmp_path, {"mine.py": MINE, "configs/metric/double.yaml": double})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mine", None)


def verdicts(kind: str, arguments: str) -> tuple[str, bool]:
    command = {"loss": check_loss, "metric": check_metric, "model": check_model}[kind]
    return call_command(command, typed(f"check_{kind}", arguments.split()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "arguments", "sound", "expected"),
    [
        ("loss", "neuralndcg k=3 tol=1e-3", True, "19 properties: 18 hold, 0 fail, 1 do not apply"),
        ("loss", "mine.squared power=1.5", True, "it has no knob named k"),
        ("loss", "mine.crashing", False, "3 lists padded to 8 items: KeyError: 'no\\nsuch thing'"),
        ("loss", "mine.binary grades=2", True, " 0 fail"),
        ("loss", "mine.risen", False, "when the order gets better: the sign is wrong"),
        ("loss", "mine.binary", False, "labels are 0 or 1"),
        ("loss", "metric=map neuralndcg k=5", False, "between minus map and the loss at k=None"),
        ("metric", "double", False, "most=null"),
        ("metric", "mine.twice most=null grades=2", True, " 0 fail"),
        ("metric", "double times=1", True, "19 properties"),
        ("model", "mine.Stepped step=0.1", False, "the score on padding is not 0"),
        ("model", "mlp", True, "the model is pointwise"),
    ],
)
def test_check_commands_print_verdicts(
    user_folder: None, kind: str, arguments: str, sound: bool, expected: str
) -> None:
    text, holds = verdicts(kind, arguments)
    assert holds == sound, text
    assert expected in " ".join(text.split())


@pytest.mark.slow
def test_check_commands_refuse_a_mistake_in_one_line(user_folder: None) -> None:
    for kind, arguments, expected in (
        ("loss", "neuralndgc", "neuralndgc: no such loss: choose one of approxndcg,"),
        ("loss", "nowhere.loss", "No module named 'nowhere'): write module.function"),
        (
            "loss",
            "mine.number",
            "mine.number: expected a function or a class, got a value of the type int",
        ),
        ("loss", "mine.two", "mine.two: too many positional arguments"),
        ("loss", "mine.squared pover=1", "unexpected keyword argument 'pover'"),
        ("loss", "neuralndcg k=0", "k=0 is not a cutoff rank: write an integer k >= 1, or null"),
        ("loss", "neuralndcg metric=ndgc", "metric=ndgc: choose one of dcg, ndcg, "),
        ("metric", "ndgc@5", "'ndgc@5' is not a metric"),
        (
            "metric",
            "double@5",
            "double@5 has a cutoff, but its function has no parameter k: write double",
        ),
        ("model", "mlp dropout=2", "dropout=2 is out of range"),
        ("model", "adarank", "adarank is fitted in rounds"),
        ("model", "mine.Stepped stop=3", "Stepped got an unexpected keyword argument 'stop'"),
    ):
        message = refused(lambda a=arguments, k=kind: verdicts(k, a), ConfigError)
        assert expected in message


@pytest.mark.slow
def test_check_loss_ends_with_status_1_if_a_property_fails(
    user_folder, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ltr", "check_loss", "mine.coupled"])
    # it would be this process that a stop ends
    monkeypatch.setattr("ltr.__main__.end_when_stopped", lambda: None)
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (1, "")
    assert re.search("(?m)^FAILS .*lists do not see each other.*list 0, item 0, changed from", out)
