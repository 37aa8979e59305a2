"""Pick the device of a model, set how it computes, describe it."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ltr.errors import ConfigError
from ltr.knobs import check_choice

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it when it starts


def pick_device(name: str) -> torch.device:
    """The device ``name``; ``auto`` is the GPU where there is one, else the CPU.

    Raises:
        ConfigError: an unknown name, or ``cuda`` where PyTorch sees no GPU.
    """
    check_choice("device", name, ("auto", "cpu", "cuda"))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device=cuda: PyTorch sees no GPU here; install its CUDA build (see README) or set "
            "device=auto"
        )
    return torch.device(name)


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """Inside, a GPU rounds the factors of float32 products to 10 bits if ``precision`` is tf32."""
    if precision != "tf32":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def on_threads(count: int | None = None) -> Iterator[None]:
    """Inside, PyTorch has ``count`` CPU threads, None: as many as before; afterwards as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Inside, if ``wanted``, a GPU takes algorithms that give the same bits every time.

    On a CPU, and without a GPU, nothing is set: the results there are the same bits as it is.

    Raises:
        ConfigError: cuBLAS may have started already, without the workspace that this needs.
    """
    if not wanted or not torch.cuda.is_available():
        yield
        return
    if torch.cuda.is_initialized() and _WORKSPACE not in os.environ:
        raise ConfigError(
            "deterministic=true: this process has used the GPU before: begin a new one, or set "
            f"{_WORKSPACE}=:4096:8 in its environment"
        )
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # those of cuDNN too
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def describe_device(device: torch.device) -> str:
    """The device in words, for logs and results."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
