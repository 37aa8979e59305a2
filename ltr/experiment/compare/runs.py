"""Finished runs found on disk: what they measured, on what, and by which config."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ltr.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run folder that holds ``results.json`` and ``queries.csv``."""

    folder: Path
    results: dict[str, Any]

    @property
    def seed(self) -> int:
        """Of the training."""
        return int(self.results["seed"])

    @property
    def repeat(self) -> str | None:
        """Which lists of a repeated data set it is on: the fold, or the seed that drew them."""
        dataset = self.results["protocol"].get("dataset", {})
        given = {"fold": self.results.get("fold"), "dataset.seed": dataset.get("seed")}
        said = (f"{key} {value}" for key, value in given.items() if value is not None)
        return ", ".join(said) or None

    @property
    def digest(self) -> str:
        """SHA-256 of the test lists."""
        return str(self.results["data"]["test"]["digest"])

    @property
    def convention(self) -> str:
        """In words."""
        return str(self.results["convention"]["text"])

    @property
    def convention_keys(self) -> dict[str, Any]:
        """Its keys, however it was put into words."""
        kept = dict(self.results["convention"])
        return {key: value for key, value in kept.items() if key != "text"} or kept

    def queries(self) -> pd.DataFrame:
        """``queries.csv``: a row per test query.

        Raises:
            DataError: it cannot be read, or does not hold the lists of ``results.json``.
        """
        path = self.folder / "queries.csv"
        try:
            table = pd.read_csv(path, dtype={"qid": str})
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise DataError(f"{path} cannot be read ({reason}): run it again") from None
        lists = self.results["data"]["test"]["lists"]
        if "qid" not in table or len(table) != lists:
            raise DataError(
                f"{path} holds {len(table)} queries, results.json says {lists}: run it again"
            )
        return table

    def values(self, metric: str) -> tuple[list[str], NDArray[np.float64]]:
        """The query ids, and ``metric`` of each; NaN where the convention skips the list.

        Raises:
            ConfigError: the run did not measure it.
        """
        table = self.queries()
        if metric not in table or metric in ("qid", "items", "empty"):
            known = [name for name in table.columns if name not in ("qid", "items", "empty")]
            raise ConfigError(
                f"metric={metric}: {self.folder} has {', '.join(known)}; choose one of these, or "
                f"train again with metrics=[{','.join([*known, metric])}]"
            )
        return table["qid"].tolist(), table[metric].to_numpy(np.float64)


def find_runs(paths: Sequence[str]) -> tuple[list[FinishedRun], list[Path]]:
    """The finished runs in ``paths``, and the folders of runs that are not finished.

    A path is a run folder, a folder with runs at any depth, or a pattern such as ``'outputs/*'``.

    Raises:
        DataError: a path leads to no finished run, or a file is damaged.
    """
    found: dict[Path, FinishedRun] = {}
    unfinished: dict[Path, None] = {}
    for path in paths:
        folders = [Path(path)] if Path(path).exists() else _matching(path)
        files = [file for folder in folders for file in _results_under(folder)]
        if not files:
            raise DataError(
                f"{path}: no results.json there or below; give the folder of a finished run of "
                "train.py, or one that holds such folders"
            )
        for file in files:
            found.setdefault(file.parent.resolve(), _read(file))
        for folder in folders:
            configs = sorted(folder.rglob(".hydra/config.yaml")) if folder.is_dir() else []
            for run in (config.parents[1] for config in configs):
                if not (run / "results.json").is_file():
                    unfinished[run] = None
    return list(found.values()), list(unfinished)


def _matching(pattern: str) -> list[Path]:
    base = Path(pattern).anchor
    return sorted(Path(base).glob(pattern[len(base) :]))


def _results_under(folder: Path) -> list[Path]:
    if folder.name == "results.json":
        return [folder]
    if (folder / "results.json").is_file():
        return [folder / "results.json"]
    return sorted(folder.rglob("results.json")) if folder.is_dir() else []


def _read(file: Path) -> FinishedRun:
    try:
        run = FinishedRun(file.parent, json.loads(file.read_text()))
        _ = run.seed, run.repeat, run.digest, run.convention, run.results["choices"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{file}: not what train.py writes; run it again") from None
    return run
