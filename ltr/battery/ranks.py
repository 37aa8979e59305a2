"""Properties of ranks: the tie rule, the cutoff ``k``, and the metric in the sharp limit."""

import inspect

import torch

from ltr.battery.subject import Subject, padded, ragged
from ltr.battery.verdict import Broken, DoesNotApply, expect_close
from ltr.errors import ConfigError
from ltr.metrics import Metric


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
    losses = {"": loss}
    if "k" in loss.knobs:
        losses |= {f" at k={k}": loss.at(k) for k in (1, 2, 3, 4)}
    for at, subject in losses.items():
        falling = subject.measure(scores - hair, labels, mask).value
        tied = subject.measure(scores, labels, mask).value
        when = f"when scores 1e-12 apart, falling in file order, became equal{at}: wrong tie rule"
        expect_close(tied, falling, "value", when, tolerance=1e-6)


def a_cutoff_below_1_is_refused(loss: Subject) -> None:
    """k = 0 and k = -1 raise a ValueError of one line."""
    data = ragged()
    for k in (0, -1):
        refusing = loss.at(k)
        try:
            with torch.random.fork_rng(devices=[]):
                refusing.loss(*data)
        except ValueError as error:
            if not str(error) or "\n" in str(error):
                raise Broken(f"k={k} is refused, but not in one line that says why") from error
        except Exception as error:
            raise Broken(f"k={k} raised {type(error).__name__}, not a ValueError") from error
        else:
            raise Broken(f"k={k} was taken: raise a ValueError")


def a_cutoff_beyond_the_list_is_none(loss: Subject) -> None:
    """k beyond every list is k = None, but for a division by k as in precision."""
    scores, labels, mask = ragged()
    whole = loss.at(None).measure(scores, labels, mask).value
    shares = mask.sum(-1).to(whole.dtype)
    for k in (99, 1000):
        found = loss.at(k).measure(scores, labels, mask).value
        if not torch.allclose(found, whole * shares / k, rtol=0, atol=1e-12):
            expect_close(found, whole, "value", f"from k=None to k={k}", tolerance=1e-12)


def the_cutoff_is_honoured(loss: Subject) -> None:
    """Each k gives another value, and below a perfect top k nothing matters, at every k.

    A loss that moves the items of a perfect order, where labels are tied, may do so at a cutoff.
    """
    data = ragged()
    values = {k: loss.at(k).measure(*data).value for k in (None, 1, 2)}
    for k, other in ((1, None), (2, None), (1, 2)):
        if torch.allclose(values[k], values[other], rtol=1e-9, atol=1e-12):
            raise Broken(f"k={k} gave the same values as k={other}: k is ignored")
    order = padded([[(-50.0 * rank, label) for rank, label in enumerate([4, 4, 3, 0, 0])]])
    at_rest = not loss.at(None).sharp().measure(*order).gradient.abs().max() > 1e-9
    # the first k ranks are perfect and far above the rest, which stands in two wrong orders
    for k, top in ((1, [4]), (2, [4, 4]), (3, [4, 4, 3])):
        found = []
        for rest in ([0, 1, 3, 0], [1, 0, 0, 3]):
            row = [(-50.0 * rank, label) for rank, label in enumerate([*top, *rest])]
            found.append(loss.at(k).sharp().measure(*padded([row])))
        when = f"at k={k} when only items ranked beyond k changed places: k is ignored"
        expect_close(found[1].value, found[0].value, "value", when, tolerance=1e-9)
        for _, gradient in found if at_rest else ():
            when = f"at k={k} between the items of a list whose top {k} is perfect: k is ignored"
            expect_close(gradient, torch.zeros_like(gradient), "gradient", when, tolerance=1e-9)


def the_best_order_is_the_bound_at_every_cutoff(loss: Subject) -> None:
    """A perfect and well separated order has the value -1 at every k: the ideal is cut at k too."""
    orders = [[4, 3, 2, 1, 0, 0], [3, 2, 2, 1], [4, 1], [2]]
    best = padded([[(-50.0 * r, label) for r, label in enumerate(row)] for row in orders])
    worse = padded([[(50.0 * r, label) for r, label in enumerate(row)] for row in ([3, 2, 1],)])
    whole = loss.at(None).sharp()
    bound = -torch.ones(len(orders), dtype=torch.float64)
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
    shared = set(inspect.signature(metric).parameters) & set(loss.knobs) - {"k"}
    knobs = {name: loss.knobs[name] for name in sorted(shared)} | {"empty": 0.0}
    scores, labels, mask = ragged()
    scores = 50 * scores.argsort(-1).to(scores.dtype)
    labels = labels * torch.tensor([[1.0], [1.0], [0.0]], dtype=labels.dtype)
    sharp = loss.sharp()
    for k in (None, 1, 2, 3, 4, 5, 6, 99) if "k" in loss.knobs else [None]:
        at = sharp.at(k) if "k" in loss.knobs else sharp
        for given in (mask, torch.ones_like(mask)):
            try:
                exact = metric(scores, labels, given, k=k, **knobs)
            except ConfigError as error:
                raise DoesNotApply(f"there is no exact metric: {error}") from error
            found = at.measure(scores, labels, given).value
            expect_close(found, -exact, "value", f"from minus {loss.metric} at k={k}",
                         tolerance=1e-9)  # fmt: skip


# the metric of each loss of ours in its sharp limit
GOES_TO = {
    f"{name}_loss": name.split("_")[-1]
    for name in (
        *("approx_ndcg", "lap_ndcg", "neural_err", "neural_map", "neural_mrr", "neural_ndcg"),
        *("neural_precision", "ot_ndcg", "soft_ndcg", "softsort_ndcg"),
    )
} | {"plrank_loss": "ndcg"}
