"""Metrics of scores that any tool made, under several conventions side by side."""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.console.configs import CONFIGS
from ltr.errors import ConfigError, DataError
from ltr.experiment.apply import check_not_input, read_file, report
from ltr.experiment.conventions import chosen_conventions
from ltr.experiment.labels import check_metrics
from ltr.experiment.run_folder import FILES, RunFolder
from ltr.metrics import parse_metric
from ltr.metrics.checks import levels_for
from ltr.training.evaluation import metrics_of_scores
from ltr.whole import safe_cell

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

DEFAULT_METRICS = (
    "ndcg@1",
    "ndcg@3",
    "ndcg@5",
    "ndcg@10",
    "mean_ndcg",
    "map",
    "mrr",
    "precision@10",
)


def evaluate_scores(cfg: DictConfig) -> str:
    """Evaluate the scores ``cfg.scores`` of the rows of ``cfg.data``; return the table.

    A column for each convention of ``cfg.metrics_as``, all there are where it is not given; each is
    described under the table.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    if cfg.data is None or not OmegaConf.is_missing(cfg, "checkpoint") or cfg.get("dataset"):
        raise ConfigError(
            f"scores={cfg.scores}: give data=FILE, the LETOR file whose rows they score, and "
            "neither checkpoint nor dataset"
        )
    if cfg.output is not None:
        check_not_input(Path(cfg.output), scores=cfg.scores, data=cfg.data)
    metrics = [parse_metric(str(name)) for name in cfg.metrics or DEFAULT_METRICS]
    chosen_conventions(cfg, {})  # what is wrong with them shows before the files are read
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    lists, order = read_file(Path(cfg.data), cfg.regroup)
    qids = np.empty(lists.items, dtype=object)
    qids[order] = np.repeat(lists.qids, lists.lengths)
    scores = read_scores(Path(cfg.scores), qids.tolist(), cfg.data)[order]
    if not cfg.get("metrics_as"):
        files = sorted((CONFIGS / "metrics_as").glob("*.yaml"))
        known = {path.stem: OmegaConf.load(path) for path in files}
        OmegaConf.update(cfg, "metrics_as", known, force_add=True)
    conventions = chosen_conventions(cfg, {"levels": levels_for(float(lists.labels.max()))})
    for convention in conventions.values():
        check_metrics(str(cfg.data), lists, metrics, convention, Path(cfg.data))
    values = {
        name: metrics_of_scores(lists, scores, metrics, convention, items=cfg.evaluation_items)
        for name, convention in conventions.items()
    }
    title = f"{cfg.scores} on {cfg.data}"
    (first, *_) = conventions
    return report(title, lists, values, conventions, alone=first, output=cfg.output)


def read_scores(path: Path, qids: Sequence[str], data: str) -> NDArray[np.float64]:
    """The score of each row of the data file, in the file's order.

    ``path`` holds a number a line, or is a CSV whose first line names its columns: ``score``, and
    perhaps ``qid``, which is then compared row by row, and ``row`` (1-based), the row of the data
    that it scores; without ``row`` the rows are those of the data, in their order. The output of
    ``scripts/predict.py`` is such a CSV.

    The ``scores.csv`` of a finished run is refused where it is not as the run left it.

    Args:
        path: the file of scores.
        qids: the query id of each row of the data.
        data: the name of the data file, for messages.

    Returns:
        ``[rows]``, float64: scores that differ in the last digit stay different.

    Raises:
        DataError: ``FILE:LINE: what stands there; what is expected``; or the file is damaged.
    """
    run = RunFolder(path.parent)
    if path.name in FILES and run.finished:
        run.checked(path.name)
    scores = np.full(len(qids), np.nan)
    count, line = 0, 0
    for line, text, qid, place in _entries(path):
        row = count if place is None else _row(path, line, place, len(qids), data)
        if row >= len(qids):
            raise DataError(
                f"{path}:{line}: a score more than the {len(qids):,} rows of {data}; give one "
                "score for each row of the data"
            )
        if qid is not None and qid not in (qids[row], safe_cell(qids[row])):
            raise DataError(
                f"{path}:{line}: qid {qid!r}, but row {row + 1} of {data} has {qids[row]!r}; put "
                "the scores in the order of the data, or name their rows in a column row"
            )
        if not np.isnan(scores[row]):
            raise DataError(f"{path}:{line}: row {row + 1} again; score each row of the data once")
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            shown = repr(text if len(text) <= 40 else text[:37] + "...")
            raise DataError(f"{path}:{line}: score {shown}; expected a finite number")
        scores[row] = float(text)
        count += 1
    if count < len(qids):
        raise DataError(
            f"{path}:{max(line, 1)}: ends after {count:,} scores, but {data} has "
            f"{len(qids):,} rows; give one score for each row of the data"
        )
    return scores


def _entries(path: Path) -> Iterator[tuple[int, str, str | None, str | None]]:
    """Line number, score, qid and row of each entry, as text; None where there is no such column.

    Blank lines at the end are left out; one in the middle is a score that is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = file.read().rstrip().splitlines()
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror or error}; set scores to a readable file"
        ) from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: bytes that are not text; write the scores as text or CSV"
        ) from None
    except MemoryError:
        raise DataError(f"{path}: larger than memory; set scores to a file of scores") from None
    head = _cells(path, 1, lines[0]) if lines else []
    twice = [name for name in ("score", "qid", "row") if head.count(name) > 1]
    if twice:
        raise DataError(f"{path}:1: two columns {twice[0]}; keep one of them")
    if "score" not in head:
        for number, line in enumerate(lines, 1):
            yield number, line.strip(), None, None
        return
    for number, line in enumerate(lines[1:], 2):
        cells = _cells(path, number, line)
        if len(cells) != len(head):
            raise DataError(
                f"{path}:{number}: {len(cells)} columns; expected the {len(head)} of line 1: "
                f"{','.join(head)}"
            )
        entry = dict(zip(head, cells, strict=True))
        yield number, entry["score"], entry.get("qid"), entry.get("row")


def _cells(path: Path, number: int, line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error as error:  # a cell of more than 131,072 characters
        raise DataError(f"{path}:{number}: {error}; expected a number, or CSV") from None


def _row(path: Path, line: int, text: str, rows: int, data: str) -> int:
    """The 0-based row that ``text`` names."""
    if not re.fullmatch(r"[0-9]{1,15}", text) or not 1 <= int(text) <= rows:
        raise DataError(
            f"{path}:{line}: row {text[:40]!r}; expected a row of {data}, a whole number from 1 to "
            f"{rows}"
        )
    return int(text) - 1
