"""Find the finished runs in folders. Importing this is cheap: no torch, no pandas."""

from collections.abc import Sequence
from pathlib import Path

from ltr.errors import DataError
from ltr.experiment.run_folder import RESULTS, RunFolder


def find_runs(paths: Sequence[str]) -> tuple[list[RunFolder], list[Path]]:
    """The finished runs in ``paths``, and the folders of runs that are not finished.

    A path is a run folder, a folder with runs at any depth, or a pattern such as ``'outputs/*'``.

    Raises:
        DataError: a path leads to no finished run, or a file is damaged.
    """
    found: dict[Path, RunFolder] = {}
    unfinished: dict[Path, None] = {}
    for path in paths:
        folders, base = [Path(path)], Path(path).anchor
        if not folders[0].exists():
            folders = sorted(Path(base).glob(path[len(base) :]))
        files = [file for folder in folders for file in _results_under(folder)]
        if not files:
            raise DataError(
                f"{path}: no results.json there or below; give the folder of a finished run, "
                "or one that holds such folders"
            )
        for file in files:
            found.setdefault(file.parent.resolve(), _read(file))
        for folder in folders:
            configs = sorted(folder.rglob(".hydra/config.yaml")) if folder.is_dir() else []
            for run in (config.parents[1] for config in configs):
                if not RunFolder(run).finished:
                    unfinished[run] = None
    return list(found.values()), list(unfinished)


def _results_under(folder: Path) -> list[Path]:
    if folder.name == RESULTS or (folder / RESULTS).is_file():
        return [folder if folder.name == RESULTS else folder / RESULTS]
    return sorted(folder.rglob(RESULTS)) if folder.is_dir() else []


def _read(file: Path) -> RunFolder:
    run = RunFolder(file.parent)
    try:
        _ = run.seed, run.repeat, run.digest, run.convention, run.results["choices"]
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{file}: not what a run writes; run it again") from None
    return run
