"""Fully connected layers, their initialisation, and the head that gives one score per item."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.models.activation import activation_module
from ltr.models.dropout import Dropout
from ltr.models.packing import Packing
from ltr.typing import Scores


def dense_layers(
    width: int,
    sizes: Sequence[int],
    *,
    activation: str | None,
    dropout: float,
    input_norm: bool,
) -> nn.Sequential:
    """Layer norm of the input where asked for, then linear, activation, dropout for each size."""
    layers: list[nn.Module] = [nn.LayerNorm(width)] if input_norm else []
    for size_in, size_out in zip([width, *sizes], sizes, strict=False):
        layers += [nn.Linear(size_in, size_out), activation_module(activation), Dropout(dropout)]
    return nn.Sequential(*layers)


class ScoringHead(nn.Module):
    """Linear layer to one number per item and an activation; 0 on padding."""

    def __init__(self, size: int, output_activation: str | None) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 1)
        self.activation = activation_module(output_activation)

    def forward(self, items: Tensor, packing: Packing) -> Scores:
        """Scores ``[batch, list]`` of packed hidden vectors ``[items, size]``."""
        with torch.autocast(items.device.type, enabled=False):  # 8 bits would tie many items
            scores: Tensor = self.activation(self.linear(items.to(self.linear.weight.dtype)))
        return packing.unpack(scores.squeeze(-1)).masked_fill(~packing.mask, 0)


@torch.no_grad()
def xavier_uniform(model: nn.Module) -> None:
    """Draw every weight matrix of ``model`` from Xavier's uniform distribution, global generator.

    The query, key and value matrices that are stacked in one are drawn each by itself. Biases
    and norms keep PyTorch's own initialisation.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            parts = parameter.chunk(3) if name.endswith("in_proj.weight") else (parameter,)
            for part in parts:
                nn.init.xavier_uniform_(part)
