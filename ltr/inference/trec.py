"""Read and write TREC files, which have one item on each line, as trec_eval does.

A line of a run is ``qid Q0 id rank score tag``. A line of judgments, called qrels, is
``qid 0 id label``.
"""

import codecs
import logging
import re
from pathlib import Path

import numpy as np
import pandas as pd

from ltr.arrays import Floats, Reals
from ltr.atomic import atomic_write
from ltr.data.lists import Lists
from ltr.data.tables import query_text
from ltr.errors import ConfigError, DataError
from ltr.inference.scores_file import check_cells, numbers, reading

log = logging.getLogger(__name__)

_RUN = ("qid", "Q0", "id", "rank", "score", "tag")
_QRELS = ("qid", "0", "id", "label")
_SPACE = re.compile(r"\s", re.ASCII)
_LARGEST = float(np.finfo(np.float32).max)


def write_trec_run(path: Path, lists: Lists, ids: pd.DataFrame, scores: Reals) -> None:
    """Write ``scores`` as a TREC run: list by list, with the best item first.

    Items with equal scores (in float32) are sorted by id in descending order, as in trec_eval.

    Args:
        path: the file.
        lists: the lists, in the form that ``read_input`` returns.
        ids: the ids of their items, in the form that ``read_input`` returns. An item without an id
            gets the number of its row in the input, counted from 1.
        scores: ``[items]``; higher is better.

    Raises:
        ConfigError: ``ids`` has more than one column.
        DataError: an id is not one word, or occurs twice in a list.
    """
    items = _items(lists, ids).assign(Q0="Q0", score=scores.astype(np.float32), tag="ltr")
    items = items.sort_values(["list", "score", "id"], ascending=[True, False, False])
    items["rank"] = items.groupby("list").cumcount() + 1
    items["score"] = items["score"].to_numpy().astype(str)  # as short as float32 allows
    _write(path, items, _RUN)


def write_qrels(path: Path, lists: Lists, ids: pd.DataFrame) -> None:
    """Write the labels of ``lists``, which must be whole numbers, as qrels.

    The arguments and errors are the same as in ``write_trec_run``. ``DataError`` is also raised for
    a label that is not a whole number.
    """
    if np.any(lists.labels % 1):
        raise DataError(
            f"qrels={path}: expected labels that are whole numbers, got fractions: leave out qrels"
        )
    items = _items(lists, ids).assign(label=lists.labels.astype(int))
    _write(path, items.assign(**{"0": 0}), _QRELS)


def _write(path: Path, items: pd.DataFrame, names: tuple[str, ...]) -> None:
    rows = items[list(names)].astype(str).itertuples(index=False)
    atomic_write(path, "".join(" ".join(row) + "\n" for row in rows))


def _items(lists: Lists, ids: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the list number, the query id and the id of each item."""
    if ids.shape[1] > 1:
        raise ConfigError(f"id={list(ids)}: a TREC file has one id for each item; name one column")
    cells = [""] * lists.items if ids.empty else ids.astype(object).fillna("").iloc[:, 0].tolist()
    rows = lists.source_rows + 1
    names = [query_text(cell) or str(row) for cell, row in zip(cells, rows, strict=True)]
    list_numbers = np.repeat(np.arange(len(lists)), lists.lengths)
    items = pd.DataFrame({"list": list_numbers, "qid": lists.qids[list_numbers], "id": names})
    has_space = items["qid"].str.contains(_SPACE) | items["id"].str.contains(_SPACE)
    faulty = np.flatnonzero(has_space.to_numpy(bool) | items.duplicated())
    if len(faulty):
        first = faulty[0]
        raise DataError(
            f"query {items['qid'][first]!r}, id {items['id'][first]!r}: expected ids that "
            "have no spaces and are unique in their query, as TREC requires: change the ids, or "
            "set output=FILE.csv"
        )
    return items


def read_trec_run(run: Path, qrels: Path) -> tuple[Lists, Floats]:
    """Read a TREC run and its qrels; return the lists and their scores, ``[items]`` float32.

    The list of a query contains every item that the run or the qrels have for it, in descending
    order of id. With this order, ``ties="file"`` is the rule of trec_eval. Items without a
    judgment, or with a negative judgment, have the label 0. Items that are not in the run have the
    score -inf. Queries that are missing in one of the files are left out, and a warning is logged.

    Raises:
        DataError: a file cannot be read, an item occurs twice in a query, or the files have no
            query in common. The message about a wrong cell contains its line and its content.
    """
    ranked = _read(run, _RUN)
    judged = _read(qrels, _QRELS)
    ranked["score"] = numbers(run, ranked).clip(-_LARGEST, _LARGEST)
    is_grade = judged["label"].str.fullmatch("[+-]?[0-9]{1,7}")
    check_cells(qrels, judged, "label", is_grade, "expected a grade, which is a whole number")
    judged["label"] = judged["label"].astype(int).clip(lower=0)
    qids = ranked["qid"][ranked["qid"].isin(judged["qid"])].unique()
    only_ranked = len({*ranked["qid"]} - {*qids})
    only_judged = len({*judged["qid"]} - {*qids})
    if not len(qids):
        raise DataError(
            f"{run} and {qrels} have no query in common: check that they are about the same queries"
        )
    if only_ranked or only_judged:
        log.warning(
            "left out, as in trec_eval: %d queries that are only in %s, and %d that are only in %s",
            only_ranked,
            run,
            only_judged,
            qrels,
        )
    keys = ["qid", "id"]
    items = ranked[[*keys, "score"]].merge(judged[[*keys, "label"]], how="outer", on=keys)
    items["list"] = pd.Index(qids).get_indexer(items["qid"])
    items = items[items["list"] >= 0].sort_values(["list", "id"], ascending=[True, False])
    lists = Lists(
        features=np.empty((len(items), 0), np.float32),
        labels=items["label"].fillna(0).to_numpy(np.float32),
        offsets=np.append(0, np.bincount(items["list"]).cumsum()),
        qids=np.array(qids, dtype=str),
    )
    return lists, items["score"].fillna(-np.inf).to_numpy(np.float32)


def _read(path: Path, names: tuple[str, ...]) -> pd.DataFrame:
    """Read the columns ``names`` of a file as strings; the index holds the line numbers."""
    rows = dict[int, list[str]]()
    with reading(path, f"rows {' '.join(names)}"):
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
        for line, text in enumerate(lines, 1):
            # Bytes are split at ASCII spaces only, as in trec_eval; str is split at others too.
            row = [cell.decode() for cell in text.split()]
            if row:
                rows[line] = row
    for line, row in rows.items() or [(1, list[str]())]:
        if len(row) != len(names):
            problem = f"expected {len(names)} words ({' '.join(names)}), got {len(row)}"
            raise DataError(f"{path}:{line}: {problem}")
    cells = pd.DataFrame([*rows.values()], [*rows], names, dtype=str)
    check_cells(
        path, cells, "id", ~cells.duplicated(["qid", "id"]), "expected each id only once in a query"
    )
    return cells
