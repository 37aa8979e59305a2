"""Expected reciprocal rank: the user who stops at the first item that satisfies."""

import torch

from ltr.errors import ConfigError
from ltr.metrics.checks import check_levels
from ltr.metrics.gains import cut
from ltr.metrics.ordering import at_ranks
from ltr.metrics.special_lists import float_type, settle
from ltr.typing import Labels, Mask, PerList, Scores


def err(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    levels: int = 5,
    ties: str = "file",
) -> PerList:
    """Expected reciprocal rank of each list, from 0 to 1, ``[batch]``.

    ERR@k = sum over ranks r <= k of 1/r R_r prod over i < r of (1 - R_i), with R_r = (2^y_r - 1) /
    2^(levels - 1) the probability that the item at rank r satisfies (Chapelle et al., 2009, eq. 4
    and 7). The best value is below 1. The labels are checked, for which a GPU must wait.

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list whose labels are all 0 (or without items), from 0 to 1;
            ``"skip"`` gives NaN, which the mean leaves out.
        levels: number of grades of the data set, 5 for the labels 0 to 4.
        ties: only ``file``: items with equal scores keep the order in which they are given.

    Raises:
        ConfigError: a knob is out of range, a label is above ``levels`` - 1, or ``ties`` is
            ``averaged``: that expected value is not computed.

    >>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> err(scores, labels, mask, levels=3).tolist()  # 1/4 + 1/2 * 3/4 * (1 - 1/4)
    [0.53125]
    """
    check_levels(levels)
    if ties == "averaged":
        raise ConfigError("err has no averaged ties: leave err out, or set ties to file")
    grades = labels.to(float_type(scores, labels)).masked_fill(~mask, 0)
    if bool((grades > levels - 1).any()):
        raise ConfigError(
            f"levels={levels} means labels up to {levels - 1}, but the data have larger ones: set "
            "levels (convention.levels) to the number of grades of the data"
        )
    satisfied = at_ranks((grades.exp2() - 1) / 2 ** (levels - 1), scores, mask, ties=ties)
    goes_on = (1 - satisfied).cumprod(-1).roll(1, -1)
    goes_on[:, :1] = 1
    ranks = torch.arange(1, scores.shape[-1] + 1, dtype=grades.dtype, device=grades.device)
    value = cut(satisfied * goes_on / ranks, k).sum(-1)
    return settle(value, scores, mask, without=(grades <= 0).all(-1), empty=empty)
