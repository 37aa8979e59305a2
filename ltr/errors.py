"""The errors that a user can fix. Each message is one line and ends with the remedy."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_CLONE = Path(__file__).resolve().parents[1]  # the root folder, if the package is in a clone


class LTRError(Exception):
    """An error that a user can fix; the command line prints it as one line without traceback."""


class DataError(LTRError, ValueError):
    """A data file or folder is missing, malformed, or differs from its config."""


class ConfigError(LTRError, ValueError):
    """A setting is unknown, out of range, or incompatible with other settings."""


class TrainingError(LTRError, RuntimeError):
    """Training cannot continue, for example because the loss or the gradient is not finite."""


class CheckpointError(LTRError, ValueError):
    """A checkpoint is missing, damaged, or belongs to something else."""


class OutputError(LTRError, RuntimeError):
    """A file cannot be written: the disk is full, or its folder is not writable."""


def as_started(command: str) -> str:
    """Return what the user types for ``command``, for use in remedies and help.

    If a script of the clone was started, this is ``python train.py`` or ``python scripts/NAME.py``.
    Otherwise, also when used from Python, it is ``ltr NAME``.
    """
    started = Path(sys.argv[0]).resolve()
    if started.suffix == ".py" and started.parent in (_CLONE, _CLONE / "scripts"):
        return "python train.py" if command == "train" else f"python scripts/{command}.py"
    return f"ltr {command}"


def has(name: str) -> bool:
    """Return whether the module ``name`` is installed and loads."""
    try:
        import_module(name)
    except (ImportError, OSError):
        return False
    return True


def need(name: str, extra: str) -> Any:
    """Import and return the module ``name``, which the optional ``extra`` installs.

    ``ConfigError``: it is not installed or does not load.
    """
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: a system library such as OpenMP is missing
        raise ConfigError(
            f"{name} does not load here ({' '.join(str(error).split())}): "
            f"pip install 'ltr-torch[{extra}]', in a clone pip install '.[{extra}]'"
        ) from error
