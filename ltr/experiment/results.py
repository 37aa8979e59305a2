"""What a run leaves behind for people and later tables: its metrics, its scores, its versions."""

import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tabulate import tabulate

from ltr.data.lists import Lists
from ltr.whole import write_frame

if TYPE_CHECKING:  # it imports torch
    from ltr.training.evaluation import PerQuery


def write_queries(path: Path, lists: Lists, values: "PerQuery") -> None:
    """Write one row per query: id, number of items, whether it is empty, every metric."""
    table = {"qid": lists.qids, "items": lists.lengths, "empty": lists.empty, **values}
    write_frame(path, pd.DataFrame(table))


def write_scores(path: Path, lists: Lists, scores: NDArray[np.float32]) -> None:
    """Write query id and score of every item, in the order of ``lists``, as CSV.

    ``scripts/evaluate.py scores=FILE data=TEST`` and other tools read it; no digit is lost.
    """
    # as text of float32: pandas would write the digits of a float64
    table = pd.DataFrame({"qid": np.repeat(lists.qids, lists.lengths), "score": scores.astype(str)})
    write_frame(path, table)


def metric_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """A table with a row per metric and a column per split."""
    metrics = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(column.get(name) for column in columns.values())] for name in metrics]
    return tabulate(rows, ["metric", *columns], floatfmt=".4f", tablefmt="simple")


def describe_lists(lists: Lists) -> dict[str, Any]:
    """What identifies a split, and its size."""
    return {
        "digest": lists.digest,
        "lists": len(lists),
        "items": lists.items,
        "empty_lists": int(lists.empty.sum()),
        "missing_values": lists.missing,
    }


def versions() -> dict[str, str]:
    """Versions of what computes the numbers."""
    names = ("ltr-torch", "torch", "numpy", "pandas", "scikit-learn", "hydra-core", "omegaconf")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def commit() -> str | None:
    """The commit of the code, with ``+changes`` where tracked files differ; None outside git."""

    def git(*args: str) -> str:
        here = Path(__file__).resolve().parent
        done = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        return head + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def short_commit(commit: str) -> str:
    """What ``commit`` gave, as people write it.

    >>> short_commit("0123456789abcdef0123456789abcdef01234567+changes")
    '0123456789ab+changes'
    """
    return commit[:12] + ("+changes" if commit.endswith("+changes") else "")
