"""Correct a run folder that was copied: its relative paths, and the digests in its results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltr.experiment.run_folder import CHECKPOINTS, RunFolder, write_results
from ltr.parts.trust import relocate_paths
from ltr.training.checkpoint import checkpoint_errors, load_checkpoint, save_checkpoint


def correct_copy(copy: Path, source: Path) -> None:
    """Correct the relative paths in a copied run folder; they then lead to the same data.

    Args:
        copy: the copied run folder; its checkpoints and ``results.json`` are rewritten.
        source: the run folder from which it was copied.

    Raises:
        CheckpointError, DataError: a file of the run is damaged.
        OutputError: a file cannot be written.
    """
    for file in (copy / name for name in CHECKPOINTS):
        if file.is_file():
            content = load_checkpoint(file)
            with checkpoint_errors(file):
                corrected = _relocate_checkpoint(content, copy, source)
            save_checkpoint(file, corrected)
    run = RunFolder(copy)
    if run.finished:
        write_results(copy, run.results)


def _relocate_checkpoint(content: Mapping[str, Any], folder: Path, source: Path) -> dict[str, Any]:
    """Return a checkpoint with relative paths that start at ``folder``, not at ``source``.

    These are the paths in its config and, for an ensemble, in the configs of its members.
    """
    corrected = {**content, "config": relocate_paths(content["config"], folder, source)}
    if "members" in content:
        members = content["members"]
        corrected["members"] = [_relocate_checkpoint(member, folder, source) for member in members]
    return corrected
