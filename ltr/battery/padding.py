"""Properties of padding."""

import math

import torch

from ltr.battery.findings import Broken, expect_close
from ltr.battery.lists import ragged
from ltr.battery.subject import Subject


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
