"""Properties of a loss; a metric has some of them too. Each public function here is one."""

import inspect
import math

import torch
from torch import Tensor

from ltr.checks.subject import (
    Broken,
    DoesNotApply,
    Measured,
    Property,
    Subject,
    expect_close,
    expect_different,
    expect_finite,
    expect_unchanged,
    in_score_order,
    one_line,
    padded,
    properties_of,
    ragged,
    seeded,
)
from ltr.errors import ConfigError
from ltr.losses.batch import mean_over_batch
from ltr.metrics import Metric

# scores, labels, mask
_DEGENERATE: dict[str, tuple[list[float], list[int], list[int]]] = {
    "an empty list": ([0.3, -0.2, 0.9], [0, 0, 0], [1, 1, 1]),
    "a list of one grade": ([0.3, -0.2, 0.9], [2, 2, 2], [1, 1, 1]),
    "a list all tied": ([0.5, 0.5, 0.5], [0, 3, 1], [1, 1, 1]),
    "a list of one item": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 1, 0]),
    "an empty list of one item": ([0.3, -0.2, 0.9], [0, 0, 1], [0, 1, 0]),
    "a list of two items": ([0.3, -0.2, 0.9], [0, 3, 1], [1, 1, 0]),
    "a list of no items": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 0, 0]),
    "scores 1e4 apart": ([1e4, -1e4, 0.0], [0, 3, 1], [1, 1, 1]),
    "scores all at 1e4": ([1e4, 1e4, 1e4], [0, 3, 1], [1, 1, 1]),
    "scores all at -1e4": ([-1e4, -1e4, -1e4], [0, 3, 1], [1, 1, 1]),
    "saturated scores": ([1.0, 1.0, -1.0], [0, 3, 1], [1, 1, 1]),
    "scores 1e-12 apart": ([1e-12, 0.0, -1e-12], [0, 3, 1], [1, 1, 1]),
}
# the metric of each loss of ours in its sharp limit
GOES_TO = {
    f"{name}_loss": name.split("_")[-1]
    for name in (
        *("approx_ndcg", "lap_ndcg", "neural_err", "neural_map", "neural_mrr", "neural_ndcg"),
        *("neural_precision", "ot_ndcg", "soft_ndcg", "softsort_ndcg"),
    )
} | {"plrank_loss": "ndcg"}


def there_is_one_value_per_list(loss: Subject) -> None:
    """Three lists of eight places give three values, ``[batch]``, with a graph."""
    loss.measure(*ragged())


def padding_is_never_read(loss: Subject) -> None:
    """NaN, infinities or 1e30 on padding change no value and no gradient, which is 0 there."""
    scores, labels, mask = ragged()
    expected = loss.measure(scores, labels, mask)
    for junk in (math.nan, math.inf, -math.inf, -1e30, 1e30):
        when = f"on padding became {junk}: padding is read"
        loss.expect(
            (scores.masked_fill(~mask, junk), labels, mask), expected, f"when scores {when}"
        )
        loss.expect(
            (scores, labels.masked_fill(~mask, junk), mask), expected, f"when labels {when}"
        )
    if (expected.gradient[~mask] != 0).any():
        raise Broken("the gradient on padding is not 0")


def more_padding_and_its_place_change_nothing(loss: Subject) -> None:
    """Padding added behind, in front or on both sides changes no value and no gradient."""
    scores, labels, mask = ragged()
    value, gradient = loss.measure(scores, labels, mask)
    pad = torch.nn.functional.pad
    for sides in ((0, 9), (5, 0), (3, 2)):
        wider = [pad(x, sides, value=math.nan) for x in (scores, labels)]
        when = f"with {sides[0]} more places of padding in front and {sides[1]} behind"
        expected = Measured(value, pad(gradient, sides))
        loss.expect((*wider, pad(mask, sides)), expected, when, tolerance=1e-12)


def lists_do_not_see_each_other(loss: Subject) -> None:
    """Scores and labels of other lists in the batch do not change a list's value and gradient."""
    data = ragged()
    expected = loss.measure(*data)
    others = torch.tensor([True, False, True])
    for what, junk in (("scores", math.nan), ("scores", 0.0), ("scores", 1e4), ("labels", 0.0)):
        scores, labels, mask = (x.clone() for x in data)
        (scores if what == "scores" else labels)[others] = junk
        found = loss.measure(scores, labels, mask)
        when = f"when the {what} of the lists beside it became {junk}"
        for kind, new, old in zip(Measured._fields, found, expected, strict=True):
            new[others] = old[others]
            expect_close(new, old, kind, when, tolerance=1e-13)


def a_list_alone_is_worth_what_it_is_in_a_batch(loss: Subject) -> None:
    """A list alone, without padding, has the value and gradient that it has in a batch."""
    scores, labels, mask = ragged()
    loss, labels = loss.without_draws(scores, labels, mask)
    value, gradient = loss.measure(scores, labels, mask)
    for i, real in enumerate(mask):
        expected = Measured(value[i : i + 1], gradient[i : i + 1, real] / (i + 1))
        alone = [x[i : i + 1, real] for x in (scores, labels, mask)]
        loss.expect(alone, expected, f"when list {i} stood alone without padding", tolerance=1e-12)


def the_order_of_the_items_means_nothing(loss: Subject) -> None:
    """Another order of the items, with their labels, keeps the value; gradients follow them."""
    scores, labels, mask = ragged()
    loss, labels = loss.without_draws(scores, labels, mask)
    value, gradient = loss.measure(scores, labels, mask)
    for seed in (3, 4):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        moved = [x[:, order] for x in (scores, labels, mask)]
        when = "when the items were given in another order"
        loss.expect(moved, Measured(value, gradient[:, order]), when, tolerance=1e-12)


def the_order_of_the_items_means_nothing_on_average_over_draws(loss: Subject) -> None:
    """The mean over draws does not depend on the order of the items, equal labels included."""
    _expect_draws(loss)
    # a list many times in a batch, each copy with its own draws
    many = [x[:1].expand(400, -1) for x in ragged()]
    there = loss.measure(*many).value
    back = loss.measure(*(x.flip(-1) for x in many), seed=1).value
    error = ((there.var() + back.var()) / 400).sqrt().item()
    if not (there.mean() - back.mean()).abs() <= 5 * error + 1e-12:
        when = (
            f"when the items were given in another order (the mean of 400 draws, {error:.2g} sure)"
        )
        expect_close(back.mean()[None], there.mean()[None], "value", when)


def tied_scores_stand_in_file_order_or_share_ranks(loss: Subject) -> None:
    """Tied scores give the value of scores that fall by a hair from item to item, at every k.

    A loss that uses ranks breaks ties as the metrics do, in the order of the items; where tied
    items share their ranks the hair makes no difference.
    """
    rows = [
        [(0.5, 0), (0.5, 2), (0.5, 1), (-1.0, 3), (0.5, 0), (2.0, 0)],
        [(1.0, 0), (1.0, 0), (1.0, 4), (-0.5, 1), (-0.5, 2)],
        [(0.0, 1), (0.0, 3)],
    ]
    scores, labels, mask = padded(rows)
    hair = 1e-12 * torch.arange(scores.shape[-1], dtype=scores.dtype)
    for at, subject in ({"": loss} | loss.at_each(1, 2, 3, 4)).items():
        falling = subject.measure(scores - hair, labels, mask).value
        tied = subject.measure(scores, labels, mask).value
        when = f"when scores 1e-12 apart, falling in file order, became equal{at}: wrong tie rule"
        expect_close(tied, falling, "value", when, tolerance=1e-6)


def a_cutoff_below_1_is_refused(loss: Subject) -> None:
    """k = 0 and k = -1 raise a ValueError of one line."""
    for k in (0, -1):
        refusing = loss.at(k)
        try:
            with seeded():
                refusing.loss(*ragged())
        except Exception as error:
            if not isinstance(error, ValueError) or len(str(error).splitlines()) != 1:
                raise Broken(f"k={k}: {one_line(error)}, not a ValueError of one line") from error
        else:
            raise Broken(f"k={k} was taken: raise a ValueError")


def a_cutoff_beyond_the_list_is_none(loss: Subject) -> None:
    """k beyond every list is k = None, but for a division by k as in precision."""
    scores, labels, mask = ragged()
    whole = loss.at(None).measure(scores, labels, mask).value
    for k in (99, 1000):
        found = loss.at(k).measure(scores, labels, mask).value
        if not torch.allclose(found, whole * mask.sum(-1).to(whole) / k, rtol=0, atol=1e-12):
            expect_close(found, whole, "value", f"from k=None to k={k}", tolerance=1e-12)


def the_cutoff_is_honoured(loss: Subject) -> None:
    """Each k gives another value, and below a perfect top k nothing matters, at every k.

    A loss that moves the items of a perfect order, where labels are tied, may do so at a cutoff.
    """
    expect_different({k: loss.at(k).measure(*ragged()).value for k in (None, 1, 2)})
    perfect = in_score_order([[4, 4, 3, 0, 0]], gap=50)
    at_rest = not loss.at(None).sharp().measure(*perfect).gradient.abs().max() > 1e-9
    # the first k ranks are perfect and far above the rest, which stands in two wrong orders
    for k, top in ((1, [4]), (2, [4, 4]), (3, [4, 4, 3])):
        one, other = (
            loss.at(k).sharp().measure(*in_score_order([[*top, *rest]], gap=50))
            for rest in ([0, 1, 3, 0], [1, 0, 0, 3])
        )
        when = f"at k={k} when only items ranked beyond k changed places: k is ignored"
        expect_close(other.value, one.value, "value", when, tolerance=1e-9)
        for _, gradient in (one, other) if at_rest else ():
            when = f"at k={k} between the items of a list whose top {k} is perfect: k is ignored"
            expect_close(gradient, torch.zeros_like(gradient), "gradient", when, tolerance=1e-9)


def the_best_order_is_the_bound_at_every_cutoff(loss: Subject) -> None:
    """A perfect and well separated order has the value -1 at every k: the ideal is cut at k too."""
    best = in_score_order([[4, 3, 2, 1, 0, 0], [3, 2, 2, 1], [4, 1], [2]], gap=50)
    worse = in_score_order([[3, 2, 1]], gap=-50)
    whole = loss.at(None).sharp()
    bound = -torch.ones(4, dtype=torch.float64)
    is_minus_one = torch.allclose(whole.measure(*best).value, bound, rtol=0, atol=1e-6)
    if not (is_minus_one and whole.measure(*worse).value.item() > -1 + 1e-3):
        raise DoesNotApply("it is not minus a metric of graded labels whose best value is 1")
    for k in (1, 2, 3, 4, 5, 6, 99):
        found = loss.at(k).sharp().measure(*best).value
        when = f"from k=None to k={k} at the best order: the ideal is not that of k"
        expect_close(found, bound, "value", when, tolerance=1e-6)


def the_sharp_limit_is_minus_the_metric(loss: Subject) -> None:
    """Sharp and well separated, the loss is minus its metric at every k, with padding and without.

    An empty list is worth 0. Knobs that the metric has too, such as ``relevant``, go to both.
    """
    if loss.metric is None:
        raise DoesNotApply("no metric is named that it goes to")
    metric = Metric(loss.metric).function
    shared = inspect.signature(metric).parameters.keys() & loss.knobs.keys()
    scores, labels, mask = ragged()
    scores = 50 * scores.argsort(-1).to(scores)
    labels[2] = 0
    for subject in loss.sharp().at_each(None, 1, 2, 3, 4, 5, 6, 99).values():
        knobs = {name: subject.knobs[name] for name in sorted(shared)}
        for given in (mask, torch.ones_like(mask)):
            try:
                exact = metric(scores, labels, given, **(knobs | {"empty": 0.0}))
            except ConfigError as error:
                raise DoesNotApply(f"there is no exact metric: {error}") from error
            found = subject.measure(scores, labels, given).value
            when = f"from minus {loss.metric} at k={knobs.get('k')}"
            expect_close(found, -exact, "value", when, tolerance=1e-9)


def the_gradient_agrees_with_finite_differences(loss: Subject) -> str | None:
    """In float64 the gradient of every value is its slope, to about six digits.

    Where draws make the values steps, their means over draws agree within five standard errors.
    """
    scores, labels, mask = ragged()
    if loss.steps(scores, labels, mask):
        slopes = _slopes_of_copies(loss)
        for direction in (scores[0].cos(), scores[1].sin(), scores[2]):
            errors = _quotients(loss, direction) - slopes @ direction
            mean, sure = errors.mean().item(), errors.std().item() / len(errors) ** 0.5
            if not abs(mean) <= 5 * sure:
                raise Broken(f"the mean over {_COPIES} draws is {mean:.3g} off, {sure:.2g} sure")
        return f"on average over {_COPIES} draws"

    def values(moved: Tensor) -> Tensor:
        with seeded():
            return loss.value(scores + moved, labels, mask)

    try:
        # a place of all lists at once: no list means anything to another
        torch.autograd.gradcheck(values, torch.zeros_like(scores[0]).requires_grad_())
    except RuntimeError as error:
        raise Broken(f"it does not: {str(error).splitlines()[0]}") from error
    return None


def the_second_derivative_is_right_or_refused(loss: Subject) -> str | None:
    """In float64 backward through a gradient gives the slope of the gradient, or raises.

    Constants in the gradient, such as slopes that a backward of its own wrote, would count as 0.
    """
    scores, labels, mask = ragged()
    weights = torch.arange(1, len(mask) + 1, dtype=scores.dtype)
    for direction in (scores.cos(), scores.sin() + 0.3):
        moved = scores.clone().requires_grad_()
        with seeded():
            total = (loss.value(moved, labels, mask) * weights).sum()
            try:
                (slope,) = torch.autograd.grad(total, moved, create_graph=True)
                along = (slope * direction).sum() + 0 * moved.sum()  # of a constant it is 0
                (found,) = torch.autograd.grad(along, moved)
            except RuntimeError as error:
                return f"refused: {one_line(error)}"
        step = 1e-5 * direction
        ahead, behind = (loss.measure(scores + x, labels, mask).gradient for x in (step, -step))
        when = "from the slope of the gradient to what backward through it gives"
        expected = (ahead - behind) / 2e-5
        expect_close(found, expected, "the second derivative", when, tolerance=1e-6)
    return None


def there_is_something_to_learn(loss: Subject) -> None:
    """The gradient of some score is not 0."""
    if not (loss.measure(*ragged()).gradient != 0).any():
        raise Broken("the gradient is 0 everywhere")


def following_the_gradient_lowers_the_loss(loss: Subject) -> None:
    """A small step against the gradient lowers the value of some list and raises that of none."""
    scores, labels, mask = ragged()
    if loss.steps(scores, labels, mask):  # the mean over draws
        downhill = -_slopes_of_copies(loss).mean(0)
        rise = _quotients(loss, downhill / downhill.norm()).mean().item()
        if not rise < 0:
            raise Broken(f"against the mean gradient the mean value has the slope {rise:.3g}")
        return
    before, gradient = loss.measure(scores, labels, mask)
    rises = loss.measure(scores - 1e-3 * gradient, labels, mask).value - before
    if not (rises <= 1e-12 * before.abs().clamp(min=1)).all():
        raise Broken(f"a step against the gradient raised a value by {rises.max().item():.3g}")
    if not (rises < 0).any():
        raise Broken("a step against the gradient lowered no value")


def a_batch_without_lists_to_count_can_be_trained_on(loss: Subject) -> None:
    """A batch of empty lists left out, or of no items, has the mean 0 and the gradient 0."""
    for empty in ("keep", "skip"):
        scores, labels = torch.randn(2, 3).requires_grad_(), torch.zeros(2, 3)
        mask = torch.full((2, 3), empty == "skip")
        with seeded():
            mean = mean_over_batch(loss.value(scores, labels, mask), labels, mask, empty=empty)
        if not mean.requires_grad:
            raise Broken("the values have no graph, so backward fails")
        (gradient,) = torch.autograd.grad(mean, scores)
        what = "of a batch without lists to count"
        expect_finite(gradient, "the gradient", what)
        expect_close(mean.detach()[None], torch.zeros(1), "mean", what)
        expect_close(gradient, torch.zeros(2, 3), "gradient", what)


def a_list_of_no_items_is_worth_0(loss: Subject) -> None:
    """A list of padding only has the value 0 and the gradient 0."""
    for dtype in (torch.float64, torch.float32):
        value, gradient = _degenerate(loss, "a list of no items", dtype)
        if value.item() != 0 or (gradient != 0).any():
            raise Broken(
                f"a list of no items has the value {value.item():.6g} and a gradient up to "
                f"{gradient.abs().max().item():.6g}, not 0"
            )


def lists_of_any_size_are_defined(loss: Subject) -> None:
    """Lists of 0, 1 and 240 places have finite values and gradients."""
    generator = torch.Generator().manual_seed(0)
    for size in (0, 1, 240):
        scores = torch.randn(2, size, generator=generator)
        labels = torch.randint(0, loss.grades, (2, size), generator=generator).float()
        found = loss.measure(scores, labels, torch.ones(2, size, dtype=torch.bool))
        for kind, numbers in zip(Measured._fields, found, strict=True):
            expect_finite(numbers, f"the {kind}", f"of a list of {size} items")


def inputs_are_left_as_they_are(loss: Subject) -> None:
    """A call does not change its scores, labels and mask."""
    scores, labels, mask = ragged()
    labels = labels.clamp(max=loss.grades - 1)
    expect_unchanged(loss.value, scores=scores, labels=labels, mask=mask)


def the_same_call_gives_the_same_value(loss: Subject) -> None:
    """Two calls, with torch's generator seeded alike, give the same values and gradients."""
    scores, labels, mask = ragged()
    first = loss.measure(scores, labels, mask)
    loss.measure(2 * scores + 1, labels, mask)  # must leave no trace
    loss.expect((scores, labels, mask), first, "at a second call with the same seed")


def what_is_drawn_comes_from_the_generator(loss: Subject) -> None:
    """A given generator draws everything; without one, torch's own does."""
    _expect_draws(loss)
    if "generator" not in loss.knobs:
        raise Broken("it draws from global state: give it a knob generator, a torch.Generator")

    def drawn(seed: int) -> torch.Tensor:
        return loss.value(*ragged(), generator=torch.Generator().manual_seed(seed))

    with seeded(5):
        before = torch.get_rng_state()
        first = drawn(0)
        if not torch.equal(before, torch.get_rng_state()):
            raise Broken("torch's own generator was used although another was given")
        expect_close(drawn(0), first, "value", "with an equal generator")
        if all(torch.equal(drawn(seed), first) for seed in range(1, 9)):
            raise Broken("eight other seeds of the generator gave the same value: it is not used")
    with seeded(0):
        when = "with torch's own generator at the same seed"
        expect_close(loss.value(*ragged()), first, "value", when)


def the_layout_in_memory_means_nothing(loss: Subject) -> None:
    """Transposed, strided and expanded tensors give what contiguous ones give."""
    scores, labels, mask = ragged()
    expected = loss.measure(scores, labels, mask)
    apart = scores.T.contiguous().T, labels.repeat_interleave(2, -1)[:, ::2], mask.T.contiguous().T
    loss.expect(apart, expected, "when the tensors were not contiguous", tolerance=1e-13)
    row = labels[:1].expand(3, 8)
    value, found = (loss.measure(scores, given, mask).value for given in (row.clone(), row))
    expect_close(found, value, "value", "when the labels were one expanded row")


def float64_stays_float64_and_the_rest_becomes_float32(loss: Subject) -> None:
    """Values are float64 for float64 scores, else float32; a gradient has the scores' dtype."""
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


def _degenerate_lists(dtype: torch.dtype) -> Property:
    """Empty, tied, single, far apart, saturated: value and gradient are finite in ``dtype``."""
    name = str(dtype).removeprefix("torch.")

    def prop(loss: Subject) -> None:
        for case in _DEGENERATE:
            for kind, numbers in zip(Measured._fields, _degenerate(loss, case, dtype), strict=True):
                expect_finite(numbers, f"the {kind}", f"for {case} in {name}")

    prop.__name__ = f"degenerate_lists_are_defined_in_{name}"
    return prop


def _degenerate(loss: Subject, case: str, dtype: torch.dtype) -> Measured:
    scores, labels, mask = (torch.tensor([row]) for row in _DEGENERATE[case])
    return loss.measure(scores.to(dtype), labels.float(), mask.bool())


def _expect_draws(loss: Subject) -> None:
    if not loss.draws(*ragged()):
        raise DoesNotApply("it draws nothing")


_COPIES = 5_000  # of a list, each with draws of its own


def _measure_copies(loss: Subject, scores: Tensor) -> Measured:
    """The first list of ``ragged`` with these scores, many times."""
    _, labels, mask = (x[:1].expand(_COPIES, -1) for x in ragged())
    return loss.measure(scores.expand(_COPIES, -1), labels, mask)


def _slopes_of_copies(loss: Subject) -> Tensor:
    """The gradient of each copy, ``[copies, list]``."""
    weighted = _measure_copies(loss, ragged()[0][0]).gradient
    return weighted / torch.arange(1, _COPIES + 1, dtype=weighted.dtype).unsqueeze(-1)


def _quotients(loss: Subject, direction: Tensor, step: float = 0.1) -> Tensor:
    """The difference quotient of each copy along ``direction``, for the same draws."""
    scores = ragged()[0][0]
    above, below = (_measure_copies(loss, scores + x * direction).value for x in (step, -step))
    return (above - below) / (2 * step)


DEGENERATE = {x: _degenerate_lists(x) for x in (torch.float64, torch.float32, torch.bfloat16)}
LOSS_PROPERTIES = (*properties_of(globals()), *DEGENERATE.values())
