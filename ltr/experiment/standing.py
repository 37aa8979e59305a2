"""How a sweep's run stands: done before with the same config, data and code, cut off, or new."""

import json
from enum import Enum
from pathlib import Path

NOTE = "identity.txt"
_NOT_RESULTS = (".hydra", ".lock", "train.log", "error.txt", NOTE)


class Standing(Enum):
    """What is left to do of a run."""

    DONE = "done"
    CUT_OFF = "cut off"
    NEW = "new"


def take_up(folder: Path, identity: str) -> Standing:
    """See how the run in ``folder`` stands, and make it ready to be this one.

    Results of another identity, because code or data have changed since, are not lost: they move to
    ``before-<their identity>`` in the folder. Hold the folder's lock when you call this.

    Args:
        folder: exists; Hydra has written its own files to it.
        identity: of the run that is asked for.
    """
    note = folder / NOTE
    before = note.read_text().strip() if note.is_file() else "unknown"
    if before == identity:
        if (folder / "results.json").is_file():
            return Standing.DONE
        return Standing.CUT_OFF if (folder / "last.pt").is_file() else Standing.NEW
    old = folder / f"before-{before[:10]}"
    for path in sorted(folder.iterdir()):
        if path.name not in _NOT_RESULTS and not path.name.startswith(("before-", ".")):
            old.mkdir(exist_ok=True)
            path.replace(old / path.name)
    part = note.with_name(f".{note.name}.part")
    part.write_text(identity + "\n")
    part.replace(note)
    return Standing.NEW


def value_of(folder: Path, select_on: str) -> float:
    """What a finished run returned to its sweep."""
    return float(json.loads((folder / "results.json").read_text())["vali"][select_on])
