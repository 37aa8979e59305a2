"""The errors that a user can mend. Each message is one line and ends with the remedy."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_CLONE = Path(__file__).resolve().parents[1]  # where the package stands in a clone


class LTRError(Exception):
    """An error that a user can mend; the command line prints it as one line, no traceback."""


class DataError(LTRError, ValueError):
    """A data file or folder is missing, malformed, or differs from its config."""


class ConfigError(LTRError, ValueError):
    """A setting is unknown, out of range, or does not go with the others."""


class TrainingError(LTRError, RuntimeError):
    """Training cannot go on: the loss or the gradient is not finite."""


class CheckpointError(LTRError, ValueError):
    """A checkpoint is missing, damaged, or belongs to something else."""


class OutputError(LTRError, RuntimeError):
    """A file cannot be written: the disk is full, or its folder is not writable."""


def as_started(command: str) -> str:
    """How the user of this process types ``command``, for remedies and help.

    It is ``python train.py`` or ``python scripts/NAME.py`` where a script of the clone was started,
    and ``ltr NAME`` elsewhere, also in Python.
    """
    started = Path(sys.argv[0]).resolve()
    if started.suffix == ".py" and started.parent in (_CLONE, _CLONE / "scripts"):
        return "python train.py" if command == "train" else f"python scripts/{command}.py"
    return f"ltr {command}"


def need(name: str, extra: str) -> Any:
    """The module ``name``, which the optional ``extra`` installs; else ``ConfigError``."""
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: a system library, as OpenMP, is missing
        raise ConfigError(
            f"{name} does not load here ({' '.join(str(error).split())}): install the extra "
            f"{extra}: pip install '.[{extra}]' where the project's files are"
        ) from error
