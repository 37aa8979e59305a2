"""Read the scores that any tool gave to the rows of a file, and measure them beside a run."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ltr.atomic import safe_cell
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.labels import check_metrics
from ltr.experiment.run_folder import FILES, RunFolder
from ltr.metrics import Convention
from ltr.scorers.inputs import is_table, read_file
from ltr.scorers.parts import make_dataset, named_metrics
from ltr.scorers.trust import trusted
from ltr.training.evaluation import metrics_of_scores

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


def read_scored(
    path: Path, data: Path, *, regroup: bool = False
) -> tuple[Lists, NDArray[np.float64]]:
    """The lists of the LETOR file ``data``, and the scores ``path`` of their items."""
    if is_table(data):
        raise DataError(
            f"{data} is a table, not LETOR text: write a line 'LABEL qid:ID 1:0' for each of its "
            "rows into a file, and give that"
        )
    lists = read_file(data, regroup).lists
    return lists, scores_of(path, lists, str(data))


def scores_of(path: Path, lists: Lists, data: str) -> NDArray[np.float64]:
    """The scores in ``path``, as ``read_scores`` reads them, of the items of ``lists``."""
    rows = np.arange(lists.items) if lists.rows is None else lists.rows
    qids = np.empty(lists.items, dtype=object)
    qids[rows] = np.repeat(lists.qids, lists.lengths)
    return read_scores(path, qids.tolist(), data)[rows]


def read_scores(path: Path, qids: Sequence[str], data: str) -> NDArray[np.float64]:
    """The score of each row of the data file, ``[rows]`` float64 in the file's order.

    ``path`` holds a number a line, or is a CSV whose first line names its columns: ``score``, and
    perhaps ``qid``, compared row by row, and ``row`` (1-based), the row of the data that it scores.
    ``qids`` are the query id of each row of the data, ``data`` its name for messages.

    Raises:
        DataError: ``FILE:LINE: what stands there; what is expected``; or the file is damaged.
    """
    run = RunFolder(path.parent)
    if path.name in FILES and run.finished:
        run.checked(path.name)
    try:
        text = path.read_bytes().decode("utf-8-sig").rstrip()
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror or error}; set scores to a readable file"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: bytes that are not text; write scores as text or CSV") from None
    lines = re.split("\r\n|\r|\n", text)
    head = [name.strip(' "') for name in lines[0].split(",")]
    named = "score" in head
    if not named and len(head) > 1:
        raise DataError(f"{path}:1: no column score in {lines[0][:40]!r}; name the column 'score'")
    if named and len({*head}) < len(head):
        raise DataError(f"{path}:1: a column stands there twice; keep one of them")
    frame = pd.DataFrame({"score": lines if text else []}, dtype=str)
    if named:
        how: Any = {"dtype": str, "na_filter": False, "skip_blank_lines": False, "index_col": False}
        try:
            frame = pd.read_csv(io.StringIO(text), names=head, skiprows=1, **how)
        except pd.errors.EmptyDataError:
            frame = pd.DataFrame(columns=head, dtype=str)
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            why = " ".join(str(error).split())
            raise DataError(f"{path}: {why}; give each line the columns of line 1") from None
    cells = {name: frame[name].str.strip() for name in frame if name in ("score", "qid", "row")}

    def check(right: Any, what: Callable[[int], str]) -> None:
        if not (fits := np.asarray(right, dtype=bool)).all():
            at = int(fits.argmin())
            raise DataError(f"{path}:{at + 1 + named}: {what(at)}")

    rows: Any = np.arange(len(frame))
    wanted = len(qids)
    if "row" in cells:
        known = cells["row"].str.fullmatch("[0-9]{1,15}")
        rows = cells["row"].where(known, "0").astype(np.int64).to_numpy() - 1
        expected = f"expected a row of {data}, a whole number from 1 to {wanted}"
        check((rows >= 0) & (rows < wanted), lambda i: f"row {cells['row'][i][:40]!r}; {expected}")
        again = pd.Series(rows).duplicated()
        check(~again, lambda i: f"row {rows[i] + 1} again; score each row of the data once")
    rest = "give one score for each row of the data"
    check(rows < wanted, lambda i: f"a score more than the {wanted:,} rows of {data}; {rest}")
    if "qid" in cells:
        theirs = pd.Series(qids, dtype=object)[rows].reset_index(drop=True)
        check(
            (cells["qid"] == theirs) | (cells["qid"] == theirs.map(safe_cell)),
            lambda i: (
                f"qid {cells['qid'][i]!r}, but row {rows[i] + 1} of {data} has {theirs[i]!r}; "
                "put the scores in the order of the data, or name their rows in a column row"
            ),
        )
    plain = cells["score"].str.fullmatch(_NUMBER)
    values = cells["score"].where(plain, "nan").to_numpy(object).astype(np.float64)
    shown = cells["score"].str.slice(0, 40)
    check(np.isfinite(values), lambda i: f"score {shown[i]!r}; expected a finite number")
    if len(frame) < wanted:
        ends = f"ends after {len(frame):,} scores, but {data} has {wanted:,} rows"
        raise DataError(f"{path}:{len(frame) + named or 1}: {ends}; {rest}")
    scores = np.empty(wanted)
    scores[rows] = values
    return scores


def values_of_scores(
    scores: Path, run: RunFolder, metric: str, *, data: Path | None, places: Mapping[str, str]
) -> NDArray[np.float64]:
    """``metric`` of each test query of ``run``, ``[queries]`` in the order of its ``queries.csv``.

    Args:
        scores: the file, as for ``read_scores``.
        run: whose test lists are scored, and whose convention holds.
        metric: as ``named_metrics`` takes it; a function of the user's own is imported.
        data: the LETOR file whose rows are scored; None: the run's own test lists.
        places: ``cache_dir``, and perhaps ``data_dir``, of the run's own lists.
    """
    (measure,), convention = named_metrics([metric]), Convention(**run.convention[0])
    if data is not None:
        lists, values = read_scored(scores, data)
        _check_queries(run, lists, data)
    else:
        lists = _test_lists(run, places)
        values = scores_of(scores, lists, f"the test lists of {run.folder}")
    check_metrics("test", lists, [measure], convention)
    return metrics_of_scores(lists, values, [measure], convention)[str(measure)]


def _test_lists(run: RunFolder, places: Mapping[str, str]) -> Lists:
    node = trusted({**run.results["protocol"], **places}, ["dataset"]).dataset
    if node.get("path"):
        raise ConfigError(
            f"{run.folder}: its test lists are cut from {node.path}, so that the scores of a file "
            "would have rows of train too: train on dataset.split with a table of its own for test"
        )
    if "data_dir" in places and "data_dir" in node:
        node.data_dir = places["data_dir"]
    lists = make_dataset(node).split("test")
    if lists.digest != run.digest:
        raise DataError(
            f"{run.folder}: its test lists have changed: give data=FILE, the LETOR file that was "
            "scored"
        )
    return lists


def _check_queries(run: RunFolder, lists: Lists, data: Path) -> None:
    """Check that ``lists`` have the queries of ``run``: ids, items, and which are empty."""
    qids = np.array([safe_cell(str(qid)) for qid in lists.qids])
    found = {"qid": qids, "items": lists.lengths, "empty": lists.empty}
    for name, column in found.items():
        expected = run.queries[name].to_numpy()
        if len(column) != len(expected):
            what = f"{len(column):,} queries, the test lists of {run.folder} have {len(expected):,}"
        elif len(differ := np.flatnonzero(column != expected)):
            row = int(differ[0])
            what = (
                f"query {row + 1} has {name} {column[row]}, in {run.folder} it has {expected[row]}"
            )
        else:
            continue
        raise DataError(f"{data}: {what}: give the file that the run was tested on")
