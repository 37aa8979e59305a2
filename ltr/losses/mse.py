"""MSE: regression to the labels."""

from ltr.losses.batch import without_padding
from ltr.typing import Labels, Mask, PerList, Scores


def mse_loss(scores: Scores, labels: Labels, mask: Mask) -> PerList:
    """Mean square error of each list, ``[batch]``, >= 0.

    Mean over items of (s_j - y_j)^2: subset regression (Cossock and Zhang, 2006, section 5, with
    equal weights). Scores are in units of the labels; ``rmse_loss`` applies a sigmoid first. An
    empty list is a regression to 0.

    >>> import torch
    >>> scores, labels = torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[2.0, 0.0, 0.0]])
    >>> mse_loss(scores, labels, torch.tensor([[True, True, False]]))  # (1 + 4) / 2
    tensor([2.5000])
    """
    scores, labels = without_padding(scores, labels, mask)
    squares = (scores - labels).square()
    return squares.sum(-1) / mask.sum(-1).clamp(min=1)
