"""Ensembles: weighted means of the members' standardised scores, with given or chosen weights."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from ltr.arrays import Doubles, Ints
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, DataError
from ltr.training.device import matrix_products
from ltr.typing import Features, Mask, Ranks, Scores

EQUAL, VALI = "equal", "vali"
_PICKS = 10  # members picked on each half of the validation lists
_SPLITS = 5  # random splits of the validation lists into halves


class Member(nn.Module):
    """A trained model together with its own transform, so that its input is raw features."""

    def __init__(self, model: nn.Module, transform: FeatureTransform, precision: str) -> None:
        """Set the parts; the model was trained in ``precision``."""
        super().__init__()
        self.model, self.transform, self.precision = model, transform, precision

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return float32 scores ``[batch, list]`` for raw features."""
        items = self.transform(features[mask].cpu().numpy())  # real items only, no padding
        inputs = features.new_zeros(*mask.shape, items.shape[1])
        inputs[mask] = torch.from_numpy(items).to(features.device)
        device, half = features.device.type, self.precision == "bfloat16"
        with matrix_products(self.precision), torch.autocast(device, torch.bfloat16, enabled=half):
            scores: Tensor = self.model(inputs, mask, ranks)
        return scores.float()


class Ensemble(nn.Module):
    """The weighted mean of the ``standardised`` scores of several models. Standardising makes each
    score depend on the other items of its list, so an ensemble is not ``pointwise``.

    Args:
        members: at least one model, usually a ``Member``.
        weights: one weight >= 0 for each member, 1 in sum; a member with weight 0 is not run.
    """

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.members, self.weights = nn.ModuleList(members), tuple(weights)

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return float32 scores ``[batch, list]`` for raw features, 0 where ``mask`` is False."""
        total = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight:
                total += weight * standardised(member(features, mask, ranks), mask)
        return total.float()


def standardised(scores: Scores, mask: Mask) -> Tensor:
    """Standardise the scores of each list to mean 0 and (population) standard deviation 1.

    Returns float64 ``[batch, list]``, 0 where ``mask`` is False. If all scores of a list are equal,
    they become 0. Scores on padding have no influence.

    >>> mask = torch.tensor([[True, True, False]])
    >>> standardised(torch.tensor([[3.0, 1.0, 99.0]]), mask).tolist()
    [[1.0, -1.0, 0.0]]
    """
    values = scores.double().masked_fill(~mask, 0)
    count = mask.sum(-1, keepdim=True).clamp(min=1)
    off = (values - values.sum(-1, keepdim=True) / count).masked_fill(~mask, 0)
    deviation = (off.square().sum(-1, keepdim=True) / count).sqrt()
    # For equal float32 scores, the sum and so the mean are exact in float64.
    return (off / deviation).masked_fill(~mask | (deviation == 0), 0)


def parse_weights(given: Sequence[str], members: int) -> str | tuple[float, ...]:
    """Return the setting ``weights``: ``equal``, ``vali``, or numbers, which are scaled to a sum of
    1.

    ``ConfigError``: it is none of these, or there is not one number >= 0 for each member.
    """
    if len(given) == 1 and given[0] in (EQUAL, VALI):
        return given[0]
    try:
        values = [float(text) for text in given]
    except ValueError:
        values = []
    if not 0 < sum(values) < math.inf or min(values) < 0 or len(values) != members:
        raise ConfigError(
            f"weights={','.join(given)}: write equal, vali, or a number >= 0 for each of the "
            f"{members} runs, such as [0.7,0.3]"
        )
    return tuple(value / sum(values) for value in values)


def chosen_on_vali(
    measure: Callable[[tuple[int, ...]], Doubles], members: int, *, seed: int = 0
) -> tuple[tuple[float, ...], float]:
    """Choose weights by greedy selection with replacement on halves of the validation lists.

    The method is that of Caruana et al. (2004, "Ensemble selection from libraries of models"), who
    draw bags of models where this function draws halves of the lists. On a half, ten picks are
    made, one after the other. Each adds the member with which the mean score of all picks so far
    has the best metric. The best of the resulting ten sets is kept; if several are best, the first.
    The weights are the mean over both halves of five random splits. A few lists change this mean
    less than they would change a single choice on all lists.

    Args:
        measure: takes how often each member counts in the mean of the standardised scores; returns
            the metric of every validation list, NaN where the convention skips the list.
        members: the number of members.
        seed: the seed of the random splits.

    Returns:
        The weights, >= 0 with a sum of 1, and the mean metric of each choice on the half that was
        not used to make it.

    Raises:
        DataError: fewer than two validation lists count under the convention.
    """

    @cache
    def values(counts: tuple[int, ...]) -> Doubles:
        of_lists = measure(counts)
        return of_lists[~np.isnan(of_lists)]

    def picked(half: Ints) -> tuple[int, ...]:
        """Return how often each member occurs in the best set on ``half``."""
        counts = best = (0,) * members
        most = -math.inf
        for _ in range(_PICKS):
            options = [(*counts[:i], counts[i] + 1, *counts[i + 1 :]) for i in range(members)]
            found = [float(values(option)[half].mean()) for option in options]
            counts = options[int(np.argmax(found))]
            if max(found) > most:
                best, most = counts, max(found)
        return best

    lists = len(values((1,) * members))
    if lists < 2:
        raise DataError(
            f"weights=vali: {lists} vali list counts under this convention; set weights=equal"
        )
    rng = np.random.default_rng(seed)
    weights, apart = np.zeros(members), []
    for _ in range(_SPLITS):
        order = rng.permutation(lists)
        halves = order[: lists // 2], order[lists // 2 :]
        for own, other in (halves, halves[::-1]):
            counts = picked(own)
            weights += np.array(counts) / sum(counts)
            apart.append(float(values(counts)[other].mean()))
    weights /= weights.sum()
    return tuple(weights.tolist()), float(np.mean(apart))
