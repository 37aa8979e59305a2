"""Metrics for choosing epochs and models; they do not depend on the order of items in a list."""

from dataclasses import dataclass, replace

import torch

from ltr.metrics.ordering import order_by_score
from ltr.metrics.spec import Convention, Metric
from ltr.typing import Labels, Mask, PerList, PerListMask, Scores

_NOT_AVERAGED = ("err",)  # metrics of this project that refuse ties="averaged"


@dataclass(frozen=True)
class TiesAveraged:
    """A metric with ties averaged, whatever the convention says; it is called like a ``Metric``.

    If items with equal scores kept the order of the file, a file sorted by label would make a model
    with many equal scores look perfect. So epochs, trials and weights are chosen by this value.

    The value is the expected value over all orders of items with equal scores. Some metrics have no
    averaged ties: ``err``, and the user's own functions without a parameter ``ties``. For these,
    the value is the mean of two values: one with tied items in descending order of label, and one
    with tied items in ascending order. If no tie in a list matters, the value is that of the metric
    itself, to the last bit.

    Attributes:
        metric: the metric whose ties are averaged.
    """

    metric: Metric

    def __str__(self) -> str:
        return f"{self.metric}, ties averaged"

    @property
    def is_setting(self) -> bool:
        """Whether ``convention.ties=averaged`` computes the same value."""
        return "ties" in self.metric.parts and self.metric.name not in _NOT_AVERAGED

    def __call__(
        self, scores: Scores, labels: Labels, mask: Mask, convention: Convention
    ) -> PerList:
        """Return the value of each list, ``[batch]``."""
        value = self.metric(scores, labels, mask, convention)
        tied = ties_that_matter(scores, labels, mask)
        if not bool(tied.any()):
            return value
        if self.is_setting:
            averaged = self.metric(scores, labels, mask, replace(convention, ties="averaged"))
        else:
            best = self.metric(*_break_ties(scores, labels, mask, labels), convention)
            worst = self.metric(*_break_ties(scores, labels, mask, -labels), convention)
            averaged = (best + worst) / 2
        return torch.where(tied, averaged, value)


def ties_that_matter(scores: Scores, labels: Labels, mask: Mask) -> PerListMask:
    """Return, for each list, ``[batch]``, whether items of equal score have different labels.

    Items with the score -inf were not retrieved, so ties between them do not matter.

    >>> scores = torch.tensor([[0.5, 0.5, 0.1], [0.5, 0.5, 0.1]])
    >>> labels = torch.tensor([[2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> ties_that_matter(scores, labels, labels >= 0).tolist()
    [True, False]
    """
    order = order_by_score(scores, mask)
    ranked_scores = scores.gather(-1, order)
    ranked_labels = labels.gather(-1, order)
    counted = mask.gather(-1, order)[:, 1:] & (ranked_scores[:, 1:] > -torch.inf)
    same_score = ranked_scores[:, 1:] == ranked_scores[:, :-1]
    other_label = ranked_labels[:, 1:] != ranked_labels[:, :-1]
    return (counted & same_score & other_label).any(-1)


def _break_ties(
    scores: Scores, labels: Labels, mask: Mask, keys: Labels
) -> tuple[Scores, Labels, Mask]:
    """Return the lists sorted by descending score; ties are sorted by descending ``keys``."""
    order = order_by_score(keys, mask)
    order = order.gather(-1, order_by_score(scores.gather(-1, order), mask.gather(-1, order)))
    return scores.gather(-1, order), labels.gather(-1, order), mask.gather(-1, order)
