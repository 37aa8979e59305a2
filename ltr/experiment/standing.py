"""How a sweep's run stands: done before with the same config, data and code, cut off, or new."""

import hashlib
import json
import re
from enum import Enum
from pathlib import Path

from ltr.whole import write_whole

NOTE = "identity.txt"
_RESUMED = " resumed"  # ends a note that is the identity of no run
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
    old = folder / f"before-{re.sub('[^0-9a-z]', '', before)[:10]}"
    for path in sorted(folder.iterdir()):
        if path.name not in _NOT_RESULTS and not path.name.startswith(("before-", ".")):
            old.mkdir(exist_ok=True)
            path.replace(old / path.name)
    write_whole(note, identity + "\n")
    return Standing.NEW


def note_resumed(folder: Path, identity: str) -> bool:
    """Before a sweep's run goes on by itself as ``identity``: if that is another, note it.

    Begun as one run and ended as another (other epochs, other code) it is neither: a schedule may
    follow ``epochs``. So the note becomes one that ``take_up`` never takes for the run it is asked
    for, and this holds from before the first step, wherever the run is killed.

    Returns:
        Whether it is another.
    """
    note = folder / NOTE
    before = note.read_text().strip()
    if before == identity:
        return False
    mixed = hashlib.sha256(f"{before} {identity}".encode()).hexdigest()
    write_whole(note, f"{mixed}{_RESUMED}\n")
    return True


def was_resumed(folder: Path) -> bool:
    """Whether the run in ``folder`` went on as another than the sweep began."""
    note = folder / NOTE
    return note.is_file() and note.read_text().strip().endswith(_RESUMED)


def value_of(folder: Path, select_on: str) -> float:
    """What a finished run returned to its sweep."""
    return float(json.loads((folder / "results.json").read_text())["vali"][select_on])
