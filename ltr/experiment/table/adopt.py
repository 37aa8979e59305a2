"""A finished run that tested its best epoch also has its last one: nothing is trained again."""

import os
import shutil
from pathlib import Path

from ltr.experiment.identity import identity
from ltr.experiment.table.plan import Run, folder_of
from ltr.training.checkpoint import load_checkpoint, save_checkpoint

_OTHER = {"best": "last", "last": "best"}
_OF_ITS_TEST = ("results.json", "scores.csv", "queries.csv", ".lock", ".hydra")


def adopt(run: Run) -> bool:
    """Begin ``run`` as a copy of the finished run that differs in ``select`` alone, if any does.

    Resumed, the copy has nothing left to train and tests the other checkpoint.
    """
    twin = _twin(run)
    if not all((twin / name).is_file() for name in ("results.json", "best.pt", "last.pt")):
        return False
    part = run.folder.with_name(f".{run.folder.name}.{os.getpid()}.part")
    shutil.copytree(twin, part, ignore=shutil.ignore_patterns(*_OF_ITS_TEST))
    for name in ("best.pt", "last.pt"):
        content = load_checkpoint(part / name)
        content["config"]["select"] = str(run.config.select)
        save_checkpoint(part / name, content)
    part.replace(run.folder)
    return True


def _twin(run: Run) -> Path:
    config = run.config.copy()
    config.select = _OTHER[str(config.select)]
    folder = folder_of(run.label, config, run.folder.parents[1])
    return folder.with_name(f"{folder.name}-{identity(config)[:10]}")
