"""Properties of losses and metrics.

Each public function checks one property, which its docstring states. The name of the function's
argument says what the property applies to: ``loss``, ``metric``, ``subject`` (losses and metrics)
or ``part`` (models too). The function raises ``Broken`` if the property does not hold, and
``DoesNotApply`` if the property has no meaning.
"""

import inspect
import math
from dataclasses import replace
from itertools import chain, permutations

import torch
from torch import Tensor

from ltr.checks.subject import (
    Broken,
    DoesNotApply,
    Part,
    Subject,
    expect_close,
    expect_finite,
    in_score_order,
    one_line,
    padded,
    properties_of,
    ragged,
    seeded,
)
from ltr.errors import ConfigError
from ltr.metrics import Metric

# labels in descending order of score, the first score, and the gap from each score to the next
_DEGENERATE: dict[str, tuple[list[int], float, float]] = {
    "an empty list": ([0, 0, 0], 0.9, 0.5),
    "a list of one grade": ([2, 2, 2], 0.9, 0.5),
    "a list all tied": ([0, 3, 1], 0.5, 0),
    "a list of one item": ([3], 0.9, 0),
    "an empty list of one item": ([0], 0.9, 0),
    "a list of no items": ([], 0, 0),
    "scores 1e4 apart": ([1, 0, 3], 1e4, 1e4),
    "scores all at -1e4": ([0, 3, 1], -1e4, 0),
    "scores 1e-12 apart": ([0, 3, 1], 1e-12, 1e-12),
}
# our losses, and the metric that each becomes (negated) in its sharp limit
GOES_TO = {
    f"{name}_loss": name.split("_")[-1]
    for name in (
        *("approx_ndcg", "lap_ndcg", "neural_err", "neural_map", "neural_mrr", "neural_ndcg"),
        *("neural_precision", "ot_ndcg", "soft_ndcg", "softsort_ndcg", "network_ndcg"),
    )
} | {"plrank_loss": "ndcg"}
_CUTOFFS = (None, 1, 2, 3, 10)
_JUNK = (math.nan, math.inf, -math.inf, -1e30, 1e30)
_SWAPPED = 500  # random lists, in each of which two items exchange their scores
_COPIES = 5_000  # copies of a list, each with its own random draws


def padding_is_never_read(part: Part) -> None:
    """NaN, infinities or 1e30 on padding change nothing, and outputs on padding are 0."""
    for one in part.modes():
        *data, mask = one.lists()
        expected = one.measure(*data, mask)
        for place, x in enumerate(data):
            for junk in _JUNK if x.is_floating_point() else (-7,):
                poisoned = [*data, mask]
                poisoned[place] = x.masked_fill(~mask.view(*mask.shape, *[1] * (x.ndim - 2)), junk)
                when = f"when {one.names[place]} on padding became {junk}: padding is read"
                one.expect(poisoned, expected, when)
        for what, x in zip(expected._fields, expected, strict=True):
            if x.shape == mask.shape and (x[~mask] != 0).any():
                raise Broken(f"the {what} on padding is not 0: use masked_fill(~mask, 0)")


def lists_do_not_see_each_other(part: Part) -> None:
    """A list has the same value, scores and gradient alone, without padding, as in a batch."""
    part, data = part.without_draws()
    expected = part.measure(*data)
    for i, real in enumerate(data[-1]):
        # the gradient is that of a sum in which list i has the weight i + 1
        share = {"gradient": 1 / (i + 1)}
        own = {what: x[i : i + 1] for what, x in expected._asdict().items()}
        own = {w: x[:, real] * share.get(w, 1) if x.ndim == 2 else x for w, x in own.items()}
        if real.any():
            alone = [x[i : i + 1, real] for x in data]
            when = f"when list {i} stood alone without padding"
            part.expect(alone, type(expected)(**own), when, tolerance=part.close)


def the_order_of_the_items_means_nothing(part: Part) -> None:
    """Permuting the items does not change values, and only permutes scores and gradients."""
    part, data = part.without_draws()
    expected = part.measure(*data)
    for seed in (3, 4):
        order = torch.randperm(data[0].shape[1], generator=torch.Generator().manual_seed(seed))
        moved = expected._make(x[:, order] if x.ndim == 2 else x for x in expected)
        when = "when the items were given in another order"
        part.expect([x[:, order] for x in data], moved, when, tolerance=part.close)


def inputs_are_left_as_they_are(part: Part) -> None:
    """A call does not change its inputs."""
    part = part.modes()[-1]
    data = part.lists()
    before = [x.clone() for x in data]
    with seeded():
        part.call(*data)
    for name, new, old in zip((*part.names, "mask"), data, before, strict=True):
        if not torch.equal(new, old):
            raise Broken(f"the {name} were changed in place: work on a copy")


def tied_scores_stand_in_file_order_or_share_ranks(subject: Subject) -> None:
    """At every k, tied scores give the same value as scores that decrease by 1e-12 in file order.

    This holds for a loss that uses ranks if it breaks ties in the order of the items, as metrics
    do. It also holds if tied items share their ranks.
    """
    rows = [
        [(0.5, 0), (0.5, 2), (0.5, 1), (-1.0, 3), (0.5, 0), (2.0, 0)],
        [(1.0, 0), (1.0, 0), (1.0, 4), (-0.5, 1), (-0.5, 2)],
        [(0.0, 1), (0.0, 3)],
    ]
    scores, labels, mask = padded(rows)
    hair = 1e-12 * torch.arange(scores.shape[-1], dtype=scores.dtype)
    for at, one in ({"": subject} | subject.at_each(1, 2, 3, 4)).items():
        falling, tied = (one.values(given, labels, mask) for given in (scores - hair, scores))
        when = f"when scores 1e-12 apart, falling in file order, became equal{at}: wrong tie rule"
        expect_close(tied, falling, "value", when, tolerance=1e-6)


def a_cutoff_below_1_is_refused(loss: Subject) -> None:
    """k = 0 and k = -1 raise a ValueError with a message of one line."""
    for k in (0, -1):
        refusing = loss.with_knobs(k=k)
        try:
            with seeded():
                refusing.function(*ragged())
        except Exception as error:
            if not isinstance(error, ValueError) or len(str(error).splitlines()) != 1:
                raise Broken(f"k={k}: {one_line(error)}, not a ValueError of one line") from error
        else:
            raise Broken(f"k={k} was taken: raise a ValueError")


def a_cutoff_beyond_the_list_is_none(subject: Subject) -> None:
    """A k larger than every list equals k = None, except for a division by k as in precision."""
    scores, labels, mask = ragged()
    whole = subject.with_knobs(k=None).values(scores, labels, mask)
    for k in (99, 1000):
        found = subject.with_knobs(k=k).values(scores, labels, mask)
        if not torch.allclose(found, whole * mask.sum(-1).to(whole) / k, rtol=0, atol=1e-12):
            expect_close(found, whole, "value", f"from k=None to k={k}", tolerance=1e-12)


def the_cutoff_is_honoured(subject: Subject) -> None:
    """Different k give different values, and items below a perfect top k do not matter."""
    rows = in_score_order([[0, 1, 0, 2, 0, 3], [0, 0, 2, 1, 0, 1], [0, 0, 0, 0, 0, 4]])
    values = {k: subject.with_knobs(k=k).values(*rows) for k in (None, 1, 2)}
    for k, other in ((1, None), (2, None), (1, 2)):
        if torch.allclose(values[k], values[other], rtol=1e-9, atol=1e-12):
            raise Broken(f"k={k} gave the same values as k={other}: k is ignored")
    # the first k items are in perfect order and far above the rest, which has two wrong orders
    for k, top in ((1, [4]), (2, [4, 4]), (3, [4, 4, 3])):
        lists = in_score_order([[*top, 0, 1, 3, 0], [*top, 1, 0, 0, 3]], gap=50)
        one, same = subject.with_knobs(k=k).sharp().values(*lists).split(1)
        when = f"at k={k} when only items ranked beyond k changed places: k is ignored"
        expect_close(same, one, "value", when, tolerance=1e-9)


def the_sharp_limit_is_minus_the_metric(loss: Subject) -> None:
    """As it gets sharp, a soft loss goes to minus the metric that it approximates, at every k.

    ``loss.sharp()`` sets the temperature close to 0, and the scores are far apart. An empty list
    must give 0. Knobs that the metric has too, such as ``relevant``, are set for both; each
    ``gain`` is tried: 2^y - 1, y, and a table.
    """
    if loss.metric is None:
        raise DoesNotApply("no metric is named that it goes to")
    metric = Metric(loss.metric).function
    shared = inspect.signature(metric).parameters.keys() & loss.knobs.keys()
    scores, labels, mask = ragged()
    scores = 50 * scores.argsort(-1).to(scores)
    labels[2] = 0
    gains = ("exp2", "linear", _table(loss)) if "gain" in shared else ()
    ways = [loss.with_knobs(gain=gain) for gain in gains] or [loss]
    cuts = [way.sharp().at_each(None, 1, 2, 3, 4, 5, 6, 99).values() for way in ways]
    for one in chain.from_iterable(cuts):
        knobs = {name: one.knobs[name] for name in sorted(shared)}
        try:
            exact = metric(scores, labels, mask, **(knobs | {"empty": 0.0}))
        except ConfigError as error:
            raise DoesNotApply(f"there is no exact metric: {error}") from error
        when = f"from minus {loss.metric} at k={knobs.get('k')}"
        when += f" with gain={knobs['gain']}" if gains else ""
        found = one.values(scores, labels, mask)
        expect_close(found, -exact, "value", when, tolerance=1e-9)


def a_gain_is_a_scale_of_the_labels(loss: Subject) -> None:
    """Labels under ``gain=exp2`` or a table count as their gains do under ``gain=linear``."""
    if "gain" not in loss.knobs:
        raise DoesNotApply("it has no gain")
    if loss.knobs.keys() & {"parts", "teacher"}:
        raise DoesNotApply("its parts may read more of a label than its gain")
    scores, labels, mask = ragged()
    linear = replace(loss.with_knobs(gain="linear"), grades=10**9)
    for gain, scale in (("exp2", labels.exp2() - 1), (_table(loss), 3**labels)):
        expected = linear.measure(scores, scale, mask)
        when = f"from the gains under gain=linear to the labels under gain={gain}"
        loss.with_knobs(gain=gain).expect((scores, labels, mask), expected, when, tolerance=1e-12)


def _table(subject: Subject) -> list[int]:
    """Return a table of gains for every grade, in which no gain is 0."""
    return [3**grade for grade in range(subject.grades)]


def the_gradient_agrees_with_finite_differences(loss: Subject) -> str | None:
    """In float64, gradients agree with finite differences to about six digits.

    If random draws make the values step functions of the scores, the means over draws agree within
    five standard errors instead.
    """
    scores, labels, mask = ragged()
    if loss.steps(scores, labels, mask):
        copies = [x[:1].expand(_COPIES, -1) for x in (scores, labels, mask)]
        slopes = loss.measure(*copies).gradient / torch.arange(1, _COPIES + 1).unsqueeze(-1)
        for direction in (scores[0].cos(), scores[1].sin(), scores[2]):
            ahead, behind = (
                loss.values(copies[0] + x * direction, *copies[1:]) for x in (0.1, -0.1)
            )
            errors = (ahead - behind) / 0.2 - slopes @ direction
            mean, sure = errors.mean().item(), errors.std().item() / len(errors) ** 0.5
            if not abs(mean) <= 5 * sure:
                raise Broken(f"the mean over {_COPIES} draws is {mean:.3g} off, {sure:.2g} sure")
        return f"on average over {_COPIES} draws"

    def values(moved: Tensor) -> Tensor:
        with seeded():
            return loss.call(scores + moved, labels, mask)

    try:
        # move the same item of all lists at once, because lists do not affect each other
        torch.autograd.gradcheck(values, torch.zeros_like(scores[0]).requires_grad_())
    except RuntimeError as error:
        raise Broken(f"it does not: {str(error).splitlines()[0]}") from error
    return None


def the_second_derivative_is_right_or_refused(loss: Subject) -> str | None:
    """In float64, backward through the gradient gives the right second derivative, or raises. It
    would be wrong if autograd took parts of the gradient for constants, as with a custom backward.
    """
    scores, labels, mask = ragged()
    weights = torch.arange(1, len(mask) + 1, dtype=scores.dtype)
    moved, direction = scores.clone().requires_grad_(), scores.sin() + 0.3
    with seeded():
        total = (loss.call(moved, labels, mask) * weights).sum()
        try:
            (slope,) = torch.autograd.grad(total, moved, create_graph=True)
            along = (slope * direction).sum() + 0 * moved.sum()  # works for constant slopes too
            (found,) = torch.autograd.grad(along, moved)
        except RuntimeError as error:
            return f"refused: {one_line(error)}"
    ahead, behind = (
        loss.measure(scores + x * direction, labels, mask).gradient for x in (1e-5, -1e-5)
    )
    when = "from the slope of the gradient to what backward through it gives"
    expected = (ahead - behind) / 2e-5
    expect_close(found, expected, "the second derivative", when, tolerance=1e-6)
    return None


def there_is_something_to_learn(loss: Subject) -> None:
    """The gradient is not 0 for at least one score."""
    if not (loss.measure(*ragged()).gradient != 0).any():
        raise Broken("the gradient is 0 everywhere")


def a_better_order_has_a_smaller_loss_on_average(loss: Subject) -> str:
    """If two items in the wrong order exchange their scores, the loss falls on average.

    The mean is taken over random lists, with one such exchange in each. It must be more than three
    standard errors above 0: then the loss has the right sign, and reads the labels.
    """
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(_SWAPPED, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, loss.grades, scores.shape, generator=generator).double()
    better, worse = (x.unsqueeze(-1) > x.unsqueeze(-2) for x in (labels, -scores))
    wrong = (better & worse).flatten(1)  # pairs of a better item and a worse one of higher score
    pair = (wrong * torch.rand(wrong.shape, generator=generator)).argmax(-1, keepdim=True)
    places = torch.cat([pair // scores.shape[-1], pair % scores.shape[-1]], -1)
    swapped = scores.scatter(-1, places, scores.gather(-1, places).flip(-1))
    mask = torch.ones_like(scores, dtype=torch.bool)
    before, after = (loss.values(given, labels, mask) for given in (scores, swapped))
    fall = (before - after)[wrong.any(-1)]
    mean, error = fall.mean().item(), fall.std().item() / len(fall) ** 0.5
    change = f"{'rises' if mean < 0 else 'falls'} by {abs(mean):.3g}, give or take {error:.2g}"
    if mean < -3 * error:
        raise Broken(f"it {change} when the order gets better: the sign is wrong")
    if not mean > 3 * error:
        raise Broken(f"it {change} when the order gets better: it does not tell orders apart")
    return f"it {change}"


def degenerate_lists_are_defined(subject: Subject) -> None:
    """Values and gradients of unusual lists are finite, in every dtype.

    The lists have no relevant item, one grade, tied scores, one item, no items, or scores that are
    very large, far apart or nearly equal. Lists of 0, 1 and 240 items are tried too. The loss of a
    list with only padding is 0.
    """
    rows = [
        [(top - gap * rank, label) for rank, label in enumerate(labels)]
        for labels, top, gap in _DEGENERATE.values()
    ]
    cases = [([*_DEGENERATE], padded(rows))]
    for size in (0, 1, 240):
        labels = torch.arange(size).expand(2, size) % subject.grades
        lists = labels.sin().double(), labels, torch.ones_like(labels, dtype=torch.bool)
        cases.append(([f"a list of {size} items"] * 2, lists))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for names, (scores, labels, mask) in cases:
            found = subject.measure(scores.to(dtype), labels.float(), mask)
            for kind, numbers in found._asdict().items():
                for name, real, x in zip(names, mask, numbers, strict=True):
                    when = f"for {name} in {str(dtype).removeprefix('torch.')}"
                    expect_finite(x, f"the {kind}", when)
                    if subject.bounds is None and not real.any() and (x != 0).any():
                        raise Broken(f"the {kind} is not 0 {when}")


def the_same_call_gives_the_same_value(subject: Subject) -> None:
    """Two calls give the same values and gradients if torch's generator has the same seed."""
    scores, labels, mask = ragged()
    first = subject.measure(scores, labels, mask)
    subject.measure(2 * scores + 1, labels, mask)  # must leave no trace
    subject.expect((scores, labels, mask), first, "at a second call with the same seed")


def what_is_drawn_comes_from_the_generator(loss: Subject) -> None:
    """If a generator is given, all random draws come from it, and none from torch's own."""
    if not loss.draws(*ragged()):
        raise DoesNotApply("it draws nothing")
    if "generator" not in loss.knobs:
        raise Broken("it draws from global state: give it a knob generator, a torch.Generator")

    def drawn(seed: int) -> Tensor:
        return loss.call(*ragged(), generator=torch.Generator().manual_seed(seed))

    with seeded(5):
        before = torch.get_rng_state()
        first = drawn(0)
        if not torch.equal(before, torch.get_rng_state()):
            raise Broken("torch's own generator was used although another was given")
        expect_close(drawn(0), first, "value", "with an equal generator")
        if all(torch.equal(drawn(seed), first) for seed in range(1, 9)):
            raise Broken("eight other seeds of the generator gave the same value: it is not used")


def the_layout_in_memory_means_nothing(subject: Subject) -> None:
    """Transposed and strided tensors give the same result as contiguous ones."""
    scores, labels, mask = ragged()
    expected = subject.measure(scores, labels, mask)
    apart = scores.T.contiguous().T, labels.repeat_interleave(2, -1)[:, ::2], mask.T.contiguous().T
    subject.expect(apart, expected, "when the tensors were not contiguous", tolerance=1e-13)


def float64_stays_float64_and_the_rest_becomes_float32(loss: Subject) -> None:
    """Values are float64 for float64 scores, else float32; gradients have the scores' dtype.

    In float64, a change of 1e-10 in the scores has an effect.
    """
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        wanted = torch.float64 if dtype == torch.float64 else torch.float32
        scores, labels, mask = ragged(dtype)
        value, gradient = loss.measure(scores, labels.to(wanted), mask)
        if value.dtype != wanted or gradient.dtype != dtype:
            raise Broken(f"scores of {dtype} gave values of {value.dtype}, not {wanted}")
    scores, labels, mask = ragged()
    nudged = scores + 1e-10 * scores.sin()
    exact, found = (loss.measure(given, labels, mask) for given in (scores, nudged))
    which = 1 if loss.steps(scores, labels, mask) else 0
    if torch.equal(exact[which], found[which]):
        raise Broken("a change of 1e-10 in float64 scores changed nothing: digits are lost inside")


def values_are_between_the_bounds(metric: Subject) -> str:
    """The values of random lists, long and short, are between the bounds ``least`` and ``most``."""
    least, most = metric.bounds or (-math.inf, math.inf)
    generator = torch.Generator().manual_seed(0)
    shape = 200, 12
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, metric.grades, shape, generator=generator).double()
    mask = torch.rand(shape, generator=generator) < torch.linspace(0.1, 1, 200)[:, None]
    found = []
    for at, one in metric.at_each(*_CUTOFFS).items():
        value = one.values(scores, labels, mask)
        expect_finite(value, "the value", f"of a drawn list{at}")
        if value.min() < least - 1e-9 or value.max() > most + 1e-9:
            seen = f"drawn lists have {value.min():.6g} to {value.max():.6g}{at}"
            raise Broken(f"{seen}: if they may, set least=null or most=null")
        found.append(value)
    return f"{torch.cat(found).min():.4g} to {torch.cat(found).max():.4g} were seen"


def no_order_is_better_than_that_of_the_labels(metric: Subject) -> None:
    """At every k, no order of the items has a larger value than descending order of label."""
    worse = False
    for at, one in metric.at_each(*_CUTOFFS).items():
        for best in ([4, 3, 2, 1, 0], [3, 1, 1, 0, 0], [2, 2, 0], [1, 0, 0, 0, 0]):
            orders = list(dict.fromkeys(permutations(best)))  # best is first
            values = one.values(*in_score_order(orders))
            top = int(values.argmax())
            if not values[top] <= values[0] + 1e-12:
                raise Broken(
                    f"labels in the order {[*orders[top]]} have {values[top].item():.6g}, in the "
                    f"best order {best} {values[0].item():.6g}{at}"
                )
            worse |= bool((values < values[0] - 1e-9).any())
    if not worse:
        raise Broken("every order of the items has the same value: the scores are not used")


def a_monotone_transform_of_the_scores_changes_nothing(metric: Subject) -> None:
    """Increasing transforms of the scores, with or without ties, do not change the value.

    This includes float64 scores that are only about 1e-12 apart.
    """
    scores, labels, mask = ragged()
    scores = (2 * scores).round() / 2  # some are tied
    transforms = {
        "3 s + 7": 3 * scores + 7,
        "exp(s)": scores.exp(),
        "s^3": scores**3,
        "1 + 1e-12 s": 1 + 1e-12 * scores,
    }
    for at, one in metric.at_each(*_CUTOFFS).items():
        value = one.values(scores, labels, mask)
        for name, changed in transforms.items():
            found = one.values(changed, labels, mask)
            expect_close(found, value, "value", f"when scores s became {name}{at}", tolerance=1e-12)


def averaged_ties_are_the_mean_over_all_orders(metric: Subject) -> None:
    """At every k, ``ties=averaged`` gives the mean of the value over all orders of tied items."""
    row = padded([[(1.0, 0), (0.5, 1), (0.5, 3), (0.5, 0), (0.1, 4)]])
    orders = in_score_order([(0, *x, 4) for x in permutations([1, 3, 0])])
    for at, plain in metric.at_each(*_CUTOFFS).items():
        tied = plain.with_knobs(ties="averaged")
        when = f"from the mean over the orders of tied items to ties=averaged{at}"
        try:
            tied.function(*row)
        except ConfigError as error:
            raise DoesNotApply(f"it refuses them: {error}") from error
        mean = plain.values(*orders).mean(0, keepdim=True)
        expect_close(tied.values(*row), mean, "value", when, tolerance=1e-12)


def an_empty_list_counts_what_the_convention_says(metric: Subject) -> None:
    """An empty list has the value ``empty``, or NaN for "skip"; ``empty`` changes no other list."""
    scores = torch.tensor([[0.9, 0.5, 0.1]] * 3, dtype=torch.float64)
    labels = torch.tensor([[0.0, 2.0, 1.0], [0.0] * 3, [3.0] * 3], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True] * 3, [False] * 3])
    if "empty" not in metric.knobs:
        counts = "{:g}, one of no items {:g}".format(*metric.values(scores, labels, mask)[1:])
        raise DoesNotApply(f"it takes no empty: an empty list counts {counts}")
    first = metric.values(scores, labels, mask)[:1]
    for empty in (0.0, 0.5, 1.0, "skip"):
        found = metric.with_knobs(empty=empty).values(scores, labels, mask)
        expect_close(found[:1], first, "value", f"under empty={empty}, and is not empty")
        for counted, what in zip(found[1:], ("an empty list", "a list of no items"), strict=True):
            if not (counted.isnan() if empty == "skip" else counted == empty):
                remedy = "NaN" if empty == "skip" else f"{empty:g}"
                raise Broken(f"{what} counts {counted:.6g} under empty={empty}: give {remedy}")


def labels_below_relevant_do_not_count(metric: Subject) -> None:
    """With ``relevant=2``, the labels 0 and 1 mean the same."""
    scores, labels, mask = ragged()
    for at, one in metric.with_knobs(relevant=2).at_each(*_CUTOFFS).items():
        found, lower = (
            one.values(scores, given, mask) for given in (labels, labels.where(labels >= 2, 0))
        )
        expect_close(lower, found, "value", f"when labels of 1 became 0 under relevant=2{at}")


def what_the_convention_says_is_read(metric: Subject) -> None:
    """The values change with each of ``gain``, ``levels``, ``relevant`` that the metric takes."""
    others = {"gain": _table(metric), "levels": metric.grades + 1, "relevant": 2}
    if not (known := others.keys() & metric.knobs.keys()):
        raise DoesNotApply(f"it takes none of {', '.join(others)}")
    (short,) = metric.at_each(2).values()
    lists = in_score_order([[1, 2, 0], [1, 0, 3]])
    for name in known:
        changed = short.with_knobs(**{name: others[name]})
        if torch.equal(changed.values(*lists), short.values(*lists)):
            raise Broken(f"{name}={others[name]} changed no value: it is ignored")


def a_score_of_nan_makes_its_list_nan_and_no_other(metric: Subject) -> None:
    """If an item has the score NaN, as from a diverged model, only its list has the value NaN."""
    scores, labels, mask = ragged()
    value = metric.values(scores, labels, mask)
    scores[1, 4] = math.nan
    found = metric.values(scores, labels, mask)
    when = "when an item of list 1 was scored NaN"
    expect_close(found[[0, 2]], value[[0, 2]], "value", when)
    if not found[1].isnan():
        raise Broken(f"list 1 has {found[1].item():.6g} {when}: give NaN")


def nothing_is_drawn(metric: Subject) -> None:
    """A second call gives the same value, and no random numbers are drawn from torch."""
    if metric.draws(*ragged()):
        raise Broken("it draws random numbers, or remembers an earlier call")


LOSS_PROPERTIES = properties_of(globals(), "part", "subject", "loss")
METRIC_PROPERTIES = properties_of(globals(), "part", "subject", "metric")
MODEL_TOO = properties_of(globals(), "part")
