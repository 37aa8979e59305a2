"""The mean of a network's weights over its epochs."""

from copy import deepcopy

import torch
from torch import nn

from ltr.training.settings import Settings


class WeightAverage:
    """A model whose weights are the mean of those that another had at the end of each epoch.

    ``ema``: epoch i of n weighs ``average_decay ** (n - i)``; ``swa``: the epochs after
    ``average_start * epochs`` weigh the same (Izmailov et al. 2018), and until then the weights are
    those of the present epoch. The mean divides by the sum of what its epochs weigh, so that the
    untrained model has no part in it. The running statistics of a batch norm are averaged as
    weights are, not measured anew.

    Attributes:
        model: a copy of the other model, untrained until ``add``.
        epochs: the sum of the weights of the epochs in it.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.epochs = deepcopy(model), 0.0

    @torch.no_grad()
    def add(self, model: nn.Module, epoch: int, settings: Settings) -> None:
        """Take in the weights of ``model`` at the end of ``epoch``, from 1."""
        if settings.average == "ema":
            carried = settings.average_decay
        else:
            carried = float(epoch - 1 > settings.average_start * settings.epochs)
        self.epochs = 1 + carried * self.epochs
        ours = self.model.state_dict().values()
        for mean, new in zip(ours, model.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(new, 1 / self.epochs)
            else:
                mean.copy_(new)
