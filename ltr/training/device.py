"""Where and with how many threads the model runs."""

import platform

import torch

from ltr.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda")


def pick_device(name: str) -> torch.device:
    """``auto`` is the GPU where there is one, else the CPU.

    Raises:
        ConfigError: an unknown name, or ``cuda`` was asked for and PyTorch sees no GPU.
    """
    if name not in DEVICES:
        raise ConfigError(f"device={name}: choose one of {', '.join(DEVICES)}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device=cuda: PyTorch sees no GPU here; install its CUDA build (see README) or set "
            "device=auto"
        )
    return torch.device(name)


def describe_device(device: torch.device) -> str:
    """The device in words, for the record of a run."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
