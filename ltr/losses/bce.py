"""BCE: each item by itself, relevant or not."""

from torch.nn.functional import logsigmoid

from ltr.losses.batch import without_padding
from ltr.metrics.relevance import is_relevant
from ltr.typing import Labels, Mask, PerList, Scores


def bce_loss(scores: Scores, labels: Labels, mask: Mask, *, relevant: float | int = 1) -> PerList:
    """Binary cross entropy of each list, ``[batch]``, >= 0.

    Mean over items of log(1 + exp(-s_j)) for relevant ones and log(1 + exp(s_j)) for the others:
    minus the log likelihood under P(relevant) = sigmoid(s_j) (the pointwise baseline of the RankNet
    report). The sigmoid is applied here. Natural logarithm, exact at any score. An empty list pulls
    its scores down; the reduction can leave it out.

    Args:
        relevant: > 0, the lowest label that counts as relevant.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([[2.0, 1.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> bce_loss(scores, labels, mask)  # (log 2 + log(1 + exp(-2))) / 2
    tensor([0.4100])
    >>> bce_loss(scores, labels, mask, relevant=2)  # (log 2 + log(1 + exp(2))) / 2
    tensor([1.4100])
    """
    scores, labels = without_padding(scores, labels, mask)
    signed = scores.where(is_relevant(labels, mask, relevant), -scores)
    costs = -logsigmoid(signed).masked_fill(~mask, 0)
    return costs.sum(-1) / mask.sum(-1).clamp(min=1)
