"""Read and write the files of a run folder, and find the versions and the commit of the code.

Importing this module is cheap: pandas is imported only when a table is read or written.
"""

import io
import logging
import math
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ltr.arrays import Doubles, Floats
from ltr.atomic import atomic_write, safe_cell, without_nan, write_frame
from ltr.cli.folders import read_overrides
from ltr.data.lists import SPLITS, measured_split
from ltr.errors import ConfigError, DataError, OutputError, as_started
from ltr.training.results_file import BEFORE, RESULTS, read_results, sealed_results, sha256
from ltr.training.results_file import CHECKPOINTS as OF_CHECKPOINTS

if TYPE_CHECKING:
    import pandas as pd

    from ltr.data.lists import Lists
    from ltr.experiment.measure import SplitMeasurement
    from ltr.training.evaluation import PerQuery

log = logging.getLogger(__name__)

NOTE = "identity.txt"
RESUMED = "resumed as another run"  # written to NOTE if a run of a sweep was given other settings
_NOT_RESULTS = ("train.log", "error.txt", NOTE)
# The files with the metrics of each query and the score of each item of the split that is measured.
QUERIES = {"test": "queries.csv", "vali": "vali_queries.csv"}
SCORES = {"test": "scores.csv", "vali": "vali_scores.csv"}
FILES = (*QUERIES.values(), *SCORES.values(), "history.csv")  # results.json holds their digests
NO_TEST_SPLIT = (
    "no test split: these values are measured on vali, and are too high if the epoch, settings or "
    "weights were chosen on vali; the value crossfit corrects for the choice of epoch and weights"
)
NO_TEST_VERDICT = "verdicts and intervals are about these values, not about new queries"
CHECKPOINTS = ("best.pt", "last.pt", "ensemble.pt")  # results.json holds their digests too
_FILES = "files_sha256"  # key of results.json
_MEANS = {"test", "vali", "untrained_vali"}  # entries of results.json with a mean for each metric
_NUMBER = (int, float)
_SHAPE = {  # the shapes of the entries of results.json that are read, see ``_fits``
    **dict.fromkeys(("select", "select_on", "dataset", "finished"), str),
    **dict.fromkeys(("features", "parameters"), int),
    **dict.fromkeys(("seed", "fold", "selected_epoch"), (int, NoneType)),
    **dict.fromkeys(("crossfit", "crossfit_error", "crossfit_equal"), (*_NUMBER, NoneType)),
    **{key: {...: (*_NUMBER, NoneType)} for key in _MEANS},
    "ties_averaged": {...: {...: (*_NUMBER, NoneType)}},
    "wall_seconds": _NUMBER,
    "commit": (str, NoneType),
    "crossfit_halves": ([[_NUMBER]], NoneType),
    "choices": {...: (str, NoneType)},
    "versions": dict,
    "convention": {"text": str},
    "data": {...: {"digest": str}},
    "protocol": {"dataset": dict, "teacher": (str, NoneType), "init_from": (str, NoneType)},
    _FILES: {...: str},
}
_PACKAGE = Path(__file__).resolve().parents[1]
_COMPUTE = (
    "ltr-torch", "torch", "numpy", "numba", "scipy", "pandas", "scikit-learn", "hydra-core",
    "omegaconf",
)  # fmt: skip


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Write ``results.json``; the run in ``folder`` then counts as finished.

    The file holds ``results`` as plain values (NaN becomes null), and digests of ``FILES``, of
    ``CHECKPOINTS`` and of the results themselves.
    """
    digests = {_FILES: _digests(folder, FILES), OF_CHECKPOINTS: _digests(folder, CHECKPOINTS)}
    atomic_write(folder / RESULTS, sealed_results(without_nan({**results, **digests})))


def _digests(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of each of the files ``names`` that exists in ``folder``."""
    present = [name for name in names if (folder / name).is_file()]
    return {name: sha256((folder / name).read_bytes()) for name in present}


def write_queries(path: Path, lists: "Lists", values: "PerQuery") -> None:
    """Write a row for each query: id, number of items, whether none is relevant, and metrics."""
    import pandas as pd

    table = {"qid": lists.qids, "items": lists.lengths, "empty": lists.empty, **values}
    write_frame(path, pd.DataFrame(table), guard=False)


def write_scores(path: Path, lists: "Lists", scores: "Floats") -> None:
    """Write the query id and the score (with all digits) of every item, in the order of ``lists``.

    If the rows of the source are in a different order, the column ``row`` has the number of each
    item's row in the source, counted from 1.
    """
    import pandas as pd

    text = scores.astype(str)  # pandas would write the digits of a float64
    rows = {} if lists.rows is None else {"row": lists.rows + 1}
    qids = lists.qids.repeat(lists.lengths)
    write_frame(path, pd.DataFrame({"qid": qids, **rows, "score": text}), guard=False)


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run folder; a file in it is read when it is first used.

    Reading raises ``DataError`` if a file is missing, or has changed since the run wrote it.
    """

    folder: Path

    @property
    def finished(self) -> bool:
        """Whether ``results.json`` exists, damaged or not."""
        return (self.folder / RESULTS).is_file()

    @property
    def begun(self) -> bool:
        """Whether a run has saved anything in the folder."""
        return any((self.folder / name).is_file() for name in (RESULTS, *CHECKPOINTS))

    @property
    def note(self) -> Path:
        """The path of the file in which a run of a sweep keeps its identity."""
        return self.folder / NOTE

    @property
    def identity(self) -> str | None:
        """The identity of a run that belongs to a sweep; None for a single run.

        It is ``RESUMED`` if the run was resumed with settings that make it another run.
        """
        return self.note.read_text(errors="replace").strip() if self.note.is_file() else None

    @property
    def error(self) -> str | None:
        """The error that ended the run, in one line; None if there was none."""
        file = self.folder / "error.txt"
        text = file.read_text(errors="replace") if file.is_file() else ""
        return text.strip().partition("\n")[0] or None

    def note_error(self, text: str | None) -> None:
        """Write the error that ended the run to ``error.txt``; if ``text`` is None, remove it.

        A failure to write the file is ignored.
        """
        with suppress(OutputError, OSError):
            (self.folder / "error.txt").unlink(missing_ok=True)
            if text is not None:
                atomic_write(self.folder / "error.txt", text + "\n")

    @contextmanager
    def locked(self, *, wait: bool) -> Iterator[None]:
        """Keep other processes from working on the run during a ``with`` block.

        If another process is working on the run, wait until that process is done. If ``wait`` is
        False, raise ``ConfigError`` instead.
        """
        try:
            lock = FileLock(self.folder / ".lock").acquire(timeout=-1 if wait else 0)
        except Timeout:
            raise ConfigError(
                f"{self.folder}: another process is training this run; wait for it or stop it"
            ) from None
        with lock:
            yield

    def prepare(self, identity: str) -> bool:
        """Return whether the run ``identity`` is finished; if not, prepare the folder for it.

        The caller must have locked the folder. Results of another identity (because the code or the
        data have changed) are moved to a subfolder ``before-...``.
        """
        if self.identity != identity:
            old = self.folder / f"{BEFORE}{sha256(str(self.identity).encode())[:10]}"
            for path in sorted(self.folder.iterdir()):
                if path.name not in _NOT_RESULTS and not path.name.startswith((BEFORE, ".")):
                    old.mkdir(exist_ok=True)
                    path.replace(old / path.name)
            if old.is_dir():
                log.info("%s: moved results of other code or data into %s", self.folder, old.name)
            atomic_write(self.note, identity + "\n")
        if not self.finished:
            return False
        damage = self.damage()
        if damage is not None:
            log.warning("%s", damage)
        return damage is None

    def note_resumed(self, identity: str) -> None:
        """Record that this run of a sweep is resumed as the run ``identity``.

        If the recorded identity is another one, it is replaced by ``RESUMED``.
        """
        if self.identity != identity:
            atomic_write(self.note, RESUMED + "\n")
            log.info(
                "%s: the settings of this run are no longer those of the sweep; if you repeat the "
                "sweep, this run is trained from the start",
                self.folder,
            )

    def remove_results(self, *, everything: bool) -> None:
        """Remove ``results.json``, because the weights are about to change.

        The run then counts as unfinished. If ``everything`` is True, because a new run begins,
        checkpoints and ``FILES`` are also removed.
        """
        names = [RESULTS]
        if everything:
            names += [*CHECKPOINTS, *FILES]
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def write(
        self,
        results: Mapping[str, Any],
        lists: "Mapping[str, Lists]",
        measured: "Mapping[str, SplitMeasurement]",
    ) -> None:
        """Write ``results.json``, and the metrics and scores of the test lists.

        If there is no test split, the metrics and scores of the validation lists are written.
        """
        split = measured_split(measured)
        other_split = "vali" if split == "test" else "test"
        for names in (QUERIES, SCORES):  # of an earlier run in this folder, on other lists
            (self.folder / names[other_split]).unlink(missing_ok=True)
        write_queries(self.folder / QUERIES[split], lists[split], measured[split].values)
        write_scores(self.folder / SCORES[split], lists[split], measured[split].scores)
        write_results(self.folder, results)

    def damage(self) -> str | None:
        """Return one line that says what is wrong with the files of a finished run, or None."""
        try:
            _ = self.overrides  # raises an error if it is damaged
            for name in self.results[_FILES]:
                self.checked(name)
        except DataError as error:
            return str(error)
        return None

    @cached_property
    def results(self) -> dict[str, Any]:
        """The content of ``results.json``; a mean over no lists, null in the file, is NaN here."""
        content = self._read(RESULTS)
        try:
            results = read_results(content)
        except ValueError:
            raise self._unlike(RESULTS) from None
        if not _fits(results, _SHAPE):
            raise self._unlike(RESULTS)
        missing = self._unlike(RESULTS)
        if "convention" in results:
            results["convention"] = Entries(missing, results["convention"])
        if "data" in results:
            data = results["data"].items()
            results["data"] = {split: Entries(missing, entry) for split, entry in data}
        for split in results.keys() & _MEANS:
            means = results[split].items()
            numbers = {name: math.nan if mean is None else mean for name, mean in means}
            results[split] = Entries(missing, numbers)
        return Entries(missing, results)

    @property
    def value_that_chooses(self) -> float:
        """The metric by which runs are chosen: ``select_on`` on vali, with ties averaged."""
        means = self.results.get("ties_averaged", self.results)["vali"]
        return float(means[self.results["select_on"]])

    @cached_property
    def overrides(self) -> list[str]:
        """The overrides that Hydra stored for the run; empty if it stored none."""
        file = self.folder / ".hydra" / "overrides.yaml"
        return read_overrides(file) if file.is_file() else []

    @cached_property
    def queries(self) -> "pd.DataFrame":
        """A table with a row for each query of ``split`` and its metrics."""
        options: Any = {"dtype": {"qid": str}, "keep_default_na": False, "na_values": [""]}
        return self._table(QUERIES[self.split], ["qid", "items", "empty"], **options)

    @cached_property
    def scores(self) -> "Doubles":
        """The scores of the items of ``split``."""
        name = SCORES[self.split]
        return self._numbers(name, self._table(name, ["score"])["score"])

    @cached_property
    def history(self) -> "pd.DataFrame":
        """The content of ``history.csv``, which has a row for each epoch."""
        return self._table("history.csv", ["epoch"])

    @property
    def measured(self) -> list[str]:
        """The names of the metrics that the run measured for each query."""
        return [str(name) for name in self.queries if name not in ("qid", "items", "empty")]

    def values(self, metric: str) -> "tuple[list[str], Doubles]":
        """Return the ids of the queries of ``split``, and the value of ``metric`` for each query.

        The value is NaN if the convention skips the query. Raises ``ConfigError`` if the run did
        not compute ``metric``.
        """
        if metric not in self.measured:
            raise ConfigError(
                f"metric={metric}: the run {self.folder} did not compute this metric; choose one "
                f"of {', '.join(self.measured)}"
            )
        return self.qids, self._numbers(QUERIES[self.split], self.queries[metric])

    @property
    def qids(self) -> list[str]:
        """The query ids of ``split`` as earlier versions wrote them (see ``safe_cell``)."""
        return list(map(safe_cell, self.queries["qid"]))

    @property
    def repeat(self) -> str | None:
        """The fold and the ``dataset.seed`` of the run in words; None if it has neither of them."""
        dataset = self.results["protocol"].get("dataset", {})
        values = {"fold": self.results.get("fold"), "dataset.seed": dataset.get("seed")}
        texts = [f"{key} {value}" for key, value in values.items() if value is not None]
        return ", ".join(texts) or None

    @property
    def split(self) -> str:
        """The split that the run is measured on: test, or vali if there is no test split."""
        splits = {*self.results, *self.results.get("data", {})} & {*SPLITS}
        return measured_split(splits or SPLITS)  # earlier versions recorded less

    @property
    def digest(self) -> str:
        """The digest of the lists of ``split``.

        Raises ``DataError`` if the run did not record it.
        """
        lists = self.results.get("data", {}).get(self.split)
        if lists is None:
            raise DataError(
                f"{self.folder / RESULTS} does not record which lists were measured: repeat the run"
            )
        return str(lists["digest"])

    @property
    def convention(self) -> tuple[dict[str, Any], str]:
        """The convention of the run's metrics, as a dict of its settings and in words."""
        convention = self.results["convention"]
        text = str(convention["text"])
        return {name: value for name, value in convention.items() if name != "text"}, text

    def checked(self, name: str) -> bytes:
        """Return the content of one of ``FILES``.

        Raises ``DataError`` if it has changed since the run.
        """
        content = self._read(name)
        if sha256(content) != self.results[_FILES].get(name):
            raise self._unlike(name)
        return content

    def _table(self, name: str, columns: Sequence[str], **options: Any) -> "pd.DataFrame":
        """Return one of ``FILES``; raise ``DataError`` if it is not a table with all ``columns``.

        ``options`` are passed to ``pandas.read_csv``.
        """
        import pandas as pd

        try:
            table = pd.read_csv(io.BytesIO(self.checked(name)), **options)
        except DataError:
            raise
        except ValueError:
            raise self._unlike(name) from None
        if not {*columns} <= {*table}:
            raise self._unlike(name)
        return table

    def _numbers(self, name: str, column: "pd.Series[Any]") -> "Doubles":
        """Return a column of the file ``name``; raise ``DataError`` if it does not hold numbers."""
        try:
            return column.to_numpy("float64")
        except (ValueError, TypeError):
            raise self._unlike(name) from None

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise self._unlike(name, f"cannot be read ({error.strerror})") from None

    def _unlike(self, name: str, fault: str = "is damaged, or from an old version") -> DataError:
        """Return the error about a file that is missing, damaged, or from an earlier version."""
        remedy = "repeat the run"
        if (self.folder / "last.pt").is_file():
            resume = shlex.quote(f"resume={self.folder}")
            remedy = f"type {as_started('train')} {resume} to measure the run again"
        return DataError(f"{self.folder / name} {fault}: {remedy}")


class Entries(dict[str, Any]):
    """A part of ``results.json``; reading a missing entry raises ``DataError``."""

    def __init__(self, missing: DataError, entries: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self._missing = missing

    def __missing__(self, name: str) -> Any:
        raise self._missing


def _fits(value: Any, shape: Any) -> bool:
    """Return whether ``value`` has ``shape``.

    A shape is a type, a tuple of alternative shapes, a list ``[shape]`` of any length, or a dict
    ``{name: shape}``, in which ``...`` stands for all other names. An entry may be missing, because
    earlier versions wrote fewer entries.
    """
    if isinstance(shape, tuple):
        return any(_fits(value, alternative) for alternative in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        shape_of_others = shape.get(..., object)
        return isinstance(value, dict) and all(
            _fits(entry, shape.get(name, shape_of_others)) for name, entry in value.items()
        )
    return isinstance(value, shape)


def by_identity(folder: Path) -> dict[str, Path]:
    """Return the folders of the runs directly in ``folder``, by the identities of the runs.

    If several runs have the same identity, a finished one is preferred.
    """
    folders: dict[str, Path] = {}
    for note in sorted(folder.glob(f"*/{NOTE}")):
        run = RunFolder(note.parent)
        if run.identity is not None and (run.finished or run.identity not in folders):
            folders[run.identity] = run.folder
    return folders


def runs_in(folder: Path) -> list[RunFolder]:
    """Return the runs in ``folder`` at any depth, and ``folder`` itself if it is a run.

    Old results that were moved to a folder ``before-...`` are left out.
    """
    run_folders = {file.parents[1] for file in folder.rglob(".hydra/config.yaml")}
    run_folders |= {file.parent for file in folder.rglob(RESULTS)}
    return [RunFolder(path) for path in sorted(run_folders) if not path.name.startswith(BEFORE)]


def find_runs(paths: Sequence[str]) -> tuple[list[RunFolder], list[Path]]:
    """Return the finished runs in ``paths``, and the folders of the unfinished runs.

    Args:
        paths: each is a run folder, its ``results.json``, or a folder with runs at any depth.

    Raises:
        DataError: a path leads to no finished run, or ``results.json`` is damaged or does not
            record which lists were measured.
    """
    runs_by_path: dict[Path, RunFolder] = {}
    for folder in map(Path, paths):
        runs = runs_in(folder.parent if folder.name == RESULTS else folder)
        if not any(run.finished for run in runs):
            raise DataError(
                f"{folder}: expected a folder that contains finished runs at any depth, found no "
                "results.json"
            )
        for run in runs:
            runs_by_path.setdefault(run.folder.resolve(), run)
    finished = [run for run in runs_by_path.values() if run.finished]
    for run in finished:
        _ = run.digest  # raises an error for a damaged run
    return finished, [run.folder for run in runs_by_path.values() if not run.finished]


def check_measured_alike(runs: Sequence[RunFolder]) -> None:
    """Raise ``ConfigError`` if some of ``runs`` are measured on test, and others on vali."""
    by_split = {run.split: run for run in runs}
    if len(by_split) > 1:
        raise ConfigError(
            f"{by_split['test'].folder} is measured on test, but {by_split['vali'].folder} has no "
            "test split: use only runs that are measured on the same split, or train again with a "
            "test split"
        )


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute the numbers."""
    installed = {"python": platform.python_version()} | dict.fromkeys(_COMPUTE, "not installed")
    for name in _COMPUTE:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def commit(package: Path = _PACKAGE) -> str | None:
    """Return the first 12 digits of the commit of the clone that contains ``package``.

    If tracked files have changed, ``+changes`` is appended. If ``package`` is not in a clone of
    this project, return the value of the environment variable ``LTR_COMMIT``, or None if it is not
    set.
    """
    if (package.parent / ".git").exists():
        describe = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
        with suppress(OSError, subprocess.CalledProcessError):
            output = subprocess.check_output(describe, cwd=package, stderr=subprocess.DEVNULL)
            return output.decode().strip()
    return os.environ.get("LTR_COMMIT") or None
