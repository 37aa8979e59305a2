"""Metrics of a kept model or of any tool's scores, under several conventions side by side."""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.atomic import safe_cell
from ltr.console.configs import files_of
from ltr.console.values import flag
from ltr.data.batches import ItemTensors
from ltr.data.lists import SPLITS, Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.labels import check_metrics
from ltr.experiment.parts import as_list, named_metrics
from ltr.experiment.report import metric_table
from ltr.experiment.run_folder import FILES, RunFolder, write_queries
from ltr.experiment.scorer import load_model
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.scoring.predict import check_output, read_file, read_text, set_threads
from ltr.scoring.table_input import is_table
from ltr.training.device import pick_device
from ltr.training.evaluation import means, metrics_of_scores

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

DEFAULT_METRICS = (
    "ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "mean_ndcg", "map", "mrr", "precision@10",
)  # fmt: skip


def evaluate_kept(cfg: DictConfig) -> str:
    """Evaluate the model ``cfg.checkpoint``; return its table and conventions.

    The lists are those of the LETOR file ``cfg.data``, or ``cfg.split`` of the data set
    ``cfg.dataset``, or of the run's own where neither is given.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    if OmegaConf.is_missing(cfg, "checkpoint"):
        raise ConfigError("give checkpoint=..., or scores=... and data=...; see --help")
    if cfg.split not in SPLITS:
        raise ConfigError(f"split={cfg.split}: choose one of {', '.join(SPLITS)}")
    chosen, of_file = cfg.get("dataset") is not None, cfg.data is not None
    if of_file:
        _check_file(cfg)
    elif flag(cfg, "regroup"):
        raise ConfigError("regroup: it is of data=FILE; write dataset.regroup=true, with dataset=")
    if cfg.output is not None:
        check_output(Path(cfg.output), ".csv", **({"data": cfg.data} if of_file else {}))
    set_threads(cfg)
    scorer = load_model(cfg.checkpoint, pick_device(cfg.device), cfg.trust)
    given = {"dataset": chosen or of_file, "metrics": cfg.metrics is not None}
    used = [part for part in given if not given[part]]
    own = scorer.own_config(cfg, used)
    names = as_list(own.metrics if cfg.metrics is None else cfg.metrics)
    if not names:
        raise ConfigError("metrics=[] asks for nothing: name some, such as 'metrics=[ndcg@5]'")
    metrics = named_metrics(names, own.get("own_metrics") or {} if cfg.metrics is None else None)
    settings: Any = OmegaConf.to_object(own.convention)
    if cfg.suggested.get("levels") is not None:  # the chosen data set's
        settings["levels"] = cfg.suggested.levels
    conventions = chosen_conventions(cfg, settings)

    if chosen and cfg.data_dir is None:
        OmegaConf.update(cfg, "data_dir", own.data_dir)
    if of_file:
        name, split = cfg.data, "data"
        lists = read_text(cfg, "data", scorer, labelled=True).lists
    else:
        dataset, lists = scorer.read(cfg.dataset if chosen else own.dataset, cfg.split)
        fold = f" fold {dataset.fold}" if dataset.fold is not None else ""
        name, split = f"{dataset.name}{fold}", cfg.split
    for convention in conventions.values():
        check_metrics(split, lists, metrics, convention)
    data = scorer.open(lists)
    scores = scorer.scores(data, items=cfg.evaluation_items)
    title = f"{cfg.checkpoint} on {name}"
    return _report(cfg, title, data, scores, metrics, conventions, lists, alone=split)


def _check_file(cfg: DictConfig) -> None:
    """Refuse what says nothing of the file ``cfg.data``, and a table."""
    if cfg.get("dataset") is not None:
        raise ConfigError(f"data={cfg.data}: it stands instead of dataset; leave one of them out")
    if cfg.split != "test":
        raise ConfigError(f"split={cfg.split}: data={cfg.data} has no splits; leave split out")
    if cfg.scores is None and is_table(Path(cfg.data)):
        raise ConfigError(
            f"data={cfg.data} is a table, not LETOR text: write dataset=table "
            f"dataset.split.test={cfg.data} dataset.query=COLUMN dataset.label=COLUMN"
        )


def evaluate_scores(cfg: DictConfig) -> str:
    """Evaluate the scores ``cfg.scores`` of the rows of ``cfg.data``; return the table.

    It has a column for each convention of ``cfg.metrics_as``, by default for all of
    ``configs/metrics_as``; each is described under the table.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    if cfg.data is None or not OmegaConf.is_missing(cfg, "checkpoint") or cfg.get("dataset"):
        raise ConfigError(
            f"scores={cfg.scores}: give data=FILE, the LETOR file whose rows they score, and "
            "neither checkpoint nor dataset"
        )
    _check_file(cfg)
    if cfg.output is not None:
        check_output(Path(cfg.output), ".csv", scores=cfg.scores, data=cfg.data)
    metrics = named_metrics(as_list(cfg.metrics) or DEFAULT_METRICS)
    chosen_conventions(cfg, {})  # a mistake in them shows before the files are read
    set_threads(cfg)
    lists, scores = read_scored(Path(cfg.scores), Path(cfg.data), regroup=flag(cfg, "regroup"))
    if not cfg.get("metrics_as"):
        known = {name: OmegaConf.load(path) for name, path in files_of("metrics_as").items()}
        OmegaConf.update(cfg, "metrics_as", known, force_add=True)
    conventions = chosen_conventions(cfg, {"levels": levels_for(float(lists.labels.max()))})
    for convention in conventions.values():
        check_metrics(str(cfg.data), lists, metrics, convention)
    title, first = f"{cfg.scores} on {cfg.data}", next(iter(conventions))
    return _report(cfg, title, lists, scores, metrics, conventions, lists, alone=first)


def chosen_conventions(cfg: DictConfig, own: Mapping[str, Any]) -> dict[str, Convention]:
    """The conventions that ``cfg.metrics_as`` holds by name.

    Args:
        cfg: of ``configs/evaluate.yaml``; the keys of its ``convention`` that are not null override
            those of every name.
        own: values of the keys that neither a name nor ``cfg`` sets; without ``metrics_as`` these
            alone, under the name ``own``.

    Raises:
        ConfigError: a value is wrong.
    """
    given: Any = OmegaConf.to_object(cfg.convention)
    set_here = {key: value for key, value in given.items() if value is not None}
    named: Any = OmegaConf.to_object(cfg.metrics_as) if cfg.get("metrics_as") else {"own": {}}
    return {name: Convention(**{**own, **keys, **set_here}) for name, keys in named.items()}


def _report(
    cfg: DictConfig,
    title: str,
    data: ItemTensors | Lists,
    scores: Any,
    metrics: Sequence[Metric],
    conventions: Mapping[str, Convention],
    lists: Lists,
    *,
    alone: str,
) -> str:
    """The table of the means and the conventions in words; the metrics of every query as a file.

    Args:
        cfg: ``output`` is the CSV file, or null; where there are several conventions, a column of
            it is ``letor4 ndcg@5``.
        title: what was evaluated.
        data, scores, metrics: as for ``metrics_of_scores``.
        conventions: by name.
        lists: the lists of ``data``.
        alone: the head of the column where there is one convention only.
    """
    items, single = cfg.evaluation_items, len(conventions) == 1
    values = {
        name: metrics_of_scores(data, scores, metrics, convention, items=items)
        for name, convention in conventions.items()
    }
    if cfg.output is not None:
        columns = {
            name if single else f"{convention} {name}": of_list
            for convention, of_metric in values.items()
            for name, of_list in of_metric.items()
        }
        write_queries(Path(cfg.output), lists, columns)
    table, words = {}, []
    for name, convention in conventions.items():
        table[alone if single else name] = means(values[name], convention)
        words.append(convention.describe() if single else f"{name}: {convention.describe()}")
    described = "\n".join(words)
    return f"{title}, {len(lists):,} lists\n\n{metric_table(table)}\n\n{described}"


def read_scored(
    path: Path, data: Path, *, regroup: bool = False
) -> tuple[Lists, NDArray[np.float64]]:
    """The lists of the LETOR file ``data``, and the scores ``path`` of their items.

    Raises:
        DataError: as ``read_file`` and ``read_scores``.
    """
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
    scores: list[float | None] = [None] * len(qids)
    count, line = 0, 0
    for line, text, qid, place in _entries(path):
        row = count if place is None else _row(path, line, place, len(qids), data)
        if row >= len(qids):
            raise DataError(
                f"{path}:{line}: a score more than the {len(qids):,} rows of {data}; give one "
                "score for each row of the data"
            )
        if qid is not None and qid != qids[row] and qid != safe_cell(qids[row]):
            raise DataError(
                f"{path}:{line}: qid {qid!r}, but row {row + 1} of {data} has {qids[row]!r}; put "
                "the scores in the order of the data, or name their rows in a column row"
            )
        if scores[row] is not None:
            raise DataError(f"{path}:{line}: row {row + 1} again; score each row of the data once")
        score = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not math.isfinite(score):
            shown = repr(text if len(text) <= 40 else text[:37] + "...")
            raise DataError(f"{path}:{line}: score {shown}; expected a finite number")
        scores[row] = score
        count += 1
    if count < len(qids):
        raise DataError(
            f"{path}:{max(line, 1)}: ends after {count:,} scores, but {data} has "
            f"{len(qids):,} rows; give one score for each row of the data"
        )
    return np.array(scores, np.float64)


def _entries(path: Path) -> Iterator[tuple[int, str, str | None, str | None]]:
    """Line number, score, qid and row of each entry, as text; None where there is no such column.

    Blank lines at the end are left out; one in the middle is a score that is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read().rstrip()
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
    rows = csv.reader(io.StringIO(text, newline=""))
    head: list[str] | None = None
    line, places = 1, None
    try:
        for cells in rows:
            if head is None:
                head = [cell.strip() for cell in cells]
                places = _places(path, head)
            if places is None:
                yield line, ",".join(cells).strip(), None, None
            elif len(cells) != len(head):
                raise DataError(
                    f"{path}:{line}: {len(cells)} columns; expected the {len(head)} of line 1: "
                    f"{','.join(head)}"
                )
            elif line > 1:
                score, qid, row = (None if i is None else cells[i].strip() for i in places)
                yield line, score or "", qid, row
            line = rows.line_num + 1  # a quoted cell may hold ends of lines
    except csv.Error as error:  # a cell of more than 131,072 characters
        raise DataError(f"{path}:{line}: {error}; expected a number, or CSV") from None


def _places(path: Path, head: Sequence[str]) -> list[int | None] | None:
    """Where ``head`` has score, qid and row; None: it is no line of names."""
    names = ("score", "qid", "row")
    if twice := [name for name in names if head.count(name) > 1]:
        raise DataError(f"{path}:1: two columns {twice[0]}; keep one of them")
    if "score" not in head:
        if len(head) > 1:
            raise DataError(
                f"{path}:1: no column score in {','.join(head)[:40]!r}; name the column 'score'"
            )
        return None
    return [head.index(name) if name in head else None for name in names]


def _row(path: Path, line: int, text: str, rows: int, data: str) -> int:
    """The 0-based row that ``text`` names."""
    if not re.fullmatch(r"[0-9]{1,15}", text) or not 1 <= int(text) <= rows:
        raise DataError(
            f"{path}:{line}: row {text[:40]!r}; expected a row of {data}, a whole number from 1 to "
            f"{rows}"
        )
    return int(text) - 1
