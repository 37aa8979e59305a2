"""Choose the device of a model, set how it computes, and describe it."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ltr.errors import ConfigError
from ltr.knobs import check_choice

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it when it starts


def pick_device(name: str) -> torch.device:
    """Return the device ``name``; ``auto`` is the GPU if there is one, else the CPU.

    Raises ``ConfigError`` if the name is unknown, or if it is ``cuda`` but PyTorch finds no GPU.
    """
    check_choice("device", name, ("auto", "cpu", "cuda"))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device=cuda: PyTorch finds no GPU on this machine; install the CUDA build of PyTorch "
            "(see README), or set device=auto"
        )
    return torch.device(name)


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """Context in which a GPU multiplies float32 matrices in TF32 if ``precision`` is ``tf32``.

    TF32 rounds both factors to a mantissa of 10 bits. Any other ``precision`` changes nothing.
    """
    if precision != "tf32":
        yield
        return
    previous = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = previous


@contextmanager
def on_threads(count: int | None = None) -> Iterator[None]:
    """Context in which PyTorch uses ``count`` CPU threads; None: the current number.

    At the end of the context the previous number is restored.
    """
    previous = torch.get_num_threads()
    torch.set_num_threads(count or previous)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


@contextmanager
def deterministic(enabled: bool) -> Iterator[None]:
    """Context in which, if ``enabled``, a GPU gives bit-identical results every time.

    The results of a CPU are always bit-identical. Raises ``ConfigError`` if this process has
    already used the GPU: cuBLAS might have started without the workspace setting that is needed.
    """
    if not enabled or not torch.cuda.is_available():
        yield
        return
    if torch.cuda.is_initialized() and _WORKSPACE not in os.environ:
        raise ConfigError(
            "deterministic=true: this process has already used the GPU; start a new process, or "
            f"set {_WORKSPACE}=:4096:8 in its environment"
        )
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    previous = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # in cuDNN too
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(previous)


def describe_device(device: torch.device) -> str:
    """Return the description of a device for logs and results."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
