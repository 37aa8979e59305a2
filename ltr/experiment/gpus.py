"""One GPU for each of the processes that run jobs at once on this machine."""

import os
from collections.abc import Mapping, MutableMapping, Sequence

_OFFERED = "LTR_GPUS"  # to the processes of a launcher, such as 0,1,2,3
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_here(count: int, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names of the ``count`` GPUs that this process may use, as CUDA takes them."""
    named = [name.strip() for name in environ.get(_VISIBLE, "").split(",") if name.strip()]
    return named[:count] or [str(number) for number in range(count)]


def offer(gpus: Sequence[str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Have the processes of a launcher take one of ``gpus`` each; one GPU needs no sharing."""
    if len(gpus) > 1:
        environ[_OFFERED] = ",".join(gpus)


def take_gpu(job: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let this process see the GPU of its first job's number, before CUDA starts; it keeps it."""
    gpus = environ.pop(_OFFERED, "").split(",")
    if gpus[0]:
        environ[_VISIBLE] = gpus[job % len(gpus)]
