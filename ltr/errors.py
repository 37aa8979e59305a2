"""The errors that a user can fix; each message is one line and ends with the remedy."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent


class LTRError(Exception):
    """An error that a user can fix; the command line prints it as one line without a traceback."""


class DataError(LTRError, ValueError):
    """A data file or folder is missing or malformed, or does not match its config."""


class ConfigError(LTRError, ValueError):
    """A setting is unknown, out of range, or incompatible with other settings."""


class TrainingError(LTRError, RuntimeError):
    """Training cannot continue, for example because the loss or the gradient is not finite."""


class CheckpointError(LTRError, ValueError):
    """A checkpoint is missing or damaged, or does not belong to this run or model."""


class OutputError(LTRError, RuntimeError):
    """A file cannot be written: the disk is full, or its folder is not writable."""


def as_started(command: str) -> str:
    """Return what the user types for ``command``, for use in remedies and help.

    If the user started ``python train.py`` or ``python -m ltr``, the command ``ltr`` might not be
    on the path. So the result begins with ``python`` too. Otherwise (also in a program that
    imports the package), the result is ``ltr COMMAND``.
    """
    started = Path(sys.argv[0]).resolve()
    if started == _PACKAGE.parent / "train.py" and command == "train":
        return "python train.py"
    if started in (_PACKAGE.parent / "train.py", _PACKAGE / "__main__.py"):
        return f"python -m ltr {command}"
    return f"ltr {command}"


def has(name: str) -> bool:
    """Return whether the module ``name`` is installed and can be imported."""
    try:
        import_module(name)
    except (ImportError, OSError):
        return False
    return True


def need(name: str, extra: str) -> Any:
    """Import and return the module ``name``, which is one of the optional dependencies ``extra``.

    Raises ``ConfigError`` if the module is not installed or cannot be imported.
    """
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: a system library such as OpenMP is missing
        raise ConfigError(
            f"{name} cannot be imported ({' '.join(str(error).split())}): run pip install "
            f"'ltr-torch[{extra}]', or in a clone pip install '.[{extra}]'"
        ) from error
