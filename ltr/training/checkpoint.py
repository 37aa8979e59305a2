"""Checkpoints: written whole or not at all, read without executing anything in them."""

import io
import pickle
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltr.errors import CheckpointError
from ltr.whole import write_whole

VERSION = 1


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` (tensors and plain values) to ``path``, atomically and durably.

    Raises:
        OutputError: the disk is full or cannot be written; the checkpoint before is untouched.
    """
    buffer = io.BytesIO()  # torch.save tells a full disk in many ways
    torch.save({"version": VERSION, **content}, buffer)
    write_whole(path, lambda file: file.write(buffer.getbuffer()))


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what ``save_checkpoint`` wrote; only tensors and plain values are ever loaded.

    Raises:
        CheckpointError: not there, not a checkpoint of this project, damaged, or it holds objects
            that would run code when loaded.
    """
    if not path.is_file():
        raise CheckpointError(
            f"{path} is not there: give a run folder of train.py, such as outputs/<run>, or the "
            "best.pt or last.pt in it"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a foreign file; our own error says more
            content = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} is not a checkpoint that can be read safely (damaged, or not written by "
            "train.py): use another one"
        ) from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint version {version}, this program reads {VERSION}: use the "
            "program that wrote it, or train again"
        )
    return content


def random_states() -> dict[str, Any]:
    """The state of every global random generator, as tensors and plain values."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    version, numbers, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [name, [int(k) for k in keys], int(position), int(has_gauss), float(gauss)],
        "python": [version, list(numbers), gauss_next],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Put back what ``random_states`` returned."""
    torch.set_rng_state(states["torch"].cpu())
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    version, numbers, gauss_next = states["python"]
    random.setstate((version, tuple(numbers), gauss_next))
