"""Properties of a metric: bounds, the best order, ties, cutoffs and the keys of the convention.

Each public function here is one; ``METRIC_PROPERTIES`` adds those that a metric shares with a loss.
"""

import math
from functools import partial
from itertools import permutations

import torch
from torch import Tensor

from ltr.checks import loss_properties as shared
from ltr.checks.subject import (
    Broken,
    DoesNotApply,
    Measured,
    Subject,
    expect_close,
    expect_different,
    expect_finite,
    in_score_order,
    padded,
    properties_of,
    ragged,
    seeded,
)
from ltr.errors import ConfigError
from ltr.metrics import Convention, Metric

_CUTOFFS = (None, 1, 2, 3, 10)


class MetricSubject(Subject):
    """A metric as the project calls it: with every key of the convention that it takes.

    Attributes:
        least, most: the bounds of its values; None: there is none.
    """

    def __init__(
        self,
        metric: Metric,
        *,
        grades: int = 5,
        least: float | None = 0.0,
        most: float | None = 1.0,
    ) -> None:
        convention = Convention(levels=grades)
        knobs = {name: getattr(convention, name) for name in metric.parts}
        if metric.k is not None:
            knobs["k"] = metric.k
        super().__init__(partial(metric.function, **knobs), grades=grades)
        self.least = -math.inf if least is None else least
        self.most = math.inf if most is None else most

    def measure(self, scores: Tensor, labels: Tensor, mask: Tensor, *, seed: int = 0) -> Measured:
        """The values; a metric has no gradient, and 0 stands for it."""
        with seeded(seed):
            found = self.value(scores, labels, mask)
        value = found.detach() if found.is_floating_point() else found.to(scores.dtype)
        return Measured(value, torch.zeros_like(scores))

    def ranked(self, rows: list[list[int]]) -> Tensor:
        """The values of lists whose labels stand in the order of the scores, ``[batch]``."""
        return self.measure(*in_score_order(rows)).value

    def expect_read(self, *data: Tensor, **knob: object) -> Tensor:
        """The values under another value of a knob; ``Broken`` if they are the same."""
        found = self.with_knobs(**knob).measure(*data).value
        if torch.equal(found, self.measure(*data).value):
            ((name, value),) = knob.items()
            raise Broken(
                f"{name}={value} gave the same values as {self.knobs[name]}: it is ignored"
            )
        return found


def values_are_between_the_bounds(metric: MetricSubject) -> str:
    """The values of drawn lists, long and short, lie between ``least`` and ``most``."""
    generator = torch.Generator().manual_seed(0)
    shape = 200, 12
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, metric.grades, shape, generator=generator).double()
    mask = torch.rand(shape, generator=generator) < torch.linspace(0.1, 1, 200)[:, None]
    found = []
    for at, subject in metric.at_each(*_CUTOFFS).items():
        value = subject.measure(scores, labels, mask).value
        expect_finite(value, "the value", f"of a drawn list{at}")
        if value.min() < metric.least - 1e-9:
            raise Broken(
                f"a drawn list has {value.min():.6g}{at}: if that is meant, set least=null"
            )
        if value.max() > metric.most + 1e-9:
            raise Broken(f"a drawn list has {value.max():.6g}{at}: if that is meant, set most=null")
        found.append(value)
    return f"{torch.cat(found).min():.4g} to {torch.cat(found).max():.4g} were seen"


def no_order_is_better_than_that_of_the_labels(metric: MetricSubject) -> None:
    """Items in descending order of label have the largest value of all orders, at every k."""
    worse = False
    for at, subject in metric.at_each(*_CUTOFFS).items():
        for best in ([4, 3, 2, 1, 0], [3, 1, 1, 0, 0], [2, 2, 0], [1, 0, 0, 0, 0]):
            orders = [list(order) for order in dict.fromkeys(permutations(best))]  # best is first
            values = subject.ranked(orders)
            top = int(values.argmax())
            if not values[top] <= values[0] + 1e-12:
                raise Broken(
                    f"labels in the order {orders[top]} have {values[top].item():.6g}, in the best "
                    f"order {best} {values[0].item():.6g}{at}"
                )
            worse |= bool((values < values[0] - 1e-9).any())
    if not worse:
        raise Broken("every order of the items has the same value: the scores are not used")


def a_monotone_transform_of_the_scores_changes_nothing(metric: MetricSubject) -> None:
    """Scores that are scaled, shifted or bent, tied ones too, rank the items alike."""
    scores, labels, mask = ragged()
    scores = (2 * scores).round() / 2  # some are tied
    transforms = {
        "3 s + 7": 3 * scores + 7,
        "s - 1000": scores - 1000,
        "s / 1000": scores / 1000,
        "exp(s)": scores.exp(),
        "s^3": scores**3,
    }
    for at, subject in metric.at_each(*_CUTOFFS).items():
        value = subject.measure(scores, labels, mask).value
        for name, changed in transforms.items():
            found = subject.measure(changed, labels, mask).value
            when = f"when scores s became {name}{at}"
            expect_close(found, value, "value", when, tolerance=1e-12)


def averaged_ties_are_the_mean_over_all_orders(metric: MetricSubject) -> None:
    """Under ``ties=averaged`` tied items count as the mean over all their orders, at every k."""
    metric.needs("ties")
    first = [[(0.5, 2), (0.5, 0), (0.5, 1), (0.1, 4)]]  # those that are tied stand first, or last
    last = [[(1.0, 0), (0.5, 1), (0.5, 3), (0.5, 0)]]
    for at, subject in metric.at_each(*_CUTOFFS).items():
        averaged = subject.with_knobs(ties="averaged")
        try:
            averaged.loss(*padded(first))
        except ConfigError as error:
            raise DoesNotApply(f"it refuses them: {error}") from error
        when = f"from the mean over the orders of tied items to ties=averaged{at}"
        for rows, orders in (
            (first, [[*order, 4] for order in permutations([2, 0, 1])]),
            (last, [[0, *order] for order in permutations([1, 3, 0])]),
        ):
            mean = subject.ranked(orders).mean(0, keepdim=True)
            expect_close(
                averaged.measure(*padded(rows)).value, mean, "value", when, tolerance=1e-12
            )


def the_cutoff_is_honoured(metric: MetricSubject) -> None:
    """Each k gives another value, and the order of the items beyond rank k does not matter."""
    rows = [[0, 1, 0, 2, 0, 3], [0, 0, 2, 1, 0, 1], [0, 0, 0, 0, 0, 4]]
    expect_different({k: metric.at(k).ranked(rows) for k in (None, 1, 2)})
    for k in (1, 2, 3):
        row = [2, 0, 1, 0, 3]
        found = metric.at(k).ranked([row[:k] + list(rest) for rest in permutations(row[k:])])
        when = f"at k={k} when only items ranked beyond k changed places"
        expect_close(found, found[:1].expand_as(found), "value", when, tolerance=1e-12)


def an_empty_list_counts_what_the_convention_says(metric: MetricSubject) -> None:
    """A list without a relevant item, or without items, counts ``empty``; no other list does."""
    scores = torch.tensor([[0.9, 0.5, 0.1]] * 3, dtype=torch.float64)
    labels = torch.tensor([[0.0, 2.0, 1.0], [0.0] * 3, [3.0] * 3], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True] * 3, [False] * 3])
    first, *empties = metric.measure(scores, labels, mask).value
    if "empty" not in metric.knobs:
        expect_finite(torch.stack(empties), "the value", "of an empty list")
        counts = f"{empties[0]:g}, one of no items {empties[1]:g}"
        raise DoesNotApply(f"it takes no empty: an empty list counts {counts}")
    for empty in (0.0, 0.5, 1.0, "skip"):
        found = metric.with_knobs(empty=empty).measure(scores, labels, mask).value
        expect_close(found[:1], first[None], "value", f"under empty={empty}, and is not empty")
        for counted, what in zip(found[1:], ("an empty list", "a list of no items"), strict=True):
            if not (counted.isnan() if empty == "skip" else counted == empty):
                remedy = "NaN" if empty == "skip" else f"{empty:g}"
                raise Broken(f"{what} counts {counted:.6g} under empty={empty}: give {remedy}")


def labels_below_relevant_do_not_count(metric: MetricSubject) -> None:
    """Under ``relevant=2`` the labels 0 and 1 are the same, and differ from 2."""
    metric.needs("relevant")
    scores, labels, mask = ragged()
    for at, subject in metric.at_each(*_CUTOFFS).items():
        at_2 = subject.with_knobs(relevant=2)
        found = at_2.measure(scores, labels, mask).value
        lower = at_2.measure(scores, labels.where(labels >= 2, 0), mask).value
        expect_close(lower, found, "value", f"when labels of 1 became 0 under relevant=2{at}")
    subject = metric.with_knobs(k=2) if "k" in metric.knobs else metric
    subject.expect_read(*in_score_order([[1, 2, 0], [1, 0, 3]]), relevant=2)


def a_table_of_gains_is_looked_up(metric: MetricSubject) -> None:
    """The gains 0, 1, 3, 7, ... as a table are ``exp2``, and ``linear`` is another gain."""
    metric.needs("gain")
    exp2 = metric.measure(*ragged()).value
    table = [2**grade - 1 for grade in range(metric.grades)]
    found = metric.with_knobs(gain=table).measure(*ragged()).value
    expect_close(found, exp2, "value", f"from gain=exp2 to gain={table}", tolerance=1e-12)
    if metric.grades > 2:
        metric.expect_read(*ragged(), gain="linear")


def the_number_of_grades_is_read(metric: MetricSubject) -> None:
    """Another ``levels`` gives other values, within the bounds."""
    metric.needs("levels")
    more = metric.expect_read(*ragged(), levels=metric.grades + 1)
    expect_finite(more, "the value", f"with levels={metric.grades + 1}")


def a_score_of_nan_makes_its_list_nan_and_no_other(metric: MetricSubject) -> None:
    """A real item scored NaN, as of a model that diverged, is not ranked in silence."""
    scores, labels, mask = ragged()
    value = metric.measure(scores, labels, mask).value
    scores[1, 4] = math.nan
    found = metric.measure(scores, labels, mask).value
    when = "when an item of list 1 was scored NaN"
    expect_close(found.index_fill(0, torch.tensor(1), value[1].item()), value, "value", when)
    if not found[1].isnan():
        raise Broken(f"list 1 has {found[1].item():.6g} {when}: give NaN")


def nothing_is_drawn(metric: MetricSubject) -> None:
    """A second call gives the same value, and torch's generator is not used."""
    if metric.draws(*ragged()):
        raise Broken("it draws random numbers, or remembers an earlier call")


def float64_is_not_rounded(metric: MetricSubject) -> None:
    """Scores in float64 that differ by 1e-12 are not tied, and float32 gives about the same."""
    scores, labels, mask = ragged()
    order = scores.argsort(-1).argsort(-1).to(torch.float64)
    for at, subject in metric.at_each(*_CUTOFFS).items():
        apart, near, single = (
            subject.measure(given, labels, mask).value
            for given in (order, 1 + 1e-12 * order, order.float())
        )
        if apart.dtype != torch.float64:
            raise Broken(f"scores in float64 gave values in {apart.dtype}{at}")
        when = f"when float64 scores came 1e-12 near to each other{at}: digits are lost inside"
        expect_close(near, apart, "value", when, tolerance=1e-12)
        when = f"when float64 scores became float32{at}"
        expect_close(single.double(), apart, "value", when, tolerance=1e-5)


METRIC_PROPERTIES = (
    shared.there_is_one_value_per_list,
    *properties_of(globals()),
    shared.padding_is_never_read,
    shared.more_padding_and_its_place_change_nothing,
    shared.lists_do_not_see_each_other,
    shared.a_list_alone_is_worth_what_it_is_in_a_batch,
    shared.the_order_of_the_items_means_nothing,
    shared.tied_scores_stand_in_file_order_or_share_ranks,
    shared.a_cutoff_beyond_the_list_is_none,
    shared.DEGENERATE[torch.float64],
    shared.DEGENERATE[torch.float32],
    shared.lists_of_any_size_are_defined,
    shared.inputs_are_left_as_they_are,
    shared.the_same_call_gives_the_same_value,
    shared.the_layout_in_memory_means_nothing,
)
