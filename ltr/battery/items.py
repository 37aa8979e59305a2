"""Properties of padding, of the lists of a batch, of the items' order, and of degenerate lists."""

import math

import torch

from ltr.battery.subject import DEGENERATE, Measured, Subject, ragged
from ltr.battery.verdict import Broken, DoesNotApply, Property, expect_close, expect_finite


def padding_is_never_read(loss: Subject) -> None:
    """NaN, infinities or 1e30 on padding change no value and no gradient, which is 0 there."""
    scores, labels, mask = ragged()
    expected = loss.measure(scores, labels, mask)
    for junk in (math.nan, math.inf, -math.inf, -1e30, 1e30):
        for what, given in (
            ("scores", (scores.masked_fill(~mask, junk), labels)),
            ("labels", (scores, labels.masked_fill(~mask, junk))),
        ):
            when = f"when the {what} on padding became {junk}: padding is read"
            found = loss.expect((*given, mask), expected, when)
            if (found.gradient[~mask] != 0).any():
                raise Broken(f"the gradient on padding is not 0 {when}")


def more_padding_and_its_place_change_nothing(loss: Subject) -> None:
    """Padding added behind, in front or on both sides changes no value and no gradient."""
    data, pad = ragged(), torch.nn.functional.pad
    value, gradient = loss.measure(*data)
    for front, behind in ((0, 9), (5, 0), (3, 2)):
        sides = (front, behind)
        wider = [pad(x, sides, value=math.nan) for x in data[:2]]
        when = f"with {front} more places of padding in front and {behind} behind"
        expected = Measured(value, pad(gradient, sides))
        loss.expect((*wider, pad(data[2], sides)), expected, when, tolerance=1e-12)


def lists_do_not_see_each_other(loss: Subject) -> None:
    """Scores and labels of other lists in the batch do not change a list's value and gradient."""
    scores, labels, mask = ragged()
    expected = loss.measure(scores, labels, mask)
    for what, others in (("scores", math.nan), ("scores", 0.0), ("scores", 1e4), ("labels", 0.0)):
        changed = {"scores": scores.clone(), "labels": labels.clone()}
        changed[what][[0, 2]] = others
        found = loss.measure(changed["scores"], changed["labels"], mask)
        when = f"when the {what} of the lists beside it became {others}"
        for kind, new, old in zip(Measured._fields, found, expected, strict=True):
            expect_close(new[1:2], old[1:2], kind, when, tolerance=1e-13, first=1)


def a_list_alone_is_worth_what_it_is_in_a_batch(loss: Subject) -> None:
    """A list alone, without padding, has the value and gradient that it has in a batch."""
    scores, labels, mask = ragged()
    loss, labels = loss.silenced(scores, labels, mask)
    value, gradient = loss.measure(scores, labels, mask)
    for i, real in enumerate(mask):
        expected = Measured(value[i : i + 1], gradient[i : i + 1, real] / (i + 1))
        alone = [x[i : i + 1, real] for x in (scores, labels, mask)]
        when = f"when list {i} stood alone without padding"
        loss.expect(alone, expected, when, tolerance=1e-12, first=i)


def the_order_of_the_items_means_nothing(loss: Subject) -> None:
    """Another order of the items, with their labels, keeps the value; gradients follow them."""
    scores, labels, mask = ragged()
    loss, labels = loss.silenced(scores, labels, mask)
    value, gradient = loss.measure(scores, labels, mask)
    for seed in (3, 4):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        moved, expected = [x[:, order] for x in (scores, labels, mask)], gradient[:, order]
        when = "when the items were given in another order"
        loss.expect(moved, Measured(value, expected), when, tolerance=1e-12)


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


def degenerate_lists(dtype: torch.dtype) -> Property:
    """Empty, tied, single, far apart, saturated: value and gradient are finite in ``dtype``."""
    what = str(dtype).removeprefix("torch.")

    def prop(loss: Subject) -> None:
        for case in DEGENERATE:
            found = _measured(loss, case, dtype)
            for kind, numbers in zip(Measured._fields, found, strict=True):
                expect_finite(numbers, f"the {kind}", f"for {case} in {what}")

    prop.__name__ = f"degenerate_lists_are_defined_in_{what}"
    return prop


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
        found = loss.measure(scores, labels, torch.ones(2, size, dtype=torch.bool))
        for kind, numbers in zip(Measured._fields, found, strict=True):
            expect_finite(numbers, f"the {kind}", f"of a list of {size} items")


def _measured(loss: Subject, case: str, dtype: torch.dtype) -> Measured:
    scores, labels, present = DEGENERATE[case]
    mask = torch.tensor([present], dtype=torch.bool)
    return loss.measure(torch.tensor([scores], dtype=dtype), torch.tensor([labels]).float(), mask)
