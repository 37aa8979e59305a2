"""How a sweep's run stands: done before with the same config, data and code, cut off, or new."""

import hashlib
import logging
import re
import shutil
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from ltr.experiment.run_folder import NOTE, RESULTS, RunFolder, by_identity
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.whole import write_whole

log = logging.getLogger(__name__)

_RESUMED = " resumed"  # ends a note that is the identity of no run
_SHOWN = 10  # characters of it in the name of a folder
_NOT_RESULTS = (".hydra", ".lock", "train.log", "error.txt", NOTE)
_OF_TEST = (RESULTS, "scores.csv", "queries.csv")
_OTHER = {"best": "last", "last": "best"}


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
    if run.identity == identity:
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


def adopt(folder: Path, select: str, identity_of: Callable[[str], str]) -> bool:
    """Take over the training of the run beside ``folder`` that differs in ``select`` alone, if any.

    That run tested its best epoch and also kept its last one, or the other way round: there is
    nothing left to train. Where it cannot be read or copied, nothing is taken over.

    Args:
        folder: of a run that is new; hold its lock when you call this.
        select: which epoch this run tests, ``best`` or ``last``.
        identity_of: the identity of the same run with another ``select``.
    """
    twin = by_identity(folder.parent).get(identity_of(_OTHER[select]))
    if twin is None or not RunFolder(twin).finished or RunFolder(twin).damage() is not None:
        return False
    taken = []
    try:
        for path in sorted(twin.iterdir()):
            own = folder / path.name
            if path.is_file() and path.suffix != ".pt" and path.name not in _NOT_RESULTS + _OF_TEST:
                taken.append(own)
                shutil.copyfile(path, own)
        for name in ("best.pt", "last.pt"):  # with the last one the copy is whole
            taken.append(folder / name)
            content = load_checkpoint(twin / name)
            content["config"]["select"] = select
            save_checkpoint(folder / name, content)
    except Exception:  # whatever is wrong with that run, this one can be trained
        for own in taken:
            own.unlink(missing_ok=True)
        return False
    log.info("trained as %s, which tested another epoch", twin)
    return True


def note_resumed(folder: Path, identity: str) -> bool:
    """Before a sweep's run goes on by itself as ``identity``: if that is another, note it.

    Begun as one run and ended as another (other epochs, other code) it is neither: a schedule may
    follow ``epochs``. So the note becomes one that ``take_up`` never takes for the run it is asked
    for, and this holds from before the first step, wherever the run is killed.

    Returns:
        Whether it is another.
    """
    before = RunFolder(folder).identity
    if before == identity:
        return False
    mixed = hashlib.sha256(f"{before} {identity}".encode()).hexdigest()
    write_whole(folder / NOTE, f"{mixed}{_RESUMED}\n")
    return True


def _shown(folder: Path) -> str:
    """What tells the note of ``folder`` from others."""
    note = folder / NOTE
    if not note.is_file():
        return "unknown"
    content = note.read_bytes()
    begins = re.match(rb"[0-9a-f]{64}", content)
    return (begins[0].decode() if begins else hashlib.sha256(content).hexdigest())[:_SHOWN]
