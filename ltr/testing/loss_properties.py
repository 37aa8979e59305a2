"""Properties of losses and metrics.

Each public function checks one property, which its docstring states. The name of the function's
argument says what the property applies to: ``loss``, ``metric``, ``subject`` (losses and metrics)
or ``component`` (losses, metrics and models). The function raises ``Violation`` if the property
does not hold, and ``DoesNotApply`` if the property has no meaning for the argument.
"""

import inspect
import math
from dataclasses import replace
from itertools import chain, permutations

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.metrics import Metric
from ltr.testing.subject import (
    Component,
    DoesNotApply,
    Subject,
    Violation,
    describe_error,
    expect_close,
    expect_finite,
    in_score_order,
    padded,
    properties_of,
    ragged,
    seeded,
)

# The labels in descending order of score, the first score, and the gap between scores.
_DEGENERATE: dict[str, tuple[list[int], float, float]] = {
    "a list without a relevant item": ([0, 0, 0], 0.9, 0.5),
    "a list of one grade": ([2, 2, 2], 0.9, 0.5),
    "a list with equal scores": ([0, 3, 1], 0.5, 0),
    "a list of one item": ([3], 0.9, 0),
    "a list of one irrelevant item": ([0], 0.9, 0),
    "a list without items": ([], 0, 0),
    "scores 1e4 apart": ([1, 0, 3], 1e4, 1e4),
    "scores all at -1e4": ([0, 3, 1], -1e4, 0),
    "scores 1e-12 apart": ([0, 3, 1], 1e-12, 1e-12),
}
# Losses of this project, each with the metric whose negative it becomes in its sharp limit.
SHARP_LIMIT_OF = {
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


def padding_is_never_read(component: Component) -> None:
    """NaN, infinities or 1e30 on padding change nothing, and outputs on padding are 0."""
    for mode in component.modes():
        *inputs, mask = mode.lists()
        expected = mode.measure(*inputs, mask)
        for index, tensor in enumerate(inputs):
            padding = ~mask.view(*mask.shape, *[1] * (tensor.ndim - 2))
            for junk in _JUNK if tensor.is_floating_point() else (-7,):
                poisoned = [*inputs, mask]
                poisoned[index] = tensor.masked_fill(padding, junk)
                when = f"when {mode.names[index]} on padding became {junk}: padding is read"
                mode.expect(poisoned, expected, when)
        for name, output in zip(expected._fields, expected, strict=True):
            if output.shape == mask.shape and (output[~mask] != 0).any():
                raise Violation(f"the {name} on padding is not 0: use masked_fill(~mask, 0)")


def lists_do_not_see_each_other(component: Component) -> None:
    """A list alone, without padding, has the same value, scores and gradient as in a batch."""
    component, inputs = component.without_draws()
    batch = component.measure(*inputs)
    for number, exists in enumerate(inputs[-1]):
        if not exists.any():
            continue
        expected = dict[str, Tensor]()
        for name, output in batch._asdict().items():
            expected[name] = output[number : number + 1]
            if output.ndim == 2:
                # The gradient is that of a sum in which list i has the weight i + 1.
                factor = 1 / (number + 1) if name == "gradient" else 1
                expected[name] = expected[name][:, exists] * factor
        alone = [tensor[number : number + 1, exists] for tensor in inputs]
        when = f"when list {number} was alone, without padding"
        component.expect(alone, type(batch)(**expected), when, tolerance=component.close)


def the_order_of_the_items_means_nothing(component: Component) -> None:
    """Permuting the items does not change values, and only permutes scores and gradients."""
    component, inputs = component.without_draws()
    outputs = component.measure(*inputs)
    for seed in (3, 4):
        order = torch.randperm(inputs[0].shape[1], generator=torch.Generator().manual_seed(seed))
        permuted = [tensor[:, order] for tensor in inputs]
        expected = outputs._make(
            output[:, order] if output.ndim == 2 else output for output in outputs
        )
        when = "when the items were given in a different order"
        component.expect(permuted, expected, when, tolerance=component.close)


def inputs_are_left_as_they_are(component: Component) -> None:
    """A call does not change its inputs."""
    component = component.modes()[-1]
    inputs = component.lists()
    copies = [tensor.clone() for tensor in inputs]
    with seeded():
        component.call(*inputs)
    for name, new, old in zip((*component.names, "mask"), inputs, copies, strict=True):
        if not torch.equal(new, old):
            raise Violation(f"the argument {name} was changed in place: work on a copy")


def tied_scores_stand_in_file_order_or_share_ranks(subject: Subject) -> None:
    """At every k, tied scores give the same value as scores that decrease by 1e-12 in file order.

    The property holds for a loss that uses ranks if the loss breaks ties in the order of the items,
    as metrics do, or if tied items share their ranks.
    """
    rows = [
        [(0.5, 0), (0.5, 2), (0.5, 1), (-1.0, 3), (0.5, 0), (2.0, 0)],
        [(1.0, 0), (1.0, 0), (1.0, 4), (-0.5, 1), (-0.5, 2)],
        [(0.0, 1), (0.0, 3)],
    ]
    scores, labels, mask = padded(rows)
    hair = 1e-12 * torch.arange(scores.shape[-1], dtype=scores.dtype)
    for cutoff, cut in ({"": subject} | subject.at_each(1, 2, 3, 4)).items():
        falling = cut.values(scores - hair, labels, mask)
        tied = cut.values(scores, labels, mask)
        when = (
            f"when scores 1e-12 apart, descending in file order, became equal{cutoff}: "
            "the tie rule is wrong"
        )
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
                raise Violation(
                    f"k={k} raised {describe_error(error)}: raise a ValueError whose message is "
                    "one line"
                ) from error
        else:
            raise Violation(f"k={k} was accepted: raise a ValueError")


def a_cutoff_beyond_the_list_is_none(subject: Subject) -> None:
    """If k is larger than every list, the values are those of k = None.

    The values may differ only by a division by k, as in precision.
    """
    scores, labels, mask = ragged()
    uncut = subject.with_knobs(k=None).values(scores, labels, mask)
    for k in (99, 1000):
        values = subject.with_knobs(k=k).values(scores, labels, mask)
        divided_by_k = uncut * mask.sum(-1).to(uncut) / k
        if not torch.allclose(values, divided_by_k, rtol=0, atol=1e-12):
            expect_close(values, uncut, "value", f"when k=None became k={k}", tolerance=1e-12)


def the_cutoff_is_honoured(subject: Subject) -> None:
    """Different cutoffs give different values; the order below a perfect top k does not matter."""
    rows = in_score_order([[0, 1, 0, 2, 0, 3], [0, 0, 2, 1, 0, 1], [0, 0, 0, 0, 0, 4]])
    values = {k: subject.with_knobs(k=k).values(*rows) for k in (None, 1, 2)}
    for k, larger_k in ((1, None), (2, None), (1, 2)):
        if torch.allclose(values[k], values[larger_k], rtol=1e-9, atol=1e-12):
            raise Violation(f"k={k} gave the same values as k={larger_k}: k is ignored")
    # The first k items are in perfect order, with scores far above the rest, and the rest is in two
    # different wrong orders.
    for k, top in ((1, [4]), (2, [4, 4]), (3, [4, 4, 3])):
        lists = in_score_order([[*top, 0, 1, 3, 0], [*top, 1, 0, 0, 3]], gap=50)
        first, second = subject.with_knobs(k=k).sharp().values(*lists).split(1)
        when = f"at k={k} when only items ranked beyond k changed places: k is ignored"
        expect_close(second, first, "value", when, tolerance=1e-9)


def the_sharp_limit_is_minus_the_metric(loss: Subject) -> None:
    """In its sharp limit, a soft loss equals minus the metric that it approximates, at every k.

    ``loss.sharp()`` sets the temperature close to 0, and the scores are far apart. An empty list
    must give 0. Knobs that the loss and the metric share, such as ``relevant``, have the same value
    in both. Each kind of ``gain`` is tried: 2^y - 1, y, and a table.
    """
    if loss.metric is None:
        raise DoesNotApply("the metric that the loss approximates is not given (metric=NAME)")
    metric = Metric(loss.metric).function
    shared = inspect.signature(metric).parameters.keys() & loss.knobs.keys()
    scores, labels, mask = ragged()
    scores = 50 * scores.argsort(-1).to(scores)
    labels[2] = 0
    gains = ("exp2", "linear", _table(loss)) if "gain" in shared else ()
    variants = [loss.with_knobs(gain=gain) for gain in gains] or [loss]
    cutoffs = (None, 1, 2, 3, 4, 5, 6, 99)
    cuts = [variant.sharp().at_each(*cutoffs).values() for variant in variants]
    for cut in chain.from_iterable(cuts):
        knobs = {name: cut.knobs[name] for name in sorted(shared)}
        try:
            exact = metric(scores, labels, mask, **(knobs | {"empty": 0.0}))
        except ConfigError as error:
            raise DoesNotApply(f"the exact metric cannot be computed: {error}") from error
        when = f"between minus {loss.metric} and the loss at k={knobs.get('k')}"
        if gains:
            when += f" with gain={knobs['gain']}"
        expect_close(cut.values(scores, labels, mask), -exact, "value", when, tolerance=1e-9)


def a_gain_is_a_scale_of_the_labels(loss: Subject) -> None:
    """Labels give the same results as their gains, passed as labels with ``gain=linear``."""
    if "gain" not in loss.knobs:
        raise DoesNotApply("it has no knob named gain")
    if loss.knobs.keys() & {"parts", "teacher"}:
        raise DoesNotApply("the parts of the mix may use the labels themselves, not only the gains")
    scores, labels, mask = ragged()
    linear = replace(loss.with_knobs(gain="linear"), grades=10**9)
    for gain, gains in (("exp2", labels.exp2() - 1), (_table(loss), 3**labels)):
        expected = linear.measure(scores, gains, mask)
        when = f"between the gains with gain=linear and the labels with gain={gain}"
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
        return _mean_gradient_agrees(loss, scores, labels, mask)

    def values(shift: Tensor) -> Tensor:
        with seeded():
            return loss.call(scores + shift, labels, mask)

    try:
        # Move the same item of all lists at once, because lists do not affect each other.
        torch.autograd.gradcheck(values, torch.zeros_like(scores[0]).requires_grad_())
    except RuntimeError as error:
        raise Violation(f"gradcheck fails: {str(error).splitlines()[0]}") from error
    return None


def _mean_gradient_agrees(loss: Subject, scores: Tensor, labels: Tensor, mask: Tensor) -> str:
    """Compare the means of gradients and of finite differences over draws, for the first list."""
    copies = [tensor[:1].expand(_COPIES, -1) for tensor in (scores, labels, mask)]
    slopes = loss.measure(*copies).gradient / torch.arange(1, _COPIES + 1).unsqueeze(-1)
    for direction in (scores[0].cos(), scores[1].sin(), scores[2]):
        ahead = loss.values(copies[0] + 0.1 * direction, *copies[1:])
        behind = loss.values(copies[0] - 0.1 * direction, *copies[1:])
        errors = (ahead - behind) / 0.2 - slopes @ direction
        mean = errors.mean().item()
        standard_error = errors.std().item() / len(errors) ** 0.5
        if not abs(mean) <= 5 * standard_error:
            raise Violation(
                f"the mean gradient over {_COPIES} draws is wrong by {mean:.3g} (standard error "
                f"{standard_error:.2g})"
            )
    return f"on average over {_COPIES} draws"


def the_second_derivative_is_right_or_refused(loss: Subject) -> str | None:
    """In float64, backward through the gradient gives the right second derivative, or raises.

    A custom backward often gives a second derivative of 0.
    """
    scores, labels, mask = ragged()
    weights = torch.arange(1, len(mask) + 1, dtype=scores.dtype)
    inputs = scores.clone().requires_grad_()
    direction = scores.sin() + 0.3
    with seeded():
        total = (loss.call(inputs, labels, mask) * weights).sum()
        try:
            (gradient,) = torch.autograd.grad(total, inputs, create_graph=True)
            slope = (
                gradient * direction
            ).sum() + 0 * inputs.sum()  # has a graph even if it is constant
            (derivative,) = torch.autograd.grad(slope, inputs)
        except RuntimeError as error:
            return f"refused: {describe_error(error)}"
    ahead = loss.measure(scores + 1e-5 * direction, labels, mask).gradient
    behind = loss.measure(scores - 1e-5 * direction, labels, mask).gradient
    when = "between finite differences of the gradient and backward through the gradient"
    expected = (ahead - behind) / 2e-5
    expect_close(derivative, expected, "the second derivative", when, tolerance=1e-6)
    return None


def there_is_something_to_learn(loss: Subject) -> None:
    """The gradient is not 0 for at least one score."""
    if not (loss.measure(*ragged()).gradient != 0).any():
        raise Violation("the gradient is 0 everywhere")


def a_better_order_has_a_smaller_loss_on_average(loss: Subject) -> str:
    """If two items in the wrong order exchange their scores, the loss falls on average.

    The mean is taken over random lists, with one such exchange in each. A mean fall of more than
    three standard errors shows that the loss has the right sign and uses the labels.
    """
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(_SWAPPED, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, loss.grades, scores.shape, generator=generator).double()
    better = labels.unsqueeze(-1) > labels.unsqueeze(-2)
    lower = -scores.unsqueeze(-1) > -scores.unsqueeze(-2)
    wrong = (better & lower).flatten(1)  # pairs of a better item and a worse one of higher score
    pair = (wrong * torch.rand(wrong.shape, generator=generator)).argmax(-1, keepdim=True)
    positions = torch.cat([pair // scores.shape[-1], pair % scores.shape[-1]], -1)
    swapped = scores.scatter(-1, positions, scores.gather(-1, positions).flip(-1))
    mask = torch.ones_like(scores, dtype=torch.bool)
    falls = loss.values(scores, labels, mask) - loss.values(swapped, labels, mask)
    falls = falls[wrong.any(-1)]
    mean = falls.mean().item()
    error = falls.std().item() / len(falls) ** 0.5
    verb = "rises" if mean < 0 else "falls"
    change = f"{verb} by {abs(mean):.3g} (standard error {error:.2g})"
    if mean < -3 * error:
        raise Violation(f"it {change} when the order gets better: the sign is wrong")
    if not mean > 3 * error:
        raise Violation(f"it {change} when the order gets better: it does not distinguish orders")
    return f"it {change}"


def degenerate_lists_are_defined(subject: Subject) -> None:
    """Values and gradients of unusual lists are finite in float64, float32 and bfloat16.

    Unusual lists have no relevant item, one grade, equal scores, one item, no items, or scores that
    are very large, far apart or nearly equal. Lists of 0, 1 and 240 items are tried too. If a list
    has only padding, its loss and gradient are 0.
    """
    rows = [
        [(first_score - gap * rank, label) for rank, label in enumerate(labels)]
        for labels, first_score, gap in _DEGENERATE.values()
    ]
    cases = [([*_DEGENERATE], padded(rows))]
    for size in (0, 1, 240):
        labels = torch.arange(size).expand(2, size) % subject.grades
        scores = labels.sin().double()
        mask = torch.ones_like(labels, dtype=torch.bool)
        cases.append(([f"a list of {size} items"] * 2, (scores, labels, mask)))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for names, (scores, labels, mask) in cases:
            measured = subject.measure(scores.to(dtype), labels.float(), mask)
            for kind, outputs in measured._asdict().items():
                for name, exists, output in zip(names, mask, outputs, strict=True):
                    when = f"for {name} in {str(dtype).removeprefix('torch.')}"
                    expect_finite(output, f"the {kind}", when)
                    if subject.bounds is None and not exists.any() and (output != 0).any():
                        raise Violation(f"the {kind} is not 0 {when}")


def the_same_call_gives_the_same_value(subject: Subject) -> None:
    """Two calls give the same values and gradients if torch's generator has the same seed."""
    scores, labels, mask = ragged()
    first = subject.measure(scores, labels, mask)
    subject.measure(2 * scores + 1, labels, mask)  # must not affect the next call
    subject.expect((scores, labels, mask), first, "at a second call with the same seed")


def what_is_drawn_comes_from_the_generator(loss: Subject) -> None:
    """If a generator is given, all random draws come from it, and none from torch's own."""
    if not loss.draws(*ragged()):
        raise DoesNotApply("it draws no random numbers")
    if "generator" not in loss.knobs:
        raise Violation(
            "it draws from global state: add a knob named generator for a torch.Generator"
        )

    def values(seed: int) -> Tensor:
        return loss.call(*ragged(), generator=torch.Generator().manual_seed(seed))

    with seeded(5):
        state = torch.get_rng_state()
        first = values(0)
        if not torch.equal(state, torch.get_rng_state()):
            raise Violation("torch's own generator was used although generator was given")
        expect_close(values(0), first, "value", "with an equal generator")
        if all(torch.equal(values(seed), first) for seed in range(1, 9)):
            raise Violation(
                "eight other seeds of the generator gave the same value: the generator is not used"
            )


def the_layout_in_memory_means_nothing(subject: Subject) -> None:
    """Transposed and strided tensors give the same result as contiguous ones."""
    scores, labels, mask = ragged()
    expected = subject.measure(scores, labels, mask)
    transposed_scores = scores.T.contiguous().T
    strided_labels = labels.repeat_interleave(2, -1)[:, ::2]
    transposed_mask = mask.T.contiguous().T
    lists = (transposed_scores, strided_labels, transposed_mask)
    subject.expect(lists, expected, "when the tensors were not contiguous", tolerance=1e-13)


def float64_stays_float64_and_the_rest_becomes_float32(loss: Subject) -> None:
    """Values are float64 for float64 scores, else float32; gradients have the scores' dtype.

    In float64, a change of 1e-10 in the scores has an effect.
    """
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        expected = torch.float64 if dtype == torch.float64 else torch.float32
        scores, labels, mask = ragged(dtype)
        value, gradient = loss.measure(scores, labels.to(expected), mask)
        if value.dtype != expected or gradient.dtype != dtype:
            raise Violation(f"scores of {dtype} gave values of {value.dtype}, not {expected}")
    scores, labels, mask = ragged()
    nudged = scores + 1e-10 * scores.sin()
    # The values of a step function do not change, but its gradient does.
    output = "gradient" if loss.steps(scores, labels, mask) else "value"
    exact = getattr(loss.measure(scores, labels, mask), output)
    if torch.equal(exact, getattr(loss.measure(nudged, labels, mask), output)):
        raise Violation("a change of 1e-10 in float64 scores had no effect: compute in float64")


def values_are_between_the_bounds(metric: Subject) -> str:
    """The values of random lists, long and short, are between the bounds ``least`` and ``most``."""
    lower, upper = metric.bounds or (-math.inf, math.inf)
    generator = torch.Generator().manual_seed(0)
    shape = 200, 12
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, metric.grades, shape, generator=generator).double()
    mask = torch.rand(shape, generator=generator) < torch.linspace(0.1, 1, 200)[:, None]
    smallest = []
    largest = []
    for cutoff, cut in metric.at_each(*_CUTOFFS).items():
        values = cut.values(scores, labels, mask)
        expect_finite(values, "the value", f"of a random list{cutoff}")
        smallest.append(values.min())
        largest.append(values.max())
        if smallest[-1] < lower - 1e-9 or largest[-1] > upper + 1e-9:
            raise Violation(
                f"random lists have values from {smallest[-1]:.6g} to {largest[-1]:.6g}{cutoff}: "
                "if this is right, set least=null or most=null"
            )
    return f"the values are from {min(smallest):.4g} to {max(largest):.4g}"


def no_order_is_better_than_that_of_the_labels(metric: Subject) -> None:
    """At every k, no order of the items has a larger value than the descending order of labels."""
    some_order_is_worse = False
    for cutoff, cut in metric.at_each(*_CUTOFFS).items():
        for best in ([4, 3, 2, 1, 0], [3, 1, 1, 0, 0], [2, 2, 0], [1, 0, 0, 0, 0]):
            orders = list(dict.fromkeys(permutations(best)))  # best is first
            values = cut.values(*in_score_order(orders))
            top = int(values.argmax())
            if not values[top] <= values[0] + 1e-12:
                raise Violation(
                    f"labels in the order {[*orders[top]]} give {values[top].item():.6g}, but the "
                    f"best order {best} gives {values[0].item():.6g}{cutoff}"
                )
            if (values < values[0] - 1e-9).any():
                some_order_is_worse = True
    if not some_order_is_worse:
        raise Violation("every order of the items has the same value: the scores are not used")


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
    for cutoff, cut in metric.at_each(*_CUTOFFS).items():
        expected = cut.values(scores, labels, mask)
        for name, transformed in transforms.items():
            values = cut.values(transformed, labels, mask)
            when = f"when scores s became {name}{cutoff}"
            expect_close(values, expected, "value", when, tolerance=1e-12)


def averaged_ties_are_the_mean_over_all_orders(metric: Subject) -> None:
    """At every k, ``ties=averaged`` gives the mean of the value over all orders of tied items."""
    row = padded([[(1.0, 0), (0.5, 1), (0.5, 3), (0.5, 0), (0.1, 4)]])
    orders = in_score_order([(0, *tied_labels, 4) for tied_labels in permutations([1, 3, 0])])
    for cutoff, plain in metric.at_each(*_CUTOFFS).items():
        tied = plain.with_knobs(ties="averaged")
        when = f"between the mean over the orders of tied items and ties=averaged{cutoff}"
        try:
            tied.function(*row)
        except ConfigError as error:
            raise DoesNotApply(f"it does not support averaged ties: {error}") from error
        mean = plain.values(*orders).mean(0, keepdim=True)
        expect_close(tied.values(*row), mean, "value", when, tolerance=1e-12)


def an_empty_list_counts_what_the_convention_says(metric: Subject) -> None:
    """A list without a relevant item has the value ``empty``, or NaN for "skip".

    The value of any other list does not depend on ``empty``.
    """
    scores = torch.tensor([[0.9, 0.5, 0.1]] * 3, dtype=torch.float64)
    labels = torch.tensor([[0.0, 2.0, 1.0], [0.0] * 3, [3.0] * 3], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True] * 3, [False] * 3])
    if "empty" not in metric.knobs:
        without_relevant, without_items = metric.values(scores, labels, mask)[1:].tolist()
        raise DoesNotApply(
            "it has no knob named empty: a list without a relevant item gives "
            f"{without_relevant:g}, and a list without items gives {without_items:g}"
        )
    first = metric.values(scores, labels, mask)[:1]
    for empty in (0.0, 0.5, 1.0, "skip"):
        values = metric.with_knobs(empty=empty).values(scores, labels, mask)
        expect_close(
            values[:1], first, "value", f"with empty={empty}, although it has a relevant item"
        )
        names = ("a list without a relevant item", "a list without items")
        for value, name in zip(values[1:], names, strict=True):
            is_right = value.isnan() if empty == "skip" else value == empty
            if not is_right:
                remedy = "NaN" if empty == "skip" else f"{empty:g}"
                raise Violation(f"{name} gives {value:.6g} with empty={empty}: return {remedy}")


def labels_below_relevant_do_not_count(metric: Subject) -> None:
    """With ``relevant=2``, the labels 0 and 1 mean the same."""
    scores, labels, mask = ragged()
    lowered = labels.where(labels >= 2, 0)
    for cutoff, cut in metric.with_knobs(relevant=2).at_each(*_CUTOFFS).items():
        expected = cut.values(scores, labels, mask)
        values = cut.values(scores, lowered, mask)
        expect_close(
            values, expected, "value", f"when labels of 1 became 0, with relevant=2{cutoff}"
        )


def what_the_convention_says_is_read(metric: Subject) -> None:
    """The knobs ``gain``, ``levels`` and ``relevant``, if the metric has them, change its value."""
    knobs = {"gain": _table(metric), "levels": metric.grades + 1, "relevant": 2}
    read = [name for name in knobs if name in metric.knobs]
    if not read:
        raise DoesNotApply(f"it has none of the knobs {', '.join(knobs)}")
    (short,) = metric.at_each(2).values()
    lists = in_score_order([[1, 2, 0], [1, 0, 3]])
    for name in read:
        changed = short.with_knobs(**{name: knobs[name]})
        if torch.equal(changed.values(*lists), short.values(*lists)):
            raise Violation(f"{name}={knobs[name]} changed no value: this knob is ignored")


def a_score_of_nan_makes_its_list_nan_and_no_other(metric: Subject) -> None:
    """If an item has the score NaN, as from a diverged model, only its list has the value NaN."""
    scores, labels, mask = ragged()
    expected = metric.values(scores, labels, mask)
    scores[1, 4] = math.nan
    values = metric.values(scores, labels, mask)
    when = "when an item of list 1 was scored NaN"
    expect_close(values[[0, 2]], expected[[0, 2]], "value", when)
    if not values[1].isnan():
        raise Violation(f"list 1 has the value {values[1].item():.6g} {when}: return NaN")


def nothing_is_drawn(metric: Subject) -> None:
    """A second call gives the same value, and no random numbers are drawn from torch."""
    if metric.draws(*ragged()):
        raise Violation("it draws random numbers, or remembers an earlier call")


LOSS_PROPERTIES = properties_of(globals(), "component", "subject", "loss")
METRIC_PROPERTIES = properties_of(globals(), "component", "subject", "metric")
GENERAL_PROPERTIES = properties_of(globals(), "component")
