"""The tie rule."""

import torch

from ltr.battery.findings import expect_close
from ltr.battery.lists import padded
from ltr.battery.subject import Subject


def tied_scores_stand_in_file_order_or_share_ranks(loss: Subject) -> None:
    """Tied scores give what scores give that fall by a hair from item to item, at every k.

    A loss that uses ranks breaks ties as the metrics do, in the order in which items are given; for
    one in which tied items share their ranks the hair makes no difference.
    """
    rows = [
        [(0.5, 0), (0.5, 2), (0.5, 1), (-1.0, 3), (0.5, 0), (2.0, 0)],
        [(1.0, 0), (1.0, 0), (1.0, 4), (-0.5, 1), (-0.5, 2)],
        [(0.0, 1), (0.0, 3)],
    ]
    scores, labels, mask = padded(rows)
    hair = 1e-12 * torch.arange(scores.shape[-1], dtype=scores.dtype)
    losses = {"": loss}
    if "k" in loss.knobs:
        losses |= {f" at k={k}": loss.at(k) for k in (1, 2, 3, 4)}
    for at, subject in losses.items():
        falling = subject.measure(scores - hair, labels, mask).value
        tied = subject.measure(scores, labels, mask).value
        when = f"when scores 1e-12 apart, falling in file order, became equal{at}: wrong tie rule"
        expect_close(tied, falling, "value", when, tolerance=1e-6)
