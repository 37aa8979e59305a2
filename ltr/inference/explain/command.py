"""Explain how a model ranks one list: a page of tables, and their numbers as CSV files."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig
from torch import nn

from ltr.analysis.report import Block, Report, terminal
from ltr.arrays import Doubles
from ltr.console.folders import register_resolvers, run_folder
from ltr.errors import as_started
from ltr.inference.explain.effects import Attributions, attributions_of, leave_one_out
from ltr.inference.explain.subject import Subject, members_of_run, subject_of
from ltr.scorers.ensemble import Ensemble

_FEATURES = 15  # number of features in the table; the CSV files have all


def explain(cfg: DictConfig) -> str:
    """Explain the list of the query ``cfg.qid``: write the files, and return the tables as text.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to correct.
    """
    register_resolvers()  # the run's config needs them
    subject, items = subject_of(cfg), int(cfg.evaluation_items)
    model = subject.scorer.model
    facts = {
        "run": str(cfg.checkpoint),
        "model": type(getattr(model, "model", model)).__name__,
        "features": f"no parts of single scores: {_instead_of_parts(cfg, model)}",
        "other items": "each left out of the list, one at a time",
    }
    blocks, frames = [list_block(subject)], dict[str, pd.DataFrame]()
    if (parts := attributions_of(subject, items=items)) is not None:
        scores = subject.scores[subject.items]
        facts["features"] = (
            "baseline plus all parts miss the score by "
            f"{np.abs(parts.sums - scores).max():.2g} at most "
            f"(largest score {np.abs(scores).max():.3g})"
        )
        blocks.append(parts_block(subject, parts))
        names = pd.Index(subject.features, name="feature")
        frames["parts_of_scores"] = _frame(subject, names, "part", parts.values)
    if subject.pointwise or len(subject.scores) == 1:
        facts["other items"] = "no effect: a score is that of its item alone"
    else:
        changes = leave_one_out(subject, items=items)
        blocks.append(effects_block(subject, changes))
        rows = pd.RangeIndex(1, len(subject.scores) + 1, name="without")
        frames["leave_one_out"] = _frame(subject, rows, "score", changes)
    known = f"{run_folder(str(cfg.checkpoint)).name}-qid-{cfg.qid}"
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", known)
    folder = Path(cfg.output or Path(cfg.output_dir, "explained", name))
    typed = [f"{key}={cfg[key]}" for key in ("checkpoint", "input", "split", "qid") if cfg[key]]
    report = Report(
        name=folder.name,
        title=f"list {cfg.qid} of {subject.place}",
        command=f"{as_started('explain')} {shlex.join(typed)}",
        facts=[*facts.items()],
        blocks=blocks,
        ours="one trained model",
        details=[*frames.items()],
    )
    files = report.write(folder, "page", frames)
    return f"{terminal(report)}\nkept in {folder} ({', '.join(files)})"


def _instead_of_parts(cfg: DictConfig, model: nn.Module) -> str:
    """Return what to type for a model whose scores have no parts."""
    if isinstance(model, Ensemble):
        return f"explain one of its members, {members_of_run(str(cfg.checkpoint))}"
    return f"{as_started('importances')} {cfg.checkpoint} has the worth of each feature"


def list_block(subject: Subject) -> Block:
    """Return the table of the explained items: row, rank, score and label."""
    items = subject.items
    columns = {
        "row": items + 1,
        "rank": subject.ranks[items],
        "score": subject.scores[items],  # in full: what is printed alike is equal
    }
    if subject.labelled:
        columns["label"] = [*map("{:g}".format, subject.lists.labels[items])]
    note = (
        f"{len(items)} of {len(subject.scores)} items, best first; row: its row in the list; "
        f"{len(np.unique(subject.scores))} different scores: equal ones rank in the data's order"
    )
    return _block("The items", note, pd.DataFrame(columns, subject.shown))


def parts_block(subject: Subject, parts: Attributions) -> Block:
    """Return the table of what the most important features add to the scores."""
    size = np.abs(parts.values).mean(0)
    leading = np.argsort(-size, kind="stable")[:_FEATURES]
    others = np.delete(parts.values, leading, axis=1)
    rows = {"all other features": others.sum(-1)} if others.size else {}
    if not subject.pointwise:
        rows["features of other items"] = parts.others
    rows |= {"baseline": parts.baseline, "score": (scores := subject.scores[subject.items])}
    names = [*np.array(subject.features)[leading], *rows]
    table = pd.DataFrame([*parts.values.T[leading], *rows.values()], names, subject.shown)
    table = table.map("{:+.3g}".format)
    table.iloc[-1] = scores.astype(str)
    table.insert(0, "mean size", [*map("{:.3g}".format, size[leading]), *[""] * len(rows)])
    note = f"{parts.method}; mean size: of a feature's parts here, without their signs"
    return _block("What features add to the scores", note, table)


def effects_block(subject: Subject, changes: Doubles) -> Block:
    """Return a table of ``changes``, the result of ``leave_one_out``, ``[items, list]``."""
    columns = {"mean change": [*map("{:.3g}".format, np.nanmean(np.abs(changes), axis=1))]}
    for word, find in {"raised": np.nanargmax, "lowered": np.nanargmin}.items():
        pairs = zip(changes, find(changes, axis=1), strict=True)
        columns[f"{word} most without"] = [
            f"{row[j]:+.3g} ({subject.names[j]})" for row, j in pairs
        ]
    table = pd.DataFrame(columns, subject.shown)
    return _block(
        "Leave-one-out effects", "the score without another item less that with it", table
    )


def _block(title: str, note: str, frame: pd.DataFrame) -> Block:
    """Turn a frame into a block; the index gives the names of the rows."""
    rows = frame.reset_index().astype(str).to_numpy().tolist()
    return Block(title, note, ("", *map(str, frame.columns)), rows)


def _frame(subject: Subject, others: pd.Index, name: str, values: Doubles) -> pd.DataFrame:
    """Return a row for each explained item and other item; ``values`` are the column ``name``."""
    items = pd.MultiIndex.from_arrays([subject.items + 1, subject.shown], names=["item", "id"])
    rows: Any = pd.DataFrame(values, items, others).stack(future_stack=True)
    return rows.reset_index(name=name)
