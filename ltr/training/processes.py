"""The processes that train one model together: started by torchrun, joined by torch.distributed.

Each computes some slices of every batch (``ltr.training.slices``) and scores some lists; the first
alone writes. All take the same steps, so that their weights stay the same. A process on its own is
the first of one, and nothing here costs it anything.
"""

import functools
import hashlib
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ltr.errors import ConfigError, TrainingError
from ltr.training.bars import quiet

T = TypeVar("T")
P = ParamSpec("P")

_joined = False


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Within, this process and all others that torchrun has started are joined.

    On a GPU each has the one of its ``LOCAL_RANK``, and NCCL sends the gradients; gloo sends what
    is on the CPU. The log and the bars are those of the first process.

    Raises:
        ConfigError: there are fewer GPUs than processes on this machine.
    """
    global _joined
    backend = "gloo"
    if device.type == "cuda":
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
    if not first():
        logging.disable()
    try:
        with quiet(not first()):
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


def first() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def by_first(method: Callable[P, None]) -> Callable[P, None]:
    """Decorator: only the first process does it."""

    @functools.wraps(method)
    def done(*args: P.args, **kwargs: P.kwargs) -> None:
        if first():
            method(*args, **kwargs)

    return done


def own(parts: Iterable[T]) -> Iterator[T]:
    """The share of this process in ``parts``: of n processes every n-th."""
    return itertools.islice(parts, rank(), None, size())


def merged(values: Tensor) -> Tensor:
    """``values``, of which each process has computed its share and left the rest 0.

    Added as whole numbers, so that every bit is kept: of ``-0.0`` and NaN too.
    """
    if size() == 1:
        return values
    whole = {4: torch.int32, 8: torch.int64}[values.element_size()]
    with _connected():
        dist.all_reduce(values.view(whole))
    return values


def gathered(rows: Tensor) -> Tensor:
    """The rows of all processes, ``[size, *rows.shape]``."""
    if size() == 1:
        return rows[None]
    everyone = rows.new_empty(size(), *rows.shape)
    with _connected():
        dist.all_gather([*everyone], rows)
    return everyone


def agreed(signum: int | None) -> int | None:
    """The signal that any process has got, in all of them alike; all wait for each other."""
    if size() == 1:
        return signum
    seen = torch.tensor(signum or 0)
    with _connected():
        dist.all_reduce(seen, dist.ReduceOp.MAX)
    return int(seen) or None


def of_first(value: T) -> T:
    """The ``value`` of the first process, in all of them."""
    if size() == 1:
        return value
    values = [value]
    with _connected():
        dist.broadcast_object_list(values)
    return values[0]


def check_alike(model: nn.Module) -> None:
    """Raise ``TrainingError`` where the processes' weights are no longer the same."""
    if size() == 1:
        return
    digest = hashlib.sha256()
    for held in model.state_dict().values():
        digest.update(held.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digests = [""] * size()
    with _connected():
        dist.all_gather_object(digests, digest.hexdigest())
    if len({*digests}) > 1:
        raise TrainingError(
            f"the weights of the {size()} processes are no longer the same: give nodes of one kind "
            "and threads=N, and a model that keeps no statistics of its batches"
        )


@contextmanager
def _connected() -> Iterator[None]:
    """Within, the end of another process is one line."""
    try:
        yield
    except RuntimeError as error:
        said = re.sub(r"^\[.*?\] ", "", str(error)).partition(". ")[
            0
        ]  # gloo names its own line first
        raise TrainingError(
            f"another process of this run cannot be reached ({said}), and all end: resume the run, "
            "with any number of processes"
        ) from error
