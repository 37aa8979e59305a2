"""A finished run that tested its best epoch also has its last one: nothing is trained again."""

import glob
import os
import shutil
from pathlib import Path

from ltr.experiment.identity import identity
from ltr.experiment.run_folder import RunFolder
from ltr.tables.plan import HASH, Run
from ltr.training.checkpoint import load_checkpoint, save_checkpoint

_OTHER = {"best": "last", "last": "best"}
_OF_ITS_TEST = ("results.json", "scores.csv", "queries.csv", ".lock", ".hydra")


def adopt(run: Run) -> bool:
    """Begin ``run`` as a copy of the finished run that differs in ``select`` alone, if any does.

    Resumed, the copy has nothing left to train and tests the other checkpoint. Where that run
    cannot be read or copied there is no copy, and ``run`` is trained. Hold its claim when you call
    this: copies that were begun for it and never finished are removed.
    """
    for stale in run.folder.parent.glob(f".{glob.escape(run.folder.name)}.*.part"):
        shutil.rmtree(stale, ignore_errors=True)
    twin = _twin(run)
    left = RunFolder(twin)
    if not left.finished or left.damage() is not None:
        return False
    part = run.folder.with_name(f".{run.folder.name}.{os.getpid()}.part")
    try:
        shutil.copytree(twin, part, ignore=shutil.ignore_patterns(*_OF_ITS_TEST))
        for name in ("best.pt", "last.pt"):
            content = load_checkpoint(part / name)
            content["config"]["select"] = str(run.config.select)
            save_checkpoint(part / name, content)
        part.replace(run.folder)
    except Exception:  # whatever is wrong with that run, this one can be trained
        shutil.rmtree(part, ignore_errors=True)
        return False
    return True


def _twin(run: Run) -> Path:
    config = run.config.copy()
    config.select = _OTHER[str(config.select)]
    return run.folder.with_name(run.folder.name[:-HASH] + identity(config)[:HASH])
