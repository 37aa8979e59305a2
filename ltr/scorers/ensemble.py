"""``Ensemble``: the weighted mean of several models' scores, standardised within each list."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.data.transforms import FeatureTransform
from ltr.training.device import matrix_products
from ltr.typing import Features, Mask, Ranks, Scores


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
        half = self.precision == "bfloat16"
        with (
            matrix_products(self.precision),
            torch.autocast(features.device.type, torch.bfloat16, enabled=half),
        ):
            scores: Tensor = self.model(inputs, mask, ranks)
        return scores.float()


class Ensemble(nn.Module):
    """The mean of ``standardised`` scores of the members by their weights.

    A score depends on the other items of its list, so that it is not ``pointwise``.

    Args:
        members: at least one.
        weights: >= 0, one for each, 1 in sum; a member of weight 0 is not asked.
    """

    def __init__(self, members: Sequence[Member], weights: Sequence[float]) -> None:
        super().__init__()
        self.members, self.weights = nn.ModuleList(members), tuple(weights)
        if any(hasattr(member.model, "bytes_needed") for member in members):
            self.bytes_needed = self._bytes_needed

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Scores ``[batch, list]`` float32 of raw features, 0 where ``mask`` is False."""
        total = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight:
                total += weight * standardised(member(features, mask, ranks), mask)
        return total.float()

    def _bytes_needed(self, items: int, *, training: bool) -> int:
        """The most that a member needs for a list of ``items``: they score one after the other."""
        asked = [getattr(member.model, "bytes_needed", None) for member in self.members]
        return max(int(one(items, training=training)) for one in asked if one is not None)


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
