"""Explain a list: one page of tables, and their numbers as CSV."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig

from ltr.analysis.report import Block, Report, terminal
from ltr.console.folders import register_resolvers, run_folder
from ltr.console.keys import whole
from ltr.errors import as_started
from ltr.inference.explain.effects import Attributions, Doubles, attributions_of, leave_one_out
from ltr.inference.explain.subject import Subject, subject_of


def explain(cfg: DictConfig) -> str:
    """Explain the list ``cfg.qid`` (``configs/explain.yaml``); return the tables as text.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    shown = whole(cfg, "features", least=1)
    register_resolvers()  # the run's config needs them
    subject, items = subject_of(cfg), int(cfg.evaluation_items)
    model = subject.scorer.model
    facts = {
        "run": str(cfg.checkpoint),
        "model": type(getattr(model, "model", model)).__name__,
        "list": f"qid {cfg.qid} of {subject.place}, {len(subject.scores)} items",
        "features": "no parts of single scores; explain the members of an ensemble one by one",
        "other items": "each left out of the list, one at a time",
    }
    blocks, frames = [list_block(subject)], dict[str, pd.DataFrame]()
    if (parts := attributions_of(subject, items=items)) is not None:
        facts["features"] = (
            f"{parts.method}; baseline plus all parts miss the score by {parts.error:.2g} at most "
            f"(largest score {np.abs(parts.scores).max():.3g})"
        )
        blocks.append(parts_block(subject, parts, shown))
        given = subject.lists.features[subject.items]
        known = [subject.value(f, x) for row in given for f, x in enumerate(row)]
        columns = {"value": known, "part": parts.values}
        frames["parts_of_scores"] = _frame(subject, "feature", subject.features, **columns)
    if subject.pointwise:
        facts["other items"] = "no effect: the model scores items one by one"
    else:
        changes = leave_one_out(subject, items=items)
        blocks.append(effects_block(subject, changes))
        everyone = range(1, len(subject.scores) + 1)
        frames["leave_one_out"] = _frame(subject, "without", everyone, score=changes)
    run = run_folder(str(cfg.checkpoint))
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{run.name}-qid-{cfg.qid}")
    folder = Path(cfg.output or Path(cfg.output_dir, "explained", name))
    report = Report(
        name=folder.name,
        title=f"list {cfg.qid} of {subject.place}",
        command=f"{as_started('explain')} checkpoint={cfg.checkpoint} qid={cfg.qid}",
        facts=[*facts.items()],
        blocks=blocks,
        ours="one trained model",
        details=[*frames.items()],
    )
    files = report.write(folder, "page", frames)
    return f"{terminal(report)}\nkept in {folder} ({', '.join(files)})"


def list_block(subject: Subject) -> Block:
    """The items that are explained."""
    items = subject.items
    scores = [f"{score:.4f}" for score in subject.scores[items]]
    columns: dict[str, Any] = {"place": items + 1, "rank": subject.ranks[items], "score": scores}
    if subject.labelled:
        columns["label"] = [f"{x:g}" for x in subject.lists.labels[items]]
    note = f"{len(items)} of {len(subject.scores)} items with their places in the data, best first"
    return _block("The items", note, pd.DataFrame(columns, _names(subject)))


def parts_block(subject: Subject, parts: Attributions, count: int) -> Block:
    """What the ``count`` leading features add to the scores."""
    size = np.abs(parts.values).mean(0)
    leading = np.argsort(-size, kind="stable")[:count]
    rows, cells = [subject.features[f] for f in leading], parts.values[:, leading].T
    sums = {"all other features": np.delete(parts.values, leading, axis=1).sum(-1)}
    if not subject.pointwise:
        sums["features of other items"] = parts.others
    sums |= {"baseline": parts.baseline, "score": parts.scores}
    table = pd.DataFrame([*cells, *sums.values()], [*rows, *sums], _names(subject))
    table = table.map("{:+.4f}".format)
    sizes = [*map("{:.4f}".format, size[leading]), *[""] * len(sums)]
    table.insert(0, "mean size", sizes, allow_duplicates=True)
    return _block("What features add to the scores", parts.method, table)


def effects_block(subject: Subject, changes: Doubles) -> Block:
    """What leaving out each other item does to scores: ``changes``, ``[items, list]``."""
    columns: dict[str, Any] = {}
    if changes.shape[1] > 1:
        columns["mean change"] = [f"{x:.4f}" for x in np.nanmean(np.abs(changes), axis=1)]
        most = {"raised most without": np.nanargmax, "lowered most without": np.nanargmin}
        for head, find in most.items():
            pairs = zip(changes, find(changes, axis=1), strict=True)
            columns[head] = [f"{row[j]:+.4f} ({subject.names[j]})" for row, j in pairs]
    note = "the score without another item less that with it"
    table = pd.DataFrame(columns, _names(subject) if columns else [])
    return _block("Leave-one-out effects", note, table)


def _names(subject: Subject) -> list[str]:
    return [subject.names[item] for item in subject.items]


def _block(title: str, note: str, frame: pd.DataFrame) -> Block:
    """A table of texts; a row's name is its index."""
    rows = frame.reset_index(allow_duplicates=True).astype(str).to_numpy().tolist()
    return Block(title, note, ("", *map(str, frame.columns)), rows)


def _frame(subject: Subject, name: str, others: Sequence[Any], **values: Any) -> pd.DataFrame:
    """A row for each explained item and each of ``others``, with ``values`` in this order."""
    count, ids = len(others), [one for one in _names(subject) for _ in others]
    frame = pd.DataFrame({"item": np.repeat(subject.items + 1, count), "id": ids})
    frame[name] = np.tile(others, len(subject.items))
    return frame.assign(**{key: np.ravel(one) for key, one in values.items()})
