"""The errors that a user can fix. Each message is one line and ends with the remedy."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent


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

    If ``python train.py`` or ``python -m ltr`` was started, perhaps there is no command ``ltr`` on
    the path: the answer is then of the same form. Otherwise, also in a program that imports the
    package, it is ``ltr COMMAND``.
    """
    started = Path(sys.argv[0]).resolve()
    if started == _PACKAGE.parent / "train.py" and command == "train":
        return "python train.py"
    if started in (_PACKAGE.parent / "train.py", _PACKAGE / "__main__.py"):
        return f"python -m ltr {command}"
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
