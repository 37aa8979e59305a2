"""The processes that train one model together: started by torchrun, joined by torch.distributed.

Each process computes some shards (slices) of every batch and scores some of the lists. Only the
first one writes files. All processes take the same steps, so their weights stay the same. Without
torchrun there is one process, which is the first, and the functions here cost it nothing.
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
# For a shard: the sum of the losses of its counted lists, what that sum is divided by (summed over
# shards), and the weight of these lists in the mean of the epoch.
Sums = Callable[[Batch], tuple[Tensor, Tensor, Tensor]]

_DRAWS = 1  # the last number of a shard's seed, which makes it differ from all seeds of noise
_joined = False


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Context in which this process and all others that torchrun has started train together. On
    GPUs, each uses the one with the number of its ``LOCAL_RANK``; NCCL sends tensors on GPUs, gloo
    those on the CPU. Only the first process logs and shows progress bars. ``ConfigError``: there
    are more processes than GPUs.
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
        dist.destroy_process_group()  # not after an error, when the others may be gone
    finally:
        _joined = False


def size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if _joined else 1


def rank() -> int:
    """Return the number of this process among those that train together, from 0."""
    return dist.get_rank() if _joined else 0


def is_main() -> bool:
    """Return whether this process is the first, which alone writes files."""
    return rank() == 0


def rank_share(parts: Iterable[T]) -> Iterator[T]:
    """Yield this process's share of ``parts``: with n processes, every n-th part."""
    return itertools.islice(parts, rank(), None, size())


def all_reduce(values: Tensor) -> Tensor:
    """Combine ``values``, in place, of which each process has computed its share and left the rest
    0. Their bits are added as whole numbers, so all values, ``-0.0`` and NaN too, are kept exactly.
    """
    if size() > 1:
        whole = {4: torch.int32, 8: torch.int64}[values.element_size()]
        with _connected():
            dist.all_reduce(values.view(whole))
    return values


def all_gather(rows: Tensor) -> Tensor:
    """Return the ``rows`` of all processes, ``[size, *rows.shape]``."""
    if size() == 1:
        return rows[None]
    everyone = rows.new_empty(size(), *rows.shape)
    with _connected():
        dist.all_gather([*everyone], rows)
    return everyone


def any_interrupt(signum: int | None) -> int | None:
    """Return the signal that any process has received; None if none has. All processes wait for
    each other here, and all return the same.
    """
    if size() == 1:
        return signum
    return int(all_gather(torch.tensor(signum or 0)).max()) or None


def barrier() -> None:
    """Wait until all processes have called this."""
    any_interrupt(None)


def broadcast(value: T) -> T:
    """Return the first process's ``value`` in every process."""
    values = [value]
    if size() > 1:
        with _connected():
            dist.broadcast_object_list(values)
    return values[0]


def check_alike(model: nn.Module) -> None:
    """Raise ``TrainingError`` if the weights of the processes are no longer the same."""
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
    """Raise ``ConfigError`` if batch norm in ``model`` would use the statistics of one of several
    shards, as each is computed on its own.
    """
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

    Each process computes, for each of its shards, the gradients of the sum of the losses. The
    results of all processes are gathered, added in the order of the shards, and divided once, by
    the total weight of the counted lists. So the result depends on the shards but not, even in the
    last bit, on the number of processes. Random numbers are a pure function of seed, epoch, step
    and shard. Those that the optimiser draws use the number after the last shard, and so are the
    same in all processes.

    Returns:
        The mean loss, and the weight that this mean has in the mean loss of the epoch.
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
    """Seed PyTorch's global generators for shard ``number`` of ``batch``."""
    sequence = np.random.SeedSequence((*batch.draw, number, _DRAWS))
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


@contextmanager
def _connected() -> Iterator[None]:
    """Context in which the end of another process raises a ``TrainingError`` of one line."""
    try:
        yield
    except RuntimeError as error:
        said = re.sub(r"^\[.*?\] ", "", str(error)).partition(". ")[0]  # without gloo's [file:line]
        raise TrainingError(
            f"another process of this run cannot be reached ({said}), and all end: resume the run, "
            "with any number of processes"
        ) from error
