"""The gradient of a batch from its slices: the same bits however many processes compute them."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ltr.data.batches import Batch, Slices
from ltr.errors import ConfigError
from ltr.training.processes import gathered, size

# Of a slice: the sum of the losses of its counted lists, what these weigh in it, and in the epoch.
Sums = Callable[[Batch], tuple[Tensor, Tensor, Tensor]]

_DRAWS = 1  # ends the seed of a slice, which is that of no noise


def check_slices(model: nn.Module, shards: int | None) -> None:
    """Raise ``ConfigError`` for a model whose statistics would be those of a slice."""
    if (shards or 1) > 1 and (
        getattr(model, "batch_statistics", False)
        or any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())
    ):
        raise ConfigError(
            f"shards={shards}: the batch norm of {type(model).__name__} would see the lists of a "
            "slice, not those of the batch: train it in one process, with shards=null"
        )


def set_gradients(
    parameters: Sequence[nn.Parameter], batch: Slices, sums: Sums
) -> tuple[Tensor, Tensor]:
    """Set the gradients of the mean loss over the counted lists of ``batch``.

    A process computes the gradients of the sums of the losses of its slices. These rows are
    gathered, added in the order of the slices and divided once, by what all counted lists weigh.
    So slices with other numbers of counted lists are weighed right, which a mean of means is not,
    and the result depends on the slices, not on the processes. Each process holds ``shards`` rows.

    Random numbers are a pure function of seed, epoch, step and slice; those of the optimiser are
    of a slice that is not there, and so the same in all processes.

    Returns:
        The mean loss and what the lists weigh that it is the mean of, in the mean of the epoch.
    """
    sizes = [p.numel() for p in parameters]
    rows = parameters[0].new_zeros(-(-batch.shards // size()), sum(sizes) + 3)
    for row, (number, part) in zip(rows, batch.parts.items(), strict=False):
        if part is not None:
            _seed(batch, number)
            figures = sums(part)
            grads = torch.autograd.grad(figures[0], parameters, allow_unused=True)
            for place, grad in zip(row[:-3].split(sizes), grads, strict=True):
                if grad is not None:
                    place.copy_(grad.flatten())
            row[-3:] = torch.stack([one.detach().to(row.dtype) for one in figures])
    _seed(batch, batch.shards)
    total, *others = gathered(rows).transpose(0, 1).flatten(0, 1)[: batch.shards]
    for row in others:
        total += row
    loss, divisor, weight = total[-3:]
    divisor = torch.where(divisor > 0, divisor, 1.0)
    for p, grad in zip(parameters, (total[:-3] / divisor).split(sizes), strict=True):
        p.grad = grad.view_as(p).to(p.dtype)
    return loss / divisor, weight


def _seed(batch: Slices, number: int) -> None:
    """Seed PyTorch's global generators for a slice."""
    sequence = np.random.SeedSequence((*batch.draw, number, _DRAWS))
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))
