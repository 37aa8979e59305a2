"""ListNet: cross entropy of top-one probabilities."""

import torch

from ltr.metrics.per_list import check_lists
from ltr.typing import Labels, Mask, PerList, Scores


def listnet_loss(scores: Scores, labels: Labels, mask: Mask) -> PerList:
    """ListNet of each list, ``[batch]``, >= 0.

    Minus sum over items j of softmax(y)_j log softmax(s)_j: the cross entropy of the top-one
    probabilities of the labels, as they are, against those of the scores (Cao et al., 2007, section
    4; a baseline of the NeuralNDCG paper). Its least value is the entropy of softmax(y), not 0.
    Labels that are all equal, as in an empty list, pull the scores together; the reduction can
    leave empty lists out. One item gives 0.

    >>> scores, labels = torch.tensor([[0.0, 0.0, 7.0]]), torch.tensor([[3.0, 1.0, 2.0]])
    >>> listnet_loss(scores, labels, torch.tensor([[True, True, False]]))  # log 2
    tensor([0.6931])
    """
    check_lists(scores, labels, mask)
    return cross_entropy(scores, labels, mask)


def cross_entropy(scores: Scores, target: Scores, mask: Mask) -> PerList:
    """Minus sum over items j of softmax(target)_j log softmax(s)_j of each list, ``[batch]``."""
    dtype, outside = torch.promote_types(scores.dtype, torch.float32), ~mask
    target = target.detach().to(dtype).masked_fill(outside, -torch.inf).softmax(-1)
    costs = -scores.to(dtype).masked_fill(outside, -torch.inf).log_softmax(-1)
    # on padding the product is 0 times infinity
    return (target * costs).masked_fill(outside, 0).sum(-1)
