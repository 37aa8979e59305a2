"""Properties of a call as a pure function, and of its gradient."""

import torch
from torch import Tensor

from ltr.battery.subject import Subject, ragged
from ltr.battery.verdict import Broken, DoesNotApply, expect_close, expect_finite, told
from ltr.losses.batch import mean_over_batch


def there_is_one_value_per_list(loss: Subject) -> None:
    """Three lists of eight places give three values, ``[batch]``, with a graph."""
    loss.measure(*ragged())


def inputs_are_left_as_they_are(loss: Subject) -> None:
    """A call does not change its scores, labels and mask."""
    scores, labels, mask = ragged()
    given = scores, labels.clamp(max=loss.grades - 1), mask
    kept = [x.clone() for x in given]
    with torch.random.fork_rng(devices=[]):
        loss.value(*given)
    for name, x, before in zip(("scores", "labels", "mask"), given, kept, strict=True):
        if not torch.equal(x, before):
            raise Broken(f"the {name} were changed in place: work on a copy")


def the_same_call_gives_the_same_value(loss: Subject) -> None:
    """Two calls, with torch's generator seeded alike, give the same values and gradients."""
    scores, labels, mask = ragged()
    first = loss.measure(scores, labels, mask)
    loss.measure(2 * scores + 1, labels, mask)  # must leave no trace
    loss.expect((scores, labels, mask), first, "at a second call with the same seed")


def what_is_drawn_comes_from_the_generator(loss: Subject) -> None:
    """A given generator draws everything; without one, torch's own does."""
    data = ragged()
    if not loss.draws(*data):
        raise DoesNotApply("it draws nothing")
    if "generator" not in loss.knobs:
        raise Broken("it draws from global state: give it a knob generator, a torch.Generator")

    def drawn(seed: int) -> torch.Tensor:
        return loss.value(*data, generator=torch.Generator().manual_seed(seed))

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        before = torch.get_rng_state()
        first = drawn(0)
        if not torch.equal(before, torch.get_rng_state()):
            raise Broken("torch's own generator was used although another was given")
        expect_close(drawn(0), first, "value", "with an equal generator")
        if all(torch.equal(drawn(seed), first) for seed in range(1, 9)):
            raise Broken("eight other seeds of the generator gave the same value: it is not used")
        torch.default_generator.manual_seed(0)
        when = "with torch's own generator at the same seed"
        expect_close(loss.value(*data), first, "value", when)


def the_layout_in_memory_means_nothing(loss: Subject) -> None:
    """Transposed, strided and expanded tensors give what contiguous ones give."""
    scores, labels, mask = ragged()
    expected = loss.measure(scores, labels, mask)
    apart = scores.T.contiguous().T, labels.repeat_interleave(2, -1)[:, ::2], mask.T.contiguous().T
    loss.expect(apart, expected, "when the tensors were not contiguous", tolerance=1e-13)
    row = labels[:1].expand(3, 8)
    value = loss.measure(scores, row.clone(), mask).value
    found = loss.measure(scores, row, mask).value
    expect_close(found, value, "value", "when the labels were one expanded row")


def float64_stays_float64_and_the_rest_becomes_float32(loss: Subject) -> None:
    """Values are float64 for float64 scores, else float32; a gradient has the scores' dtype."""
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        scores, labels, mask = ragged(dtype)
        labels = labels if dtype == torch.float64 else labels.float()
        value, gradient = loss.measure(scores, labels, mask)
        wanted = torch.float64 if dtype == torch.float64 else torch.float32
        if value.dtype != wanted or gradient.dtype != dtype:
            raise Broken(f"scores of {dtype} gave values of {value.dtype}, not {wanted}")
    scores, labels, mask = ragged()
    exact = loss.measure(scores, labels, mask)
    nudged = loss.measure(scores + 1e-10 * scores.sin(), labels, mask)
    what = 1 if loss.steps(scores, labels, mask) else 0
    if torch.equal(exact[what], nudged[what]):
        raise Broken("a change of 1e-10 in float64 scores changed nothing: digits are lost inside")


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

    def seeded(moved: Tensor) -> Tensor:
        torch.default_generator.manual_seed(0)
        return loss.value(scores + moved, labels, mask)

    with torch.random.fork_rng(devices=[]):
        try:
            # a place of all lists at once: no list means anything to another
            torch.autograd.gradcheck(seeded, torch.zeros_like(scores[0]).requires_grad_())
        except RuntimeError as error:
            lines = [" ".join(line.split()) for line in str(error).splitlines()]
            raise Broken(f"it does not: {lines[0]}") from error
    return None


def the_second_derivative_is_right_or_refused(loss: Subject) -> str | None:
    """In float64 backward through a gradient gives the slope of the gradient, or raises.

    Constants in the gradient, such as slopes that a backward of its own wrote, would count as 0.
    """
    scores, labels, mask = ragged()
    weights = torch.arange(1, len(mask) + 1, dtype=scores.dtype)
    for direction in (scores.cos(), scores.sin() + 0.3):
        moved = scores.clone().requires_grad_()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            total = (loss.value(moved, labels, mask) * weights).sum()
            try:
                (slope,) = torch.autograd.grad(total, moved, create_graph=True)
                along = (slope * direction).sum() + 0 * moved.sum()  # of a constant it is 0
                (found,) = torch.autograd.grad(along, moved)
            except RuntimeError as error:
                return f"refused: {told(error)}"
        step = 1e-5 * direction
        ahead, behind = (loss.measure(scores + x, labels, mask).gradient for x in (step, -step))
        expected = (ahead - behind) / 2e-5
        when = "from the slope of the gradient to what backward through it gives"
        expect_close(found, expected, "the second derivative", when, tolerance=1e-6)
    return None


_COPIES = 5_000  # of a list, each with draws of its own


def _copies(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first list of ``ragged`` with these scores, many times."""
    _, labels, mask = (x[:1].expand(_COPIES, -1) for x in ragged())
    return scores.expand(_COPIES, -1), labels, mask


def _slopes_of_copies(loss: Subject) -> Tensor:
    """The gradient of each copy, ``[copies, list]``."""
    weighted = loss.measure(*_copies(ragged()[0][0])).gradient
    return weighted / torch.arange(1, _COPIES + 1, dtype=weighted.dtype).unsqueeze(-1)


def _quotients(loss: Subject, direction: Tensor, step: float = 0.1) -> Tensor:
    """The difference quotient of each copy along ``direction``, for the same draws."""
    scores = ragged()[0][0]
    above, below = (
        loss.measure(*_copies(scores + sign * step * direction)).value for sign in (1, -1)
    )
    return (above - below) / (2 * step)


def there_is_something_to_learn(loss: Subject) -> None:
    """The gradient of some score is not 0."""
    _, gradient = loss.measure(*ragged())
    if not (gradient != 0).any():
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
    after, _ = loss.measure(scores - 1e-3 * gradient, labels, mask)
    rises = after - before
    if not (rises <= 1e-12 * before.abs().clamp(min=1)).all():
        raise Broken(f"a step against the gradient raised a value by {rises.max().item():.3g}")
    if not (rises < 0).any():
        raise Broken("a step against the gradient lowered no value")


def a_batch_without_lists_to_count_can_be_trained_on(loss: Subject) -> None:
    """A batch of empty lists left out, or of no items, has the mean 0 and the gradient 0."""
    for empty in ("keep", "skip"):
        scores, labels = torch.randn(2, 3).requires_grad_(), torch.zeros(2, 3)
        mask = torch.full((2, 3), empty == "skip")
        with torch.random.fork_rng(devices=[]):
            values = loss.value(scores, labels, mask)
            mean = mean_over_batch(values, labels, mask, empty=empty)
            if not mean.requires_grad:
                raise Broken("the values have no graph, so backward fails")
            (gradient,) = torch.autograd.grad(mean, scores)
        what = "of a batch without lists to count"
        expect_finite(gradient, "the gradient", what)
        expect_close(mean.detach()[None], torch.zeros(1), "mean", what)
        expect_close(gradient, torch.zeros(2, 3), "gradient", what)
