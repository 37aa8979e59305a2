"""Properties of padding, of the lists of a batch, of the items' order, and of degenerate lists."""

import math

import torch

from ltr.battery.subject import DEGENERATE, Measured, Subject, ragged
from ltr.battery.verdict import Broken, DoesNotApply, expect_close, expect_finite


def padding_is_never_read(loss: Subject) -> None:
    """NaN, infinities or 1e30 on padding change no value and no gradient, which is 0 there."""
    scores, labels, mask = ragged()
    value, gradient = loss.measure(scores, labels, mask)
    for junk in (math.nan, math.inf, -math.inf, -1e30, 1e30):
        for what, given in (
            ("scores", (scores.masked_fill(~mask, junk), labels)),
            ("labels", (scores, labels.masked_fill(~mask, junk))),
        ):
            found, slope = loss.measure(*given, mask)
            when = f"when the {what} on padding became {junk}: padding is read"
            expect_close(found, value, "value", when)
            expect_close(slope, gradient, "gradient", when)
            if (slope[~mask] != 0).any():
                raise Broken(f"the gradient on padding is not 0 {when}")


def more_padding_and_its_place_change_nothing(loss: Subject) -> None:
    """Padding added behind, in front or on both sides changes no value and no gradient."""
    scores, labels, mask = ragged()
    value, gradient = loss.measure(scores, labels, mask)
    for front, behind in ((0, 9), (5, 0), (3, 2)):
        sides = (front, behind)
        more_scores = torch.nn.functional.pad(scores, sides, value=math.nan)
        more_labels = torch.nn.functional.pad(labels, sides, value=math.nan)
        more_mask = torch.nn.functional.pad(mask, sides)
        found, slope = loss.measure(more_scores, more_labels, more_mask)
        when = f"with {front} more places of padding in front and {behind} behind"
        expect_close(found, value, "value", when, tolerance=1e-12)
        inner = slope[:, front : slope.shape[1] - behind]
        expect_close(inner, gradient, "gradient", when, tolerance=1e-12)


def lists_do_not_see_each_other(loss: Subject) -> None:
    """Scores and labels of other lists in the batch do not change a list's value and gradient."""
    scores, labels, mask = ragged()
    value, gradient = loss.measure(scores, labels, mask)
    for what, others in (("scores", math.nan), ("scores", 0.0), ("scores", 1e4), ("labels", 0.0)):
        changed = {"scores": scores.clone(), "labels": labels.clone()}
        changed[what][[0, 2]] = others
        found, slope = loss.measure(changed["scores"], changed["labels"], mask)
        when = f"when the {what} of the lists beside it became {others}"
        expect_close(found[1:2], value[1:2], "value", when, tolerance=1e-13, first=1)
        expect_close(slope[1:2], gradient[1:2], "gradient", when, tolerance=1e-13, first=1)


def a_list_alone_is_worth_what_it_is_in_a_batch(loss: Subject) -> None:
    """A list alone, without padding, has the value and gradient that it has in a batch."""
    scores, labels, mask = ragged()
    loss, labels = loss.silenced(scores, labels, mask)
    value, gradient = loss.measure(scores, labels, mask)
    for i, real in enumerate(mask):
        one = [x[i : i + 1, real] for x in (scores, labels, mask)]
        found, slope = loss.measure(*one)
        when = f"when list {i} stood alone without padding"
        expect_close(found, value[i : i + 1], "value", when, tolerance=1e-12, first=i)
        expected = gradient[i : i + 1, real] / (i + 1)
        expect_close(slope, expected, "gradient", when, tolerance=1e-12, first=i)


def the_order_of_the_items_means_nothing(loss: Subject) -> None:
    """Another order of the items, with their labels, keeps the value; gradients follow them."""
    scores, labels, mask = ragged()
    loss, labels = loss.silenced(scores, labels, mask)
    value, gradient = loss.measure(scores, labels, mask)
    for seed in (3, 4):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        found, slope = loss.measure(scores[:, order], labels[:, order], mask[:, order])
        when = "when the items were given in another order"
        expect_close(found, value, "value", when, tolerance=1e-12)
        expect_close(slope, gradient[:, order], "gradient", when, tolerance=1e-12)


def the_order_of_the_items_means_nothing_on_average_over_draws(loss: Subject) -> None:
    """The mean over draws does not depend on the order of the items, equal labels included."""
    scores, labels, mask = ragged()
    if not loss.draws(scores, labels, mask):
        raise DoesNotApply("it draws nothing")
    # every list many times in a batch, each copy with its own draws
    many = [x[:1].expand(400, -1) for x in (scores, labels, mask)]
    there = loss.measure(*many).value
    back = loss.measure(*(x.flip(-1) for x in many), seed=1).value
    error = ((there.var() + back.var()) / 400).sqrt()
    difference = there.mean() - back.mean()
    when = f"when the items were given in another order (the mean of 400 draws, {error:.2g} sure)"
    if not difference.abs() <= 5 * error + 1e-12:
        expect_close(back.mean()[None], there.mean()[None], "value", when, tolerance=1e-12)


def degenerate_lists_are_defined_in_float64(loss: Subject) -> None:
    """Empty, tied, single, far apart, saturated: value and gradient are finite in float64."""
    _defined(loss, torch.float64)


def degenerate_lists_are_defined_in_float32(loss: Subject) -> None:
    """The same in float32."""
    _defined(loss, torch.float32)


def degenerate_lists_are_defined_in_bfloat16(loss: Subject) -> None:
    """The same for scores in bfloat16."""
    _defined(loss, torch.bfloat16)


def a_list_of_no_items_is_worth_0(loss: Subject) -> None:
    """A list of padding only has the value 0 and the gradient 0."""
    for dtype in (torch.float64, torch.float32):
        value, gradient = _measured(loss, "a list of no items", dtype)
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
        value, gradient = loss.measure(scores, labels, torch.ones(2, size, dtype=torch.bool))
        expect_finite(value, "the value", f"of a list of {size} items")
        expect_finite(gradient, "the gradient", f"of a list of {size} items")


def _defined(loss: Subject, dtype: torch.dtype) -> None:
    for case in DEGENERATE:
        value, gradient = _measured(loss, case, dtype)
        when = f"for {case} in {str(dtype).removeprefix('torch.')}"
        expect_finite(value, "the value", when)
        expect_finite(gradient, "the gradient", when)


def _measured(loss: Subject, case: str, dtype: torch.dtype) -> Measured:
    scores, labels, present = DEGENERATE[case]
    mask = torch.tensor([present], dtype=torch.bool)
    return loss.measure(
        torch.tensor([scores], dtype=dtype), torch.tensor([labels], dtype=torch.float32), mask
    )
