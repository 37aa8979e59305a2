"""The runs of a table: planned, known by what they compute, and finished as the jobs of a sweep."""

import re
import shlex
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig
from tqdm import tqdm

from ltr.console.arguments import quoted, with_quotes
from ltr.console.cli import through_hydra
from ltr.console.compose import run_config
from ltr.errors import DataError, LTRError
from ltr.experiment.identity import identity, identity_without_data
from ltr.experiment.job import train_job
from ltr.experiment.labels import with_levels
from ltr.experiment.parts import make_dataset
from ltr.experiment.run_folder import RunFolder, by_identity
from ltr.tables.spec import Table
from ltr.whole import make_folder, write_whole

# What each choice of model needs.
_LIBRARIES = {
    "lightgbm": "lightgbm",
    "stumps": "lightgbm",
    "xgboost": "xgboost",
    "catboost": "catboost",
}


def missing_libraries(table: Table, given: Sequence[str]) -> dict[str, str]:
    """Why a row cannot run, by row, for those that cannot."""
    found = {}
    for label, row in table.rows.items():
        chosen = [item for item in merged(table.settings, given, row) if item.startswith("model=")]
        library = _LIBRARIES.get(chosen[-1].partition("=")[2]) if chosen else None
        if library is not None and find_spec(library) is None:
            found[label] = "needs ltr-torch[gbdt]"
    return found


_SHOWN = 10  # characters of a run's identity that end the name of its folder


@dataclass(frozen=True)
class Run:
    """One training run of a table.

    Attributes:
        label: the row it belongs to.
        fold: of the data set, None where it has none.
        seed: of the training.
        overrides: its command line for ``train.py``.
        config: the composed config.
        known: its identity, by which a finished one is found again whatever its folder.
        folder: where it is kept. Rows of a table that compute the same share it.
        absent: why its data cannot be read, None where they are here.
    """

    label: str
    fold: int | None
    seed: int
    overrides: tuple[str, ...]
    config: DictConfig
    known: str
    folder: Path
    absent: str | None = None

    @property
    def done(self) -> bool:
        """Whether its results are there, and as they were left."""
        return RunFolder(self.folder).is_done(self.known)

    @property
    def damaged(self) -> bool:
        """Whether its results are there, but not as they were left: it is to be tested again."""
        left = RunFolder(self.folder)
        return left.identity == self.known and left.finished and not self.done


def plan(
    table: Table,
    given: Sequence[str],
    seeds: Sequence[int],
    output_dir: Path,
    *,
    absent_ok: bool = False,
) -> list[Run]:
    """The runs of ``table``, row by row.

    Args:
        table: what to run.
        given: overrides of the user; they go over the table's settings, not over what makes a row.
        seeds: of the training, every one for every row and fold.
        output_dir: its folder ``runs`` keeps them; what is there from another table is used.
        absent_ok: plan also for data that are not here.

    Raises:
        ConfigError: an override is wrong.
        DataError: the data are not there.
    """
    runs = []
    folders = by_identity(output_dir / "runs")
    for label, row in table.rows.items():
        overrides = merged(table.settings, given, row)
        config = run_config(overrides)[0]
        for fold in _folds(table, config):
            for seed in seeds:
                own = [*overrides, f"seed={seed}"]
                if fold is not None:
                    own.append(f"dataset.fold={fold}")
                run = _run(label, fold, seed, own, config, output_dir, absent_ok)
                folder = folders.setdefault(run.known, run.folder)
                runs.append(replace(run, folder=folder))
    return runs


def merged(*parts: Sequence[str]) -> list[str]:
    """Overrides of which a later one replaces an earlier one of the same key.

    Another choice of a group takes the settings inside that group along.

    >>> merged(["dataset=mq2008", "dataset.fold=2", "epochs=5"], ["dataset=synthetic", "epochs=1"])
    ['dataset=synthetic', 'epochs=1']
    """
    kept: dict[str, str] = {}
    for override in (item for part in parts for item in part):
        key = override.lstrip("+").partition("=")[0]
        if kept.get(key, override) != override:
            kept = {other: text for other, text in kept.items() if not other.startswith(f"{key}.")}
        kept[key] = override
    return list(kept.values())


def _folds(table: Table, config: DictConfig) -> Iterator[int | None]:
    count = config.dataset.get("folds") or 0
    if not count:
        yield None
    elif table.folds == "all":
        yield from range(1, count + 1)
    else:
        yield from (int(fold) for fold in table.folds)


def _run(
    label: str,
    fold: int | None,
    seed: int,
    overrides: Sequence[str],
    row_config: DictConfig,
    output_dir: Path,
    absent_ok: bool,
) -> Run:
    config = row_config.copy()
    config.seed = seed
    if fold is not None:
        config.dataset.fold = fold
    folder, absent = folder_of(label, config, output_dir), None
    try:
        known = identity(config)
        dataset = make_dataset(config.dataset)
        config = with_levels(config, partial(dataset.split, "train"))
    except DataError as error:
        if not absent_ok:
            raise
        known, absent = identity_without_data(config), str(error)
    folder = folder.with_name(f"{folder.name}-{known[:_SHOWN]}")
    return Run(label, fold, seed, tuple(overrides), config, known, folder, absent)


def folder_of(label: str, config: DictConfig, output_dir: Path) -> Path:
    """Where the runs of a row are kept, but for the hash at the end of the name."""
    name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    fold = config.dataset.get("fold")
    place = f"{name}-{config.dataset.name}" + (f"-fold{fold}" if fold is not None else "")
    return output_dir / "runs" / f"{place}-seed{config.seed}"


_POLL_SECONDS = 0.5


def describe(run: Run) -> str:
    """The command as a person would type it."""
    return shlex.join(["python", "train.py", *run.overrides])


def local_launcher(workers: int) -> list[str]:
    """Overrides that run ``workers`` at a time on this machine."""
    if workers == 1:
        return []  # in this process
    return [
        "hydra/launcher=joblib",
        f"hydra.launcher.n_jobs={workers}",
        f"hydra.launcher.pre_dispatch={workers}",  # what waits outlives this process
    ]


def execute(
    runs: Sequence[Run], jobs: Path, launcher: Sequence[str], extra: Sequence[str] = ()
) -> dict[Path, str]:
    """Finish ``runs`` as one sweep; return why a run is not done, by folder.

    The launcher decides where and how many at a time. Where a process of it is killed, what is left
    is launched again, until twice in a row that has finished nothing.

    Args:
        runs: at least one, not done yet, in folders side by side.
        jobs: the file that lists them for the launcher.
        launcher: overrides of ``hydra/launcher``.
        extra: overrides for all of them that change no result, such as ``threads=1``.
    """
    left = {run.folder: run for run in runs}
    for folder in left:
        (folder / "error.txt").unlink(missing_ok=True)
    broken: Exception | None = None
    launches = 2
    with _progress(list(left)):
        while left and launches:
            try:
                _launch(list(left.values()), jobs, launcher, extra)
                broken, launches = None, 0
            except LTRError:
                raise
            except Exception as error:
                broken = error
            before = len(left)
            left = {f: run for f, run in left.items() if not (run.done or RunFolder(f).error)}
            if broken is not None:
                launches = 2 if len(left) < before else launches - 1
    return {
        run.folder: _reason(run, broken)
        for run in {run.folder: run for run in runs}.values()
        if not run.done
    }


def _launch(runs: Sequence[Run], jobs: Path, launcher: Sequence[str], extra: Sequence[str]) -> None:
    make_folder("output_dir", jobs.parent)
    listed = [
        [*map(with_quotes, run.overrides), *extra, f"hydra.sweep.subdir={quoted(run.folder.name)}"]
        for run in runs
    ]
    write_whole(jobs, yaml.safe_dump(listed))
    through_hydra(
        "train",
        train_job,
        [
            "--multirun",
            "hydra/sweeper=jobs",
            f"hydra.sweeper.jobs={quoted(str(jobs))}",
            f"hydra.sweep.dir={quoted(str(runs[0].folder.parent))}",
            "hydra.callbacks.summary.quiet=true",
            "hydra/job_logging=file",
            *launcher,
        ],
    )


def _reason(run: Run, broken: Exception | None) -> str:
    left = RunFolder(run.folder)
    if left.error:
        return left.error
    if left.finished and left.identity != run.known:
        return "the code or the data changed after it was planned: give the same command again"
    return "not finished" if broken is None else f"its process ended early: {broken}"


@contextmanager
def _progress(folders: Sequence[Path]) -> Iterator[None]:
    """Show, whatever the launcher, how many of ``folders`` have a result or an error."""
    ended = threading.Event()
    bar = tqdm(total=len(folders), desc="runs", unit="run", disable=None)

    def look() -> None:
        while not ended.wait(_POLL_SECONDS):
            bar.n = sum(RunFolder(f).finished or bool(RunFolder(f).error) for f in folders)
            bar.refresh()

    watch = threading.Thread(target=look, daemon=True)
    try:
        if not bar.disable:
            watch.start()
        yield
    finally:
        ended.set()
        bar.close()
