"""Correct a run folder that was copied: its relative paths, and the digests in its results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltr.experiment.run_folder import CHECKPOINTS, RunFolder, write_results
from ltr.scorers.trust import seen_from
from ltr.training.checkpoint import fitting, load_checkpoint, save_checkpoint


def correct_copy(copy: Path, source: Path) -> None:
    """Change the relative paths in the checkpoints of ``copy``, a copy of the run folder
    ``source``, so that they lead to the same places from there.

    Raises:
        CheckpointError, DataError: a file of the run is damaged.
        OutputError: a file cannot be written.
    """
    for file in (copy / name for name in CHECKPOINTS):
        if file.is_file():
            content = load_checkpoint(file)
            with fitting(file):
                corrected = _seen_from(content, copy, source)
            save_checkpoint(file, corrected)
    run = RunFolder(copy)
    if run.finished:
        write_results(copy, run.results)


def _seen_from(content: Mapping[str, Any], folder: Path, source: Path) -> dict[str, Any]:
    """Return the content of a checkpoint with the relative paths of its config, and of those of its
    members, changed to start at ``folder``, not at ``source``.
    """
    corrected = {**content, "config": seen_from(content["config"], folder, source)}
    if "members" in content:
        members = content["members"]
        corrected["members"] = [_seen_from(member, folder, source) for member in members]
    return corrected
