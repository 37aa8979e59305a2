"""Read files of scores from any tool, and compute metrics of the scores on the lists of a run."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ltr.arrays import Doubles, Ints, Reals
from ltr.atomic import safe_cell
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError, LTRError
from ltr.experiment.data_checks import check_metrics
from ltr.experiment.run_folder import FILES, RunFolder
from ltr.inference.inputs import is_table, read_file
from ltr.knobs import parse_number
from ltr.metrics import Convention
from ltr.parts.components import build_dataset, named_metrics
from ltr.parts.trust import trusted
from ltr.training.caveats import warn_of_measurement
from ltr.training.evaluation import means, metrics_of_scores

_TEXTS: Any = {"dtype": str, "na_filter": False, "encoding": "utf-8-sig"}


def read_scored(path: Path, data: Path, *, regroup: bool = False) -> tuple[Lists, Doubles]:
    """Read the LETOR file ``data`` and the scores in ``path``; return lists and ``[items]`` scores.

    Raises:
        DataError: a file cannot be read, ``data`` is not LETOR text, or the files do not match.
    """
    if is_table(data):
        raise DataError(
            f"data={data}: expected LETOR text, got a table: write a file with a line "
            "'LABEL qid:ID 1:0' for each row of the table, and set data to that file"
        )
    lists, _ = read_file(data, regroup)
    return lists, scores_of(path, lists, str(data))


def scores_of(path: Path, lists: Lists, data: str) -> Doubles:
    """Return the scores in ``path`` (see ``read_scores``) in the order of the items of ``lists``.

    ``data`` is the name of the data for error messages.
    """
    rows = lists.source_rows
    qids = np.empty(lists.items, dtype=object)
    qids[rows] = np.repeat(lists.qids, lists.lengths)
    return read_scores(path, qids.tolist(), data)[rows]


def read_scores(path: Path, qids: Sequence[str], data: str) -> Doubles:
    """Read a file of scores; return one score for each row of the data, float64 ``[rows]``.

    The scores are returned in the order of the data's rows.

    Args:
        path: a file with one number per line, or a CSV file with a header and a column ``score``. A
            column ``qid`` must hold the query ids of the data. A column ``row`` says to which row
            of the data, counted from 1, each score belongs.
        qids: the query id of each row of the data.
        data: the name of the data for error messages.

    Raises:
        DataError: the file is invalid. The message about a wrong cell contains its line and its
            content.
    """
    run = RunFolder(path.parent)
    if path.name in FILES and run.finished:
        run.checked(path.name)
    cells = _read_cells(path)
    check = partial(check_cells, path, cells)
    rows: Ints = np.arange(len(cells))
    if "row" in cells:
        number = cells["row"].where(cells["row"].str.fullmatch("[0-9]{1,9}"), "0").astype(int)
        fits = number.between(1, len(qids)) & ~number.duplicated()
        check("row", fits, f"expected a row number of {data}, 1 to {len(qids)}, each only once")
        rows = np.asarray(number, np.int64) - 1
    if len(cells) != len(qids):
        raise DataError(
            f"{path}: expected a score for each of the {len(qids):,} rows of {data}, got "
            f"{len(cells):,}"
        )
    if "qid" in cells:
        expected = pd.Series(np.array(qids, object)[rows], cells.index)
        same = (cells["qid"] == expected) | (cells["qid"] == expected.map(safe_cell))
        check("qid", same, f"expected the query id of the same row of {data}")
    scores = np.empty(len(qids))
    scores[rows] = numbers(path, cells)
    return scores


def _read_cells(path: Path) -> pd.DataFrame:
    """Read a file of scores as strings with a column ``score``; the index holds line numbers."""
    with reading(
        path,
        "scores; each line must have as many cells as the first, and decimals must be written with "
        "a point",
    ):
        with path.open(encoding="utf-8-sig") as file:
            first_line = file.readline().rstrip("\n")
        has_header = bool(re.search(r'(^|,) *"?score"? *(,|$)', first_line))
        # The header is read as a row. A row with more cells than the header is then an error.
        frame = pd.read_csv(path, header=None, skipinitialspace=True, **_TEXTS)
    if not has_header:
        if frame.shape[1] > 1:
            raise DataError(
                f"{path}:1: expected a column named 'score', got none: write the names of the "
                "columns in the first line"
            )
        cells = frame.set_axis(["score"], axis=1)
        cells.index += 1
        return cells
    names = [name.strip(" \t") for name in frame.iloc[0]]
    repeated = [name for name in ("score", "qid", "row") if names.count(name) > 1]
    if repeated:
        raise DataError(f"{path}:1: two columns are named {repeated[0]!r}; rename one of them")
    cells = frame.iloc[1:].reset_index(drop=True).set_axis(names, axis=1)
    cells.index += 2
    return cells


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Context in which an error in reading the file ``path`` becomes a ``DataError``.

    ``expected`` says what the file should contain.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        message = " ".join(str(error).split())
        raise DataError(f"{path}: {message}; expected a file of {expected}") from None


def check_cells(path: Path, cells: pd.DataFrame, name: str, valid: Any, expected: str) -> None:
    """Raise ``DataError`` for the first invalid cell of the column ``name``.

    Args:
        path: the file that the cells were read from.
        cells: the cells as strings; the index contains the line of each row in ``path``.
        name: the column.
        valid: ``[rows]``, whether each cell of the column is valid.
        expected: a description of a valid cell, for the message.
    """
    if not np.all(valid):
        line = cells.index[int(np.argmin(np.asarray(valid)))]
        raise DataError(f"{path}:{line}: {cells[name][line][:40]!r}: {expected}")


def numbers(path: Path, cells: pd.DataFrame) -> Doubles:
    """Return the column ``score`` as numbers, ``[rows]``; raise ``DataError`` if one is not finite.

    ``path`` is the file, for the message.
    """
    values = np.array([_number(cell) for cell in cells["score"]], dtype=np.float64)
    check_cells(path, cells, "score", np.isfinite(values), "expected a finite number")
    return values


def _number(cell: str) -> float:
    try:
        return parse_number(cell)
    except ValueError:
        return math.nan


def values_of_scores(
    scores: Path, run: RunFolder, metric: str, *, data: Path | None, folders: Mapping[str, str]
) -> Doubles:
    """Compute ``metric`` of another ranker's scores for each line of the run's ``queries.csv``.

    Args:
        scores: the file of scores, see ``read_scores``.
        run: the run that provides the convention and the lists on which it was measured.
        metric: a name that ``named_metrics`` accepts; a user-defined function is imported.
        data: the LETOR file whose rows are scored; if None, the lists are read as in the run.
        folders: ``cache_dir`` and optionally ``data_dir``, to read these lists.

    Raises:
        ConfigError: the metric is undefined on these lists, or they are part of a file that also
            contains the training lists.
        DataError: a file is invalid, or the lists are not those on which the run was measured.
    """
    if data is not None:
        lists, values = read_scored(scores, data)
        _check_queries(run, lists, data)
    else:
        lists = _measured_lists(run, folders)
        table = run.results["protocol"].get("dataset", {}).get("path")
        if table or lists.source_rows.max() >= lists.items:  # rows of a larger file
            raise ConfigError(
                f"{run.folder}: its {run.split} lists are only some of the rows of its data "
                "file, so they cannot be matched with a file of scores, which has a score for each "
                f"row: train with a separate file for {run.split}"
            )
        values = scores_of(scores, lists, f"the {run.split} lists of {run.folder}")
    return measure_lists(lists, values, metric, Convention(**run.convention[0]), run.split)


def values_of_stored_scores(run: RunFolder, metric: str, folders: Mapping[str, str]) -> Doubles:
    """Compute ``metric`` of the run's own scores for each line of its ``queries.csv``.

    The arguments have the same meaning as in ``values_of_scores``.

    Raises:
        ConfigError: the run's lists cannot be read, or the metric is undefined on them.
        DataError: the run does not have one score for each item.
    """
    try:
        lists = _measured_lists(run, folders)
    except LTRError as error:
        raise ConfigError(
            f"metric={metric}: the run {run.folder} did not compute this metric, and its "
            f"{run.split} lists cannot be read to compute the metric now ({error}): choose one of "
            f"{', '.join(run.measured)}, or set data_dir=FOLDER"
        ) from error
    if len(run.scores) != lists.items:
        raise DataError(
            f"{run.folder}: expected {lists.items:,} scores, one for each item, got "
            f"{len(run.scores):,}: repeat the run"
        )
    return measure_lists(lists, run.scores, metric, Convention(**run.convention[0]), run.split)


def measure_lists(
    lists: Lists, scores: Reals, metric: str, convention: Convention, split: str = "test"
) -> Doubles:
    """Compute ``metric`` for each list; return the values, ``[lists]``.

    Raises ``ConfigError`` if the metric is undefined on one of the lists.
    """
    (measure,) = named_metrics([metric])
    check_metrics(split, lists, [measure], convention)
    values = metrics_of_scores(lists, scores, [measure], convention)
    warn_of_measurement(split, lists, scores, [measure], convention, means(values, convention))
    return values[str(measure)]


def _measured_lists(run: RunFolder, folders: Mapping[str, str]) -> Lists:
    """Read the lists on which ``run`` was measured."""
    node = trusted({**run.results["protocol"], **folders}, ["dataset"]).dataset
    if "data_dir" in folders and "data_dir" in node:
        node.data_dir = folders["data_dir"]
    lists = build_dataset(node).split(run.split)
    if lists.digest != run.digest:
        raise DataError(
            f"{run.folder}: its {run.split} lists have changed: set data=FILE to the LETOR file "
            "that was scored"
        )
    return lists


def _check_queries(run: RunFolder, lists: Lists, data: Path) -> None:
    """Raise ``DataError`` unless query ids, list lengths and empty lists are those of the run."""
    ours = pd.DataFrame({"qid": lists.qids, "items": lists.lengths, "empty": lists.empty})
    theirs = run.queries[list(ours)].copy()
    for table in (ours, theirs):  # earlier versions wrote the ids with safe_cell
        table["qid"] = table["qid"].map(safe_cell)
    if ours.to_numpy().tolist() != theirs.to_numpy().tolist():
        raise DataError(
            f"{data}: the query ids, the list lengths or the empty lists differ from those of "
            f"{run.folder}: use the file on which the run was "
            f"{'tested' if run.split == 'test' else 'measured'}"
        )
