"""Ensembles: weighted means of the standardised scores of several models."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.data.batches import ItemTensors
from ltr.data.transforms import FeatureTransform
from ltr.training.device import matrix_products
from ltr.training.evaluation import padded_batches
from ltr.typing import Features, Mask, Ranks, Scores

_ITEMS = 32768  # padded items in a batch of scores


class Member(nn.Module):
    """A trained model together with its transform; it takes untransformed features."""

    def __init__(self, model: nn.Module, transform: FeatureTransform, precision: str) -> None:
        """Store ``model``, which was trained in ``precision`` on the output of ``transform``."""
        super().__init__()
        self.model = model
        self.transform = transform
        self.precision = precision

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return the float32 scores, ``[batch, list]``, for untransformed features."""
        items = self.transform(features[mask].cpu().numpy())  # real items only, no padding
        inputs = features.new_zeros(*mask.shape, items.shape[1])
        inputs[mask] = torch.from_numpy(items).to(features.device)
        autocast = torch.autocast(
            features.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"
        )
        with matrix_products(self.precision), autocast:
            scores: Tensor = self.model(inputs, mask, ranks)
        return scores.float()


class Ensemble(nn.Module):
    """A model whose score is the weighted mean of the ``standardised`` scores of its members.

    Standardisation makes each score depend on the other items of its list, so an ensemble is not a
    pointwise model.

    Args:
        members: at least one model, usually a ``Member``.
        weights: one weight >= 0 for each member; their sum is 1. A member with the weight 0 is not
            evaluated.
    """

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.weights = tuple(weights)

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return the float32 scores, ``[batch, list]``; they are 0 where ``mask`` is False.

        ``features`` are untransformed; each member applies its own transform.
        """
        total = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight:
                total += weight * standardised(member(features, mask, ranks), mask)
        return total.float()


def standardised(scores: Scores, mask: Mask) -> Tensor:
    """Return the scores scaled to mean 0 and (population) standard deviation 1 in each list.

    Args:
        scores: ``[batch, list]``; the scores of padding have no influence.
        mask: True where an item exists.

    Returns:
        The float64 scores, ``[batch, list]``; they are 0 where ``mask`` is False. If all scores of
        a list are equal, they become 0.

    >>> mask = torch.tensor([[True, True, False]])
    >>> standardised(torch.tensor([[3.0, 1.0, 99.0]]), mask).tolist()
    [[1.0, -1.0, 0.0]]
    """
    values = scores.double().masked_fill(~mask, 0)
    count = mask.sum(-1, keepdim=True).clamp(min=1)
    centred = (values - values.sum(-1, keepdim=True) / count).masked_fill(~mask, 0)
    deviation = (centred.square().sum(-1, keepdim=True) / count).sqrt()
    # If the float32 scores are equal, their float64 sum is exact, and so is their mean.
    return (centred / deviation).masked_fill(~mask | (deviation == 0), 0)


def standardised_in_lists(scores: Tensor, data: ItemTensors) -> Tensor:
    """Return the scores of all items, ``standardised`` in each list.

    Args:
        scores: ``[items]``, in the order of ``data``.
        data: the lists.

    Returns:
        The float64 scores, ``[items]``, on the device of ``data``.
    """
    raw_scores = scores.to(data.device)
    standardised_scores = torch.empty(len(scores), dtype=torch.float64, device=data.device)
    for batch in padded_batches(data, items=_ITEMS):
        batch_scores = standardised(raw_scores[batch.rows], batch.mask)
        standardised_scores[batch.rows[batch.mask]] = batch_scores[batch.mask]
    return standardised_scores
