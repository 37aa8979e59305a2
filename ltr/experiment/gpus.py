"""One GPU for each of the processes that run jobs at once on this machine."""

import os
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

_OFFERED = "LTR_GPUS"  # to the processes of a launcher, such as 0,1,2,3
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_held: list[FileLock] = []  # by this process until it ends: its GPU


def gpus_here(count: int, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names of the ``count`` GPUs that this process may use, as CUDA takes them."""
    named = [name.strip() for name in environ.get(_VISIBLE, "").split(",") if name.strip()]
    return named[:count] or [str(number) for number in range(count)]


def offer(gpus: Sequence[str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Have the processes of a launcher take one of ``gpus`` each; one GPU needs no sharing."""
    if len(gpus) > 1:
        environ[_OFFERED] = ",".join(gpus)


def take_gpu(
    job: int, environ: MutableMapping[str, str] = os.environ, folder: Path | None = None
) -> None:
    """Let this process see one GPU of those offered, before CUDA starts; it keeps that one.

    The first that no other process of this machine holds, else that of the number of the job:
    numbers alone would give two jobs one GPU where another ended early.

    Args:
        job: its number in the sweep.
        environ: of this process.
        folder: of the locks; None: the system's for temporary files.
    """
    offered = [gpu for gpu in environ.get(_OFFERED, "").split(",") if gpu]
    if not offered or _held:
        return
    place = folder or Path(tempfile.gettempdir())
    for gpu in offered:
        lock = FileLock(place / f"ltr-gpu-{os.getuid()}-{gpu}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        _held.append(lock)
        environ[_VISIBLE] = gpu
        return
    environ[_VISIBLE] = offered[job % len(offered)]
