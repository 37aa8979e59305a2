"""A small scorer, and labels of lists for losses that score in chunks."""

import torch
from torch import nn

LABELS = [[2, 0, 1], [0], [1, 0, 0, 3, 0], [0, 0]]
ITEMS = 11


def scorer(dropout: float = 0.0) -> nn.Module:
    """A small network that scores items."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))


def gradients(model: nn.Module) -> torch.Tensor:
    """All gradients of a model, one after another."""
    return torch.cat([p.grad.flatten() for p in model.parameters()])
