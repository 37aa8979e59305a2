"""The processes that train one model together: started by torchrun, joined by torch.distributed.

Each computes some shards of every batch and scores some lists; the first alone writes. All take the
same steps, so that their weights stay the same. A process on its own is the first of one, and
nothing here costs it anything.
"""

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ltr.data.batches import Batch, Slices
from ltr.errors import ConfigError, TrainingError
from ltr.training.device import pick_device
from ltr.training.hooks import quiet

T = TypeVar("T")
# Of a shard: the sum of the losses of its counted lists, what these weigh in it, and in the epoch.
Sums = Callable[[Batch], tuple[Tensor, Tensor, Tensor]]

_DRAWS = 1  # ends the seed of a shard, which is that of no noise
_joined = False


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Within, this process and all others that torchrun has started are joined.

    On a GPU each has the one of its ``LOCAL_RANK``, and NCCL sends the gradients; gloo sends what
    is on the CPU. The log and the bars are those of the first. ``ConfigError``: too few GPUs.
    """
    global _joined
    backend = "gloo"
    if pick_device(device).type == "cuda":
        local, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= count:
            raise ConfigError(
                f"torchrun has started more than {count} processes on a machine with {count} "
                f"GPUs: set --nproc-per-node={count}, or device=cpu"
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend)
    _joined = True
    if not is_main():
        logging.disable()
    try:
        with quiet(not is_main()):
            yield
        dist.destroy_process_group()  # after an error the others may be gone
    finally:
        _joined = False


def size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _joined else 1


def rank() -> int:
    """The number of this process among them, from 0."""
    return dist.get_rank() if _joined else 0


def is_main() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def rank_share(parts: Iterable[T]) -> Iterator[T]:
    """The share of this process in ``parts``: of n processes every n-th."""
    return itertools.islice(parts, rank(), None, size())


def all_reduce(values: Tensor) -> Tensor:
    """``values``, of which each process has computed its share and left the rest 0.

    Added as whole numbers, so that every bit is kept: of ``-0.0`` and NaN too.
    """
    if size() > 1:
        whole = {4: torch.int32, 8: torch.int64}[values.element_size()]
        with _connected():
            dist.all_reduce(values.view(whole))
    return values


def all_gather(rows: Tensor) -> Tensor:
    """The rows of all processes, ``[size, *rows.shape]``."""
    if size() == 1:
        return rows[None]
    everyone = rows.new_empty(size(), *rows.shape)
    with _connected():
        dist.all_gather([*everyone], rows)
    return everyone


def any_interrupt(signum: int | None) -> int | None:
    """The signal that any process has got, in all of them alike; all wait for each other."""
    if size() == 1:
        return signum
    return int(all_gather(torch.tensor(signum or 0)).max()) or None


def barrier() -> None:
    """Wait until all processes are here."""
    any_interrupt(None)


def broadcast(value: T) -> T:
    """The ``value`` of the first process, in all of them."""
    values = [value]
    if size() > 1:
        with _connected():
            dist.broadcast_object_list(values)
    return values[0]


def check_alike(model: nn.Module) -> None:
    """Raise ``TrainingError`` where the processes' weights are no longer the same."""
    if size() == 1:
        return
    held = torch.cat([one.detach().double().flatten() for one in model.state_dict().values()])
    bits = held.view(torch.int64)
    if (all_gather(bits) != bits).any():
        raise TrainingError(
            f"the weights of the {size()} processes are no longer the same: give nodes of one kind "
            "and threads=N, and a model that keeps no statistics of its batches"
        )


def check_shards(model: nn.Module, shards: int | None) -> None:
    """Raise ``ConfigError`` for a model whose statistics would be those of a shard."""
    if (shards or 1) > 1 and (
        getattr(model, "batch_statistics", False)
        or any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())
    ):
        raise ConfigError(
            f"shards={shards}: the batch norm of {type(model).__name__} would see the lists of a "
            "shard, not those of the batch: train it in one process, with shards=null"
        )


def set_gradients(
    parameters: Sequence[nn.Parameter], batch: Slices, sums: Sums
) -> tuple[Tensor, Tensor]:
    """Set the gradients of the mean loss over the counted lists of ``batch``.

    A process computes the gradients of the sums of the losses of its shards. These rows are
    gathered, added in the order of the shards and divided once, by what all counted lists weigh:
    the result depends on the shards, not on the processes, to the last bit. Random numbers are a
    pure function of seed, epoch, step and shard; those of the optimiser are of a shard that is not
    there, and so the same in all processes.

    Returns:
        The mean loss and what the lists weigh that it is the mean of, in the mean of the epoch.
    """
    sizes = [p.numel() for p in parameters]
    rows = parameters[0].new_zeros(-(-batch.shards // size()), sum(sizes) + 3)
    for row, (number, part) in zip(rows, batch.parts.items(), strict=False):
        _seed(batch, number)
        figures = sums(part)
        grads = torch.autograd.grad(figures[0], parameters, allow_unused=True)
        for place, grad in zip(row[:-3].split(sizes), grads, strict=True):
            if grad is not None:
                place.copy_(grad.flatten())
        row[-3:] = torch.stack([one.detach().to(row.dtype) for one in figures])
    _seed(batch, batch.shards)
    total, *others = all_gather(rows).transpose(0, 1).flatten(0, 1)[: batch.shards]
    for row in others:
        total += row
    loss, divisor, weight = total[-3:]
    divisor = torch.where(divisor > 0, divisor, 1.0)
    for p, grad in zip(parameters, (total[:-3] / divisor).split(sizes), strict=True):
        p.grad = grad.view_as(p).to(p.dtype)
    return loss / divisor, weight


def _seed(batch: Slices, number: int) -> None:
    """Seed PyTorch's global generators for a shard."""
    sequence = np.random.SeedSequence((*batch.draw, number, _DRAWS))
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


@contextmanager
def _connected() -> Iterator[None]:
    """Within, the end of another process is one line."""
    try:
        yield
    except RuntimeError as error:
        said = re.sub(r"^\[.*?\] ", "", str(error)).partition(". ")[0]  # without gloo's own line
        raise TrainingError(
            f"another process of this run cannot be reached ({said}), and all end: resume the run, "
            "with any number of processes"
        ) from error
