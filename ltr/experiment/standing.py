"""How a sweep's run stands: done before with the same config, data and code, cut off, or new."""

import hashlib
import logging
import re
from enum import Enum
from pathlib import Path

from ltr.experiment.run_folder import RunFolder
from ltr.whole import write_whole

log = logging.getLogger(__name__)

NOTE = "identity.txt"
_RESUMED = " resumed"  # ends a note that is the identity of no run
_IDENTITY = re.compile(rb"([0-9a-f]{64})\n")  # all of the note of a run that is as it began
_SHOWN = 10  # characters of it in the name of a folder
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
    run = RunFolder(folder)
    if _noted(folder) == identity:
        damage = run.damage() if run.finished else None
        if run.finished and damage is None:
            return Standing.DONE
        if damage is not None:
            log.warning("%s", damage)
        return Standing.CUT_OFF if run.last.is_file() else Standing.NEW
    old = folder / f"before-{_shown(folder)}"
    for path in sorted(folder.iterdir()):
        if path.name not in _NOT_RESULTS and not path.name.startswith(("before-", ".")):
            old.mkdir(exist_ok=True)
            path.replace(old / path.name)
    if old.is_dir():
        log.info("%s: results of other code or data, now in %s", folder, old.name)
    write_whole(folder / NOTE, identity + "\n")
    return Standing.NEW


def note_resumed(folder: Path, identity: str) -> bool:
    """Before a sweep's run goes on by itself as ``identity``: if that is another, note it.

    Begun as one run and ended as another (other epochs, other code) it is neither: a schedule may
    follow ``epochs``. So the note becomes one that ``take_up`` never takes for the run it is asked
    for, and this holds from before the first step, wherever the run is killed.

    Returns:
        Whether it is another.
    """
    before = _noted(folder)
    if before == identity:
        return False
    mixed = hashlib.sha256(f"{before} {identity}".encode()).hexdigest()
    write_whole(folder / NOTE, f"{mixed}{_RESUMED}\n")
    return True


def was_resumed(folder: Path) -> bool:
    """Whether the run in ``folder`` went on as another than the sweep began, or may have."""
    return (folder / NOTE).is_file() and _noted(folder) is None


def _noted(folder: Path) -> str | None:
    """The identity that the run began and ended with; None where the note does not say one."""
    note = folder / NOTE
    found = _IDENTITY.fullmatch(note.read_bytes()) if note.is_file() else None
    return None if found is None else found[1].decode()


def _shown(folder: Path) -> str:
    """What tells the note of ``folder`` from others."""
    note = folder / NOTE
    if not note.is_file():
        return "unknown"
    content = note.read_bytes()
    begins = re.match(rb"[0-9a-f]{64}", content)
    return (begins[0].decode() if begins else hashlib.sha256(content).hexdigest())[:_SHOWN]


def value_of(folder: Path, select_on: str) -> float:
    """What a finished run returned to its sweep."""
    return float(RunFolder(folder).results["vali"][select_on])
