"""What torchrun tells a process that it starts: its rank, and how many there are.

Importing this must stay cheap (no torch): every command does so.
"""

import os
from datetime import timedelta

from ltr.errors import ConfigError, as_started

_STARTED, _ATTEMPT = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"
_SECONDS = 5  # to wait for torchrun's store


def processes() -> int:
    """How many processes torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if _STARTED in os.environ else 1


def rank() -> int:
    """The number of this process among them, from 0; 0 without torchrun."""
    return int(os.environ.get("RANK", "0")) if _STARTED in os.environ else 0


def check_torchrun(command: str, *, several: bool) -> None:
    """Raise ``ConfigError`` where torchrun's processes cannot share the work of ``command``.

    Args:
        command: its name.
        several: whether a sweep is asked for.
    """
    if processes() > 1 and command != "train":
        raise ConfigError(
            f"torchrun has started {processes()} processes: they train one model together "
            f"({as_started('train')}); start {command} without torchrun"
        )
    if processes() > 1 and several:
        raise ConfigError(
            f"-m under torchrun with {processes()} processes: they train one model together; "
            "leave out -m, or run the sweep without torchrun (hydra/launcher=joblib)"
        )


def fails_first() -> bool:
    """Whether no other process of this run has called this: the first to fail says why, alone."""
    if processes() == 1:
        return True
    from torch.distributed import TCPStore  # slow to import

    try:
        store = TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
            is_master=False, timeout=timedelta(seconds=_SECONDS),
        )  # fmt: skip
        return store.add(f"ltr failed {os.environ.get(_ATTEMPT)}", 1) == 1
    except (RuntimeError, LookupError, ValueError):  # torchrun is gone: better twice than never
        return True
