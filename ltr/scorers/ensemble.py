"""Ensembles: the mean of standardised scores by weights, given or chosen on vali."""

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
_PICKS = 10  # members picked on each half of vali: weights are tenths, and means of such
_SPLITS = 5  # of vali into halves


class Member(nn.Module):
    """A trained model that reads features as the lists have them, before its own transform."""

    def __init__(self, model: nn.Module, transform: FeatureTransform, precision: str) -> None:
        """``precision`` is that of its run."""
        super().__init__()
        self.model, self.transform, self.precision = model, transform, precision

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Scores ``[batch, list]`` float32."""
        items = self.transform(features[mask].cpu().numpy())  # no row of padding goes in
        inputs = features.new_zeros(*mask.shape, items.shape[1])
        inputs[mask] = torch.from_numpy(items).to(features.device)
        device, half = features.device.type, self.precision == "bfloat16"
        with matrix_products(self.precision), torch.autocast(device, torch.bfloat16, enabled=half):
            scores: Tensor = self.model(inputs, mask, ranks)
        return scores.float()


class Ensemble(nn.Module):
    """The mean of ``standardised`` scores of the members by their weights.

    A score depends on the other items of its list, so that it is not ``pointwise``.

    Args:
        members: at least one, mostly ``Member``.
        weights: >= 0, one for each, 1 in sum; a member of weight 0 is not asked.
    """

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.members, self.weights = nn.ModuleList(members), tuple(weights)

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Scores ``[batch, list]`` float32 of raw features, 0 where ``mask`` is False."""
        total = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight:
                total += weight * standardised(member(features, mask, ranks), mask)
        return total.float()


def standardised(scores: Scores, mask: Mask) -> Tensor:
    """Scores less their list's mean, over its standard deviation (population), in float64.

    A list of equal scores gives zeros. ``[batch, list]``, 0 where ``mask`` is False; what stands on
    padding is not read.

    >>> mask = torch.tensor([[True, True, False]])
    >>> standardised(torch.tensor([[3.0, 1.0, 99.0]]), mask).tolist()
    [[1.0, -1.0, 0.0]]
    """
    values = scores.double().masked_fill(~mask, 0)
    count = mask.sum(-1, keepdim=True).clamp(min=1)
    off = (values - values.sum(-1, keepdim=True) / count).masked_fill(~mask, 0)
    deviation = (off.square().sum(-1, keepdim=True) / count).sqrt()
    # of equal float32 scores the sum, and so the mean, is exact in float64
    return (off / deviation).masked_fill(~mask | (deviation == 0), 0)


def parse_weights(given: Sequence[str], members: int) -> str | tuple[float, ...]:
    """``equal``, ``vali``, or given weights, scaled to 1 in sum.

    Raises:
        ConfigError: it is none of these, or not a weight for each member.
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
    """Weights by greedy selection with replacement, on random halves of vali.

    On a half, the member is picked ten times that makes the mean of those picked best, and the best
    of the ten sets counts; of equal ones the first (Caruana et al., 2004, "Ensemble selection from
    libraries of models", whose bags are of models; here they are of lists). The weights are the
    mean over both halves of five splits, which a few lists move less than one choice on all.

    Args:
        measure: how often each member counts in the mean of the standardised scores -> the metric
            of every vali list, NaN where the convention skips it.
        members: how many.
        seed: of the splits.

    Returns:
        The weights, >= 0 and 1 in sum, and the metric on the halves on which they were not chosen.

    Raises:
        DataError: fewer than two vali lists count.
    """

    @cache
    def values(counts: tuple[int, ...]) -> Doubles:
        of_lists = measure(counts)
        return of_lists[~np.isnan(of_lists)]

    def picked(half: Ints) -> tuple[int, ...]:
        """How often each member was picked in the set that is best on ``half``."""
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
