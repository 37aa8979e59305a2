"""Explain how a model ranks one list, on a page of tables and in CSV files with their numbers."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from ltr.arrays import Doubles
from ltr.cli.folders import register_resolvers, run_folder
from ltr.errors import as_started
from ltr.inference.explain.effects import Attributions, attribute_scores, leave_one_out
from ltr.inference.explain.subject import (
    ExplainedList,
    ExplainOptions,
    load_explained_list,
    members_of_run,
)
from ltr.pages.report import ReportBlock, ResultsPage, terminal
from ltr.parts.ensemble import Ensemble

_FEATURES = 15  # number of features in the table; the CSV files have all features


def explain_list(options: ExplainOptions) -> str:
    """Explain the list of the query ``options.qid``; write a page, and return its text.

    Raises:
        ConfigError, DataError, CheckpointError: an option, the checkpoint or a data file is
            invalid; the message says what to correct.
    """
    register_resolvers()  # the run's config needs them
    explained = load_explained_list(options)
    model = explained.scorer.model
    facts = {
        "run": options.checkpoint,
        "model": type(getattr(model, "model", model)).__name__,
        "features": "the scores of this model cannot be split into parts: "
        f"{_alternative(options.checkpoint, model)}",
        "other items": "each of them is left out of the list, one at a time",
    }
    blocks = [items_block(explained)]
    frames = dict[str, pd.DataFrame]()
    attributions = attribute_scores(explained, items=options.evaluation_items)
    if attributions is not None:
        facts["features"] = _attribution_error(explained, attributions)
        blocks.append(attributions_block(explained, attributions))
        names = pd.Index(explained.features, name="feature")
        frames["parts_of_scores"] = _frame(explained, names, "part", attributions.values)
    if explained.pointwise or len(explained.scores) == 1:
        facts["other items"] = "no effect: the score of an item does not depend on them"
    else:
        changes = leave_one_out(explained, items=options.evaluation_items)
        blocks.append(effects_block(explained, changes))
        rows = pd.RangeIndex(1, len(explained.scores) + 1, name="without")
        frames["leave_one_out"] = _frame(explained, rows, "score", changes)
    folder = _page_folder(options)
    report = ResultsPage(
        name=folder.name,
        title=f"list {options.qid} of {explained.source}",
        command=_command_line(options),
        facts=[*facts.items()],
        blocks=blocks,
        ours="one trained model",
        details=[*frames.items()],
    )
    files = report.write(folder, "page", frames)
    return f"{terminal(report)}\nkept in {folder} ({', '.join(files)})"


def _page_folder(options: ExplainOptions) -> Path:
    """Return the folder of the page."""
    if options.output:
        return Path(options.output)
    title = f"{run_folder(options.checkpoint).name}-qid-{options.qid}"
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", title)
    return Path(options.output_dir, "explained", name)


def _command_line(options: ExplainOptions) -> str:
    """Return a command that explains the same list."""
    values = {
        "checkpoint": options.checkpoint,
        "input": options.input,
        "split": options.split,
        "qid": options.qid,
    }
    arguments = [f"{key}={value}" for key, value in values.items() if value]
    return f"{as_started('explain')} {shlex.join(arguments)}"


def _alternative(checkpoint: str, model: nn.Module) -> str:
    """Return what to type for a model whose scores cannot be split into parts."""
    if isinstance(model, Ensemble):
        return f"explain one of its members, {members_of_run(checkpoint)}"
    return f"{as_started('importances')} {checkpoint} shows the importance of each feature"


def _attribution_error(explained: ExplainedList, attributions: Attributions) -> str:
    """Describe how much the sums of the parts differ from the scores."""
    scores = explained.scores[explained.items]
    error = np.abs(attributions.sums - scores).max()
    return (
        f"the baseline and the parts add up to the score within {error:.2g} "
        f"(largest score {np.abs(scores).max():.3g})"
    )


def items_block(explained: ExplainedList) -> ReportBlock:
    """Return the table of the explained items: row, rank, score and label."""
    items = explained.items
    columns = {
        "row": items + 1,
        "rank": explained.ranks[items],
        "score": explained.scores[items],  # all digits: scores that look alike are then equal
    }
    if explained.labelled:
        columns["label"] = [f"{label:g}" for label in explained.lists.labels[items]]
    note = (
        f"{len(items)} of {len(explained.scores)} items, with the best first; row: the position in "
        f"the list; {len(np.unique(explained.scores))} different scores; items with equal scores "
        "rank in the order of the data"
    )
    return _block("The items", note, pd.DataFrame(columns, explained.item_names))


def attributions_block(explained: ExplainedList, attributions: Attributions) -> ReportBlock:
    """Return the table of the parts of the scores that belong to the most important features."""
    scores = explained.scores[explained.items]
    sizes = np.abs(attributions.values).mean(0)
    leading = np.argsort(-sizes, kind="stable")[:_FEATURES]
    remaining = np.delete(attributions.values, leading, axis=1)
    sums = dict[str, Any]()
    if remaining.size:
        sums["all other features"] = remaining.sum(-1)
    if not explained.pointwise:
        sums["features of other items"] = attributions.other_items
    sums["baseline"] = attributions.baseline
    sums["score"] = scores
    names = [*np.array(explained.features)[leading], *sums]
    rows = [*attributions.values.T[leading], *sums.values()]
    table = pd.DataFrame(rows, names, explained.item_names).map("{:+.3g}".format)
    table.iloc[-1] = scores.astype(str)
    leading_sizes = [f"{size:.3g}" for size in sizes[leading]]
    table.insert(0, "mean size", leading_sizes + [""] * len(sums))
    note = f"{attributions.method}; mean size: the mean of a feature's parts without their signs"
    return _block("What features add to the scores", note, table)


def effects_block(explained: ExplainedList, changes: Doubles) -> ReportBlock:
    """Return a table of ``changes``, the result of ``leave_one_out``, ``[items, list]``."""
    means = np.nanmean(np.abs(changes), axis=1)
    columns = {
        "mean change": [f"{mean:.3g}" for mean in means],
        "raised most without": _change_texts(explained, changes, np.nanargmax(changes, axis=1)),
        "lowered most without": _change_texts(explained, changes, np.nanargmin(changes, axis=1)),
    }
    table = pd.DataFrame(columns, explained.item_names)
    return _block(
        "Leave-one-out effects", "the score without another item minus the score with it", table
    )


def _change_texts(explained: ExplainedList, changes: Doubles, positions: Any) -> list[str]:
    """Describe for each explained item how its score changes without one other item.

    ``positions`` contains the position of that other item for each explained item.
    """
    return [
        f"{row[position]:+.3g} ({explained.names[position]})"
        for row, position in zip(changes, positions, strict=True)
    ]


def _block(title: str, note: str, frame: pd.DataFrame) -> ReportBlock:
    """Turn a data frame into a block; the index of the frame holds the row names."""
    rows = frame.reset_index().astype(str).to_numpy().tolist()
    return ReportBlock(title, note, ("", *map(str, frame.columns)), rows)


def _frame(explained: ExplainedList, columns: pd.Index, name: str, values: Doubles) -> pd.DataFrame:
    """Return a row for each explained item and each of ``columns``.

    ``values`` are ``[explained items, columns]``; their column in the result is named ``name``.
    """
    items = pd.MultiIndex.from_arrays(
        [explained.items + 1, explained.item_names], names=["item", "id"]
    )
    rows: Any = pd.DataFrame(values, items, columns).stack(future_stack=True)
    return rows.reset_index(name=name)
