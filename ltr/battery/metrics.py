"""Properties of a metric: bounds, the best order, ties, cutoffs and the keys of the convention."""

import math
from functools import partial
from itertools import permutations

import torch
from torch import Tensor

from ltr.battery.subject import Measured, Subject, padded, ragged
from ltr.battery.verdict import Broken, DoesNotApply, expect_close, expect_finite
from ltr.errors import ConfigError
from ltr.metrics import Convention, Metric

# labels in the order of the scores; the best order is the sorted one
_ORDERS = ([4, 3, 2, 1, 0], [3, 1, 1, 0, 0], [2, 2, 0], [1, 0, 0, 0, 0])


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
        self.least, self.most = least, most

    def measure(self, scores: Tensor, labels: Tensor, mask: Tensor, *, seed: int = 0) -> Measured:
        """The values; a metric has no gradient, and 0 stands for it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            found = self.value(scores, labels, mask)
        value = found.detach() if found.is_floating_point() else found.to(scores.dtype)
        return Measured(value, torch.zeros_like(scores))

    def ranked(self, rows: list[list[int]]) -> Tensor:
        """The values of lists whose labels stand in the order of the scores, ``[batch]``."""
        lists = [[(-float(rank), label) for rank, label in enumerate(row)] for row in rows]
        return self.measure(*padded(lists)).value

    def at_each_k(self) -> "dict[str, MetricSubject]":
        """The metric at several cutoffs; as it is where it takes none."""
        if "k" not in self.knobs:
            return {"": self}
        return {f" at k={k}": self.at(k) for k in (None, 1, 2, 3, 10)}

    def needs(self, knob: str) -> None:
        """Raise ``DoesNotApply`` where the metric does not take ``knob``."""
        if knob not in self.knobs:
            raise DoesNotApply(f"it takes no {knob}")


def values_are_between_the_bounds(metric: MetricSubject) -> str:
    """The values of drawn lists, long and short, lie between ``least`` and ``most``."""
    generator = torch.Generator().manual_seed(0)
    shape = 200, 12
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, metric.grades, shape, generator=generator).double()
    mask = torch.rand(shape, generator=generator) < torch.linspace(0.1, 1, 200)[:, None]
    found = []
    for at, subject in metric.at_each_k().items():
        value = subject.measure(scores, labels, mask).value
        expect_finite(value, "the value", f"of a drawn list{at}")
        low, high = value.min().item(), value.max().item()
        if metric.least is not None and low < metric.least - 1e-9:
            raise Broken(f"a drawn list has {low:.6g}{at}: if that is meant, set least=null")
        if metric.most is not None and high > metric.most + 1e-9:
            raise Broken(f"a drawn list has {high:.6g}{at}: if that is meant, set most=null")
        found.append(value)
    values = torch.cat(found)
    return f"{values.min().item():.4g} to {values.max().item():.4g} were seen"


def no_order_is_better_than_that_of_the_labels(metric: MetricSubject) -> None:
    """Items in descending order of label have the largest value of all orders, at every k."""
    worse = False
    for at, subject in metric.at_each_k().items():
        for best in _ORDERS:
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
    for at, subject in metric.at_each_k().items():
        value = subject.measure(scores, labels, mask).value
        for name, changed in transforms.items():
            found = subject.measure(changed, labels, mask).value
            when = f"when scores s became {name}{at}"
            expect_close(found, value, "value", when, tolerance=1e-12)


def averaged_ties_are_the_mean_over_all_orders(metric: MetricSubject) -> None:
    """Under ``ties=averaged`` tied items count as the mean over all their orders, at every k."""
    metric.needs("ties")
    tied = [[(0.5, 2), (0.5, 0), (0.5, 1), (0.1, 4)], [(1.0, 0), (0.5, 1), (0.5, 3), (0.5, 0)]]
    places = [[0, 1, 2], [1, 2, 3]]  # of the tied items
    for at, subject in metric.at_each_k().items():
        averaged = subject.with_knobs(ties="averaged")
        try:
            averaged.loss(*padded(tied))
        except ConfigError as error:
            raise DoesNotApply(f"it refuses them: {error}") from error
        found = averaged.measure(*padded(tied)).value
        means = []
        for row, tie in zip(tied, places, strict=True):
            labels = [label for _, label in row]
            orders = []
            for order in permutations(tie):
                moved = labels.copy()
                for place, source in zip(tie, order, strict=True):
                    moved[place] = labels[source]
                orders.append(moved)
            means.append(subject.ranked(orders).mean())
        when = f"from the mean over the orders of tied items to ties=averaged{at}"
        expect_close(found, torch.stack(means), "value", when, tolerance=1e-12)


def the_cutoff_is_honoured(metric: MetricSubject) -> None:
    """Each k gives another value, and the order of the items beyond rank k does not matter."""
    rows = [[0, 1, 0, 2, 0, 3], [0, 0, 2, 1, 0, 1], [0, 0, 0, 0, 0, 4]]
    values = {k: metric.at(k).ranked(rows) for k in (None, 1, 2)}
    for k, other in ((1, None), (2, None), (1, 2)):
        if torch.allclose(values[k], values[other], rtol=1e-9, atol=1e-12):
            raise Broken(f"k={k} gave the same values as k={other}: k is ignored")
    for k in (1, 2, 3):
        row = [2, 0, 1, 0, 3]
        below = [row[:k] + list(rest) for rest in permutations(row[k:])]
        found = metric.at(k).ranked(below)
        when = f"at k={k} when only items ranked beyond k changed places"
        expect_close(found, found[:1].expand_as(found), "value", when, tolerance=1e-12)


def an_empty_list_counts_what_the_convention_says(metric: MetricSubject) -> None:
    """A list without a relevant item, or without items, counts ``empty``; no other list does."""
    scores = torch.tensor([[0.9, 0.5, 0.1]] * 3, dtype=torch.float64)
    labels = torch.tensor([[0.0, 2.0, 1.0], [0.0] * 3, [3.0] * 3], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True] * 3, [False] * 3])
    if "empty" not in metric.knobs:
        value = metric.measure(scores, labels, mask).value
        expect_finite(value, "the value", "of an empty list")
        counts = f"{value[1].item():g}, one of no items {value[2].item():g}"
        raise DoesNotApply(f"it takes no empty: an empty list counts {counts}")
    first = metric.measure(scores, labels, mask).value[:1]
    for empty in (0.0, 0.5, 1.0, "skip"):
        found = metric.with_knobs(empty=empty).measure(scores, labels, mask).value
        expect_close(found[:1], first, "value", f"under empty={empty}, and is not empty")
        for row, what in ((1, "an empty list"), (2, "a list of no items")):
            counted = found[row].item()
            if not (math.isnan(counted) if empty == "skip" else counted == empty):
                remedy = "NaN" if empty == "skip" else f"{empty:g}"
                raise Broken(f"{what} counts {counted:.6g} under empty={empty}: give {remedy}")


def labels_below_relevant_do_not_count(metric: MetricSubject) -> None:
    """Under ``relevant=2`` the labels 0 and 1 are the same, and differ from 2."""
    metric.needs("relevant")
    scores, labels, mask = ragged()
    for at, subject in metric.at_each_k().items():
        at_2 = subject.with_knobs(relevant=2)
        found = at_2.measure(scores, labels, mask).value
        lower = at_2.measure(scores, labels.where(labels >= 2, 0), mask).value
        expect_close(lower, found, "value", f"when labels of 1 became 0 under relevant=2{at}")
    rows = [[1, 2, 0], [1, 0, 3]]
    if all(
        torch.equal(subject.ranked(rows), subject.with_knobs(relevant=2).ranked(rows))
        for subject in metric.at_each_k().values()
    ):
        raise Broken("relevant=2 gave the same values as relevant=1: it is ignored")


def a_table_of_gains_is_looked_up(metric: MetricSubject) -> None:
    """The gains 0, 1, 3, 7, ... as a table are ``exp2``, and ``linear`` is another gain."""
    metric.needs("gain")
    data = ragged()
    exp2 = metric.measure(*data).value
    table = [2**grade - 1 for grade in range(metric.grades)]
    found = metric.with_knobs(gain=table).measure(*data).value
    expect_close(found, exp2, "value", f"from gain=exp2 to gain={table}", tolerance=1e-12)
    if metric.grades > 2 and torch.equal(
        metric.with_knobs(gain="linear").measure(*data).value, exp2
    ):
        raise Broken("gain=linear gave the same values as gain=exp2: it is ignored")


def the_number_of_grades_is_read(metric: MetricSubject) -> None:
    """Another ``levels`` gives other values, within the bounds."""
    metric.needs("levels")
    data = ragged()
    found = metric.measure(*data).value
    more = metric.with_knobs(levels=metric.grades + 1).measure(*data).value
    expect_finite(more, "the value", f"with levels={metric.grades + 1}")
    if torch.equal(found, more):
        raise Broken(
            f"levels={metric.grades + 1} gave the same values as levels={metric.grades}: it is "
            "ignored"
        )


def a_score_of_nan_makes_its_list_nan_and_no_other(metric: MetricSubject) -> None:
    """A real item scored NaN, as of a model that diverged, is not ranked in silence."""
    scores, labels, mask = ragged()
    value = metric.measure(scores, labels, mask).value
    scores[1, 4] = math.nan
    found = metric.measure(scores, labels, mask).value
    when = "when an item of list 1 was scored NaN"
    for i in (0, 2):
        expect_close(found[i : i + 1], value[i : i + 1], "value", when, first=i)
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
    for at, subject in metric.at_each_k().items():
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
