"""RMSE: the pointwise baseline."""

from ltr.knobs import check_positive
from ltr.losses.batch import without_padding
from ltr.typing import Labels, Mask, PerList, Scores


def rmse_loss(scores: Scores, labels: Labels, mask: Mask, *, levels: float | int = 5) -> PerList:
    """Root mean square error of each list, ``[batch]``, >= 0.

    sqrt(mean over items of (levels sigmoid(s_j) - y_j)^2) (the NeuralNDCG paper, 5.4). The root is
    taken per list; at an error of exactly 0 the gradient is 0. An empty list is a regression to 0.

    Args:
        scores: ``[batch, list]``; the sigmoid is applied here.
        labels: ``[batch, list]``, from 0 to ``levels``.
        levels: > 0, the number of grades (5 for labels 0 to 4).

    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[4.0, 0.0]])
    >>> rmse_loss(scores, labels, torch.tensor([[True, True]]), levels=4)  # 2 against 4, 0
    tensor([2.])
    """
    check_positive("levels", levels)
    scores, labels = without_padding(scores, labels, mask)
    squares = (levels * scores.sigmoid() - labels).square().masked_fill(~mask, 0)
    mean = squares.sum(-1) / mask.sum(-1).clamp(min=1)
    exact = mean == 0  # where the root has no derivative
    return mean.masked_fill(exact, 1).sqrt().masked_fill(exact, 0)
