"""Properties of the lists of a batch, and of the order of the items in a list."""

import math

import torch

from ltr.battery.findings import DoesNotApply, expect_close
from ltr.battery.lists import ragged
from ltr.battery.subject import Subject


def lists_do_not_see_each_other(loss: Subject) -> None:
    """Other scores or labels in the other lists of a batch leave a list's value and gradient."""
    scores, labels, mask = ragged()
    value, gradient = loss.measure(scores, labels, mask)
    for what, others in (("scores", math.nan), ("scores", 0.0), ("scores", 1e4), ("labels", 0.0)):
        changed = {"scores": scores.clone(), "labels": labels.clone()}
        changed[what][[0, 2]] = others
        found, slope = loss.measure(changed["scores"], changed["labels"], mask)
        when = f"when the {what} of the lists beside it became {others}"
        expect_close(found[1:2], value[1:2], "value", when, tolerance=1e-13)
        expect_close(slope[1:2], gradient[1:2], "gradient", when, tolerance=1e-13)


def a_list_alone_is_worth_what_it_is_in_a_batch(loss: Subject) -> None:
    """A list by itself, without any padding, has the value and gradient that it has in a batch."""
    scores, labels, mask = ragged()
    loss, labels = loss.silenced(scores, labels, mask)
    value, gradient = loss.measure(scores, labels, mask)
    for i, real in enumerate(mask):
        one = [x[i : i + 1, real] for x in (scores, labels, mask)]
        found, slope = loss.measure(*one)
        when = f"when list {i} stood alone without padding"
        expect_close(found, value[i : i + 1], "value", when, tolerance=1e-12)
        expected = gradient[i : i + 1, real] / (i + 1)
        expect_close(slope, expected, "gradient", when, tolerance=1e-12)


def the_order_of_the_items_means_nothing(loss: Subject) -> None:
    """Items given in another order, with their labels, leave the value; gradients follow them."""
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
