"""Train one model in several processes, started by torchrun and joined by torch.distributed.

Each process computes a slice of every batch, and scores some of the lists. Only the first process
writes files. All processes take the same steps, so their weights stay equal. If torchrun is not
used, the only process is the first one, and the functions here take no time.
"""

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ltr.errors import ConfigError, TrainingError
from ltr.training.device import pick_device
from ltr.training.hooks import quiet

T = TypeVar("T")

_DRAWS = 1  # the last number of a process's seed, so that it differs from all seeds of noise
# Words in the errors of gloo and NCCL.
_CONNECTION = re.compile("gloo|NCCL|connection|socket|peer|timeout|timed out", re.IGNORECASE)
_joined = False


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Context in which this process trains together with all others that torchrun has started.

    On GPUs, each process uses the GPU whose number is its ``LOCAL_RANK``. NCCL sends the tensors on
    GPUs, and gloo sends those on the CPU. Only the first process logs and shows progress bars.
    Raises ``ConfigError`` if there are more processes than GPUs.
    """
    global _joined
    backend = "gloo"
    if pick_device(device).type == "cuda":
        local = int(os.environ["LOCAL_RANK"])
        count = torch.cuda.device_count()
        if local >= count:
            raise ConfigError(
                f"torchrun has started more than {count} processes on a machine with {count} "
                f"GPUs: set --nproc-per-node={count}, or set device=cpu"
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
        dist.destroy_process_group()  # not after an error: the others may have ended
    finally:
        _joined = False


def size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if _joined else 1


def rank() -> int:
    """Return the 0-based index of this process among those that train together."""
    return dist.get_rank() if _joined else 0


def is_main() -> bool:
    """Return whether this process is the first; only the first process writes files."""
    return rank() == 0


def rank_share(parts: Iterable[T]) -> Iterator[T]:
    """Yield this process's share of ``parts``: every n-th part if there are n processes."""
    return itertools.islice(parts, rank(), None, size())


def all_reduce(values: Tensor) -> Tensor:
    """Combine the ``values`` of all processes, in place, and return them.

    Each process has computed its share of the values and left the others at 0. The bits are added
    as whole numbers, so all values are kept exactly, including ``-0.0`` and NaN.
    """
    if size() > 1:
        integer_type = {4: torch.int32, 8: torch.int64}[values.element_size()]
        with connected():
            dist.all_reduce(values.view(integer_type))
    return values


def all_gather(rows: Tensor) -> Tensor:
    """Return the ``rows`` of all processes, ``[size, *rows.shape]``."""
    if size() == 1:
        return rows[None]
    everyone = rows.new_empty(size(), *rows.shape)
    with connected():
        dist.all_gather([*everyone], rows)
    return everyone


def any_interrupt(signum: int | None) -> int | None:
    """Return the signal that any process has received; None if no process has received one.

    ``signum`` is the signal that this process has received. All processes wait for each other here,
    and all return the same signal.
    """
    if size() == 1:
        return signum
    return int(all_gather(torch.tensor(signum or 0)).max()) or None


def barrier() -> None:
    """Wait until all processes have called this function."""
    any_interrupt(None)


def broadcast(value: T) -> T:
    """Return the first process's ``value`` in every process."""
    values = [value]
    if size() > 1:
        with connected():
            dist.broadcast_object_list(values)
    return values[0]


def check_alike(model: nn.Module) -> None:
    """Raise ``TrainingError`` if the weights of the processes are no longer equal."""
    if size() == 1:
        return
    weights = torch.cat(
        [tensor.detach().double().flatten() for tensor in model.state_dict().values()]
    )
    bits = weights.view(torch.int64)
    if (all_gather(bits) != bits).any():
        raise TrainingError(
            f"the weights of the {size()} processes are no longer equal: use identical nodes, set "
            "the same threads=N on each, and choose a model that keeps no statistics of its batches"
        )


def check_processes(model: nn.Module, batch_size: int) -> None:
    """Raise ``ConfigError`` if several processes cannot train ``model`` together.

    Batch norm would use the statistics of the lists of only one process. If a batch had fewer lists
    than there are processes, some processes would have no work.
    """
    if size() == 1:
        return
    uses_batch_norm = getattr(model, "batch_statistics", False) or any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()
    )
    if uses_batch_norm:
        raise ConfigError(
            f"the batch norm of {type(model).__name__} would use only the lists of one of "
            f"{size()} processes, not the whole batch: train this model without torchrun"
        )
    if batch_size < size():
        raise ConfigError(
            f"batch_size={batch_size} leaves some of the {size()} processes without work: lower "
            "--nproc-per-node or raise batch_size"
        )


class _TrainingScores(nn.Module):
    """Computes the scores for the loss; if the model has members, the scores of each member."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: Tensor) -> Tensor:
        """Return the scores, ``[batch, list]``; with members, ``[members, batch, list]``."""
        score: Callable[..., Tensor] = getattr(self.model, "member_scores", self.model)
        return score(*batch)


def distribute(model: nn.Module) -> Callable[..., Tensor]:
    """Return a function that scores a batch for training.

    If there are several processes, the backward pass averages the gradients of the parameters over
    the processes (``DistributedDataParallel``).
    """
    if size() == 1:
        score: Callable[..., Tensor] = getattr(model, "member_scores", model)
        return score
    with connected():
        return DistributedDataParallel(_TrainingScores(model), find_unused_parameters=True)


def sum_over_processes(value: Tensor) -> Tensor:
    """Return the sum of the scalar ``value`` over all processes."""
    if size() == 1:
        return value
    total = value.clone()
    with connected():
        dist.all_reduce(total)
    return total


def seed_process(number: tuple[int, int, int], *, alike: bool = False) -> None:
    """Seed PyTorch's global generators for a step if several processes train together.

    ``number`` holds the seed, the epoch and the step. If ``alike`` is true, as the optimiser
    needs, all processes get the same seed; otherwise, each gets a different one. So a resumed run
    draws the same numbers if the number of processes is the same.
    """
    if size() == 1:
        return
    stream = size() if alike else rank()
    sequence = np.random.SeedSequence((*number, stream, _DRAWS))
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


@contextmanager
def connected() -> Iterator[None]:
    """Context in which the failure of another process raises a one-line ``TrainingError``."""
    try:
        yield
    except RuntimeError as error:
        if not _CONNECTION.search(str(error)):
            raise
        text = re.sub(r"^\[.*?\] ", "", str(error)).partition(". ")[0]  # without gloo's [file:line]
        raise TrainingError(
            f"another process of this run cannot be reached ({text}), so all processes end: resume "
            "the run"
        ) from error
