"""Ordinal regression: one threshold between each two neighbouring grades."""

import torch
from torch.nn.functional import logsigmoid

from ltr.errors import ConfigError
from ltr.knobs import check_levels, check_positive
from ltr.losses.batch import without_padding
from ltr.typing import Labels, Mask, PerList, Scores

MOST_LEVELS = 1000  # a number is kept for each item and threshold


def ordinal_loss(
    scores: Scores, labels: Labels, mask: Mask, *, levels: int = 5, sigma: float = 1.0
) -> PerList:
    """Ordinal regression of each list, ``[batch]``, >= 0.

    Mean over items of the sum over grades l from 1 to levels - 1 of log(1 + exp(-z)), z =
    sigma (s_j - l + 1/2) if y_j >= l and -z otherwise: the all-threshold logistic loss (Rennie and
    Srebro, 2005, section 4.2), each threshold a binary cross entropy of P(y >= l). A label between
    two grades counts as both, in proportion: its P(y >= l) is y - l + 1 at the grade l above it.
    The thresholds stand fixed half way between the grades, so that scores are in units of the
    labels. An empty list pulls its scores below the first threshold.

    Args:
        labels: ``[batch, list]``, from 0 to ``levels`` - 1.
        levels: from 2 to 1000, the number of grades (5 for labels 0 to 4).
        sigma: > 0, slope of the logistic, in units of 1 / score.

    >>> scores, labels = torch.tensor([[0.5]]), torch.tensor([[1.0]])
    >>> ordinal_loss(scores, labels, torch.tensor([[True]]), levels=3)  # log 2 + log(1 + exp(-1))
    tensor([1.0064])
    >>> ordinal_loss(scores, 1.5 * labels, torch.tensor([[True]]), levels=3)  # half way to 2
    tensor([1.5064])
    """
    check_positive("sigma", sigma)
    check_levels(levels)
    if levels > MOST_LEVELS:
        raise ConfigError(
            f"levels={levels:g} are too many for ordinal, with a threshold for each: write at most "
            f"{MOST_LEVELS}, or choose a loss of the labels as numbers, such as loss=rmse"
        )
    scores, labels = without_padding(scores, labels, mask)
    grades = torch.arange(1, levels, dtype=scores.dtype, device=scores.device)
    margins = sigma * (scores.unsqueeze(-1) - grades + 0.5)
    above = labels.unsqueeze(-1) - grades
    signed = margins.where(above >= 0, -margins)
    share = (1 + above).clamp(min=0).masked_fill(above >= 0, 0)  # 0 for a label that is a grade
    costs = (-logsigmoid(signed) - share * margins).sum(-1).masked_fill(~mask, 0)
    return costs.sum(-1) / mask.sum(-1).clamp(min=1)
