"""Losses that treat each item by itself: regression, binary relevance and ordinal regression."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.nn.functional import mse_loss as mse

from ltr.errors import ConfigError
from ltr.knobs import check_levels, check_positive
from ltr.losses.batch import without_padding
from ltr.metrics.relevance import is_relevant
from ltr.typing import Labels, Mask, PerList, Scores

MAX_LEVELS = 1000  # for ``ordinal``, which stores a number for each item and threshold


def _mean(costs: Tensor, mask: Mask) -> PerList:
    """Return the mean over the items of each list; ``costs`` must be 0 on padding."""
    return costs.sum(-1) / mask.sum(-1).clamp(min=1)


def mse_loss(scores: Scores, labels: Labels, mask: Mask) -> PerList:
    r"""Return the mean squared error of each list.

    .. math::
        \ell(s, y) = \frac{1}{n} \sum_j (s_j - y_j)^2

    The scores are in units of the labels.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: the shapes or devices of the tensors differ, or the mask is not boolean.

    Source: Cossock and Zhang (2006), section 5: subset regression with equal weights.

    >>> mask = torch.tensor([[True, True, False]])
    >>> mse_loss(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[2.0, 0.0, 0.0]]), mask)
    tensor([2.5000])
    """
    scores, labels = without_padding(scores, labels, mask)
    return _mean((scores - labels).square(), mask)


def rmse_loss(scores: Scores, labels: Labels, mask: Mask, *, levels: float | int = 5) -> PerList:
    r"""Return the root mean squared error of each list.

    .. math::
        \ell(s, y) = \sqrt{\frac{1}{n} \sum_j
        (\mathrm{levels} \cdot \operatorname{sigmoid}(s_j) - y_j)^2}

    If the error is exactly 0, the gradient is 0.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        levels: > 0, the number of grades (5 for labels 0 to 4).

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Pobrotyn and Bialobrzeski (2021), section 5.4.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 1.0]])
    >>> rmse_loss(scores, labels, labels >= 0, levels=4)  # 2 against 3 and 1
    tensor([1.])
    """
    levels = check_positive("levels", levels)
    scores, labels = without_padding(scores, labels, mask, fill=-torch.inf)  # its error is 0
    mean = _mean(mse(levels * scores.sigmoid(), labels, reduction="none"), mask)
    exact = (mean == 0).to(mean.dtype)  # 1 where the root has no finite derivative
    return (mean + exact).sqrt() - exact


def bce_loss(scores: Scores, labels: Labels, mask: Mask, *, relevant: float | int = 1) -> PerList:
    r"""Return the binary cross entropy of each list.

    .. math::
        \ell(s, y) = \frac{1}{n} \sum_j \begin{cases}
        \log(1 + e^{-s_j}) & \text{if item } j \text{ is relevant} \\
        \log(1 + e^{s_j}) & \text{else} \end{cases}

    This is minus the mean log likelihood under P(relevant) = sigmoid(s_j).

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        relevant: > 0, the smallest label that counts as relevant.

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Team Macrohard (n.d.), section 5, where a network is trained with this loss.

    >>> scores, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([[2.0, 1.0]])
    >>> bce_loss(scores, labels, labels > 0, relevant=2)  # (log 2 + log(1 + exp(2))) / 2
    tensor([1.4100])
    """
    scores, labels = without_padding(scores, labels, mask)
    signed = scores.where(is_relevant(labels, mask, relevant), -scores)
    return _mean(-logsigmoid(signed).masked_fill(~mask, 0), mask)


def ordinal_loss(
    scores: Scores, labels: Labels, mask: Mask, *, levels: int = 5, sigma: float = 1.0
) -> PerList:
    r"""Return the ordinal regression loss of each list.

    .. math::
        \ell(s, y) = \frac{1}{n} \sum_j \sum_{l = 1}^{\mathrm{levels} - 1} \begin{cases}
        \log(1 + e^{-z_{jl}}) & y_j \ge l \\ \log(1 + e^{z_{jl}}) & y_j < l \end{cases}, \qquad
        z_{jl} = \sigma \left(s_j - l + \frac{1}{2}\right)

    Scores are in units of the labels. The cost of a label between two grades is interpolated
    linearly between the costs of these grades.

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.losses``.
        labels: ``[batch, list]``, from 0 to ``levels`` - 1.
        levels: from 2 to 1000, the number of grades (5 for labels 0 to 4).
        sigma: > 0, slope of the logistic function, in units of 1 / score.

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: the all-threshold logistic loss of Rennie and Srebro (2005), section 4.2. The paper
    learns the thresholds; here they are fixed halfway between the grades.

    >>> scores, labels = torch.tensor([[0.5]]), torch.tensor([[1.0]])
    >>> ordinal_loss(scores, labels, labels > 0, levels=3)  # log 2 + log(1 + exp(-1))
    tensor([1.0064])
    """
    sigma = check_positive("sigma", sigma)
    levels = check_levels(levels)
    if levels > MAX_LEVELS:
        raise ConfigError(
            f"levels={levels:g} is too large for ordinal, which stores a number for each item and "
            f"grade: write at most {MAX_LEVELS}, or choose a loss that treats labels as numbers, "
            "such as loss=rmse"
        )
    scores, labels = without_padding(scores, labels, mask)
    grades = torch.arange(1, levels, dtype=scores.dtype, device=scores.device)
    margins = sigma * (scores.unsqueeze(-1) - grades + 0.5)
    above = labels.unsqueeze(-1) - grades
    signed = margins.where(above >= 0, -margins)
    fraction = (1 + above).clamp(min=0).masked_fill(above >= 0, 0)  # 0 if the label is a grade
    costs = (-logsigmoid(signed) - fraction * margins).sum(-1)
    return _mean(costs.masked_fill(~mask, 0), mask)
