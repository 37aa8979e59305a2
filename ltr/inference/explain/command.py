"""Explain a list: one page of tables, and their numbers as CSV."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from ltr.analysis.report import Block, Report, page, terminal
from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.configs import CONFIGS
from ltr.console.folders import register_resolvers, run_folder
from ltr.console.keys import whole
from ltr.errors import as_started
from ltr.experiment.run_folder import RunFolder
from ltr.inference.explain.effects import (
    Attributions,
    Effects,
    attributions_of,
    leave_one_out,
    permutation_importance,
)
from ltr.inference.explain.subject import Subject, subject_of
from ltr.training.evaluation import metrics_of_scores

_SHOWN = 15  # features of a table where ``features`` names columns
_PLACES = ("defaults", "hydra", "output", "output_dir", "cache_dir")  # the same from any of them


class Section(NamedTuple):
    """A table of the page, and all its numbers with the name of their file."""

    block: Block
    name: str = ""
    frame: pd.DataFrame | None = None


def explain(cfg: DictConfig) -> str:
    """Explain the list ``cfg.qid`` (``configs/explain.yaml``); return the tables as text.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    shown = _SHOWN if OmegaConf.is_list(cfg.features) else whole(cfg, "features", least=1)
    lists = whole(cfg, "lists", least=0) if cfg.input is None else 0
    seed = whole(cfg, "seed", least=0)
    register_resolvers()  # the run's config needs them
    subject, items = subject_of(cfg), int(cfg.evaluation_items)
    parts = attributions_of(subject, items=items)
    sections = [list_section(subject)]
    if parts is not None:
        sections.append(parts_section(subject, parts, shown))
    if not subject.pointwise:
        sections.append(effects_section(subject, leave_one_out(subject, items=items)))
    if lists:
        table = permutation_importance(subject, lists=lists, seed=seed, items=items)
        sections.append(importance_section(subject, table, shown))
    run = run_folder(str(cfg.checkpoint))
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{run.name}-qid-{cfg.qid}")
    folder = Path(cfg.output or Path(cfg.output_dir, "explained", name))
    frames = [(one.name, one.frame) for one in sections if one.frame is not None]
    report = Report(
        name=folder.name,
        title=f"list {cfg.qid} of {subject.name}",
        command=_command(cfg),
        facts=_facts(cfg, subject, parts, lists),
        blocks=[section.block for section in sections],
        ours="one trained model",
        details=frames,
    )
    make_folder("output", folder)
    atomic_write(folder / "page.html", page(report))
    files = ["page.html"]
    for title, frame in frames:
        files.append(f"{title.replace(' ', '_')}.csv")
        write_frame(folder / files[-1], frame)
    return f"{terminal(report)}\nkept in {folder} ({', '.join(files)})"


def _command(cfg: DictConfig) -> str:
    """The command that explains the same: the keys that are not as the config has them."""
    defaults: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "explain.yaml"))
    words = []
    for key in (key for key in defaults if key not in _PLACES and cfg[key] != defaults[key]):
        listed, value = OmegaConf.is_list(cfg[key]), cfg[key]
        words.append(f"{key}=[{','.join(map(str, value))}]" if listed else f"{key}={value}")
    return f"{as_started('explain')} {shlex.join(words)}"


def _facts(
    cfg: DictConfig, subject: Subject, parts: Attributions | None, lists: int
) -> list[tuple[str, str]]:
    run, model = RunFolder(run_folder(str(cfg.checkpoint))), subject.scorer.model
    chosen = run.results.get("choices", {}).get("model") if run.finished else None
    place = f"{subject.split or subject.name}, {len(subject.scores)} items"
    facts = {
        "run": str(cfg.checkpoint),
        "model": chosen or type(getattr(model, "model", model)).__name__,
        "list": f"qid {cfg.qid} of {place}",
    }
    if subject.split is not None:
        metric, convention = subject.metric, subject.convention
        values = metrics_of_scores(subject.data, subject.scores, [metric], convention)
        words = convention.describe(metric.parts)
        facts[str(metric)] = f"{values[str(metric)][0]:.4f} ({words})"
    facts["features"] = "no parts of single scores; explain the members of an ensemble one by one"
    if parts is not None:
        facts["features"] = parts.method
        facts["completeness"] = (
            f"baseline plus all parts miss the score by {parts.error:.2g} at most (largest score "
            f"{np.abs(parts.scores).max():.3g})"
        )
    alone = "no effect: the model scores items one by one"
    facts["other items"] = (
        alone if subject.pointwise else "each left out of the list, one at a time"
    )
    if lists:
        count = min(lists, len(subject.lists))
        facts["permutation"] = f"each feature shuffled within the lists, {count} lists"
    return [*facts.items()]


def list_section(subject: Subject) -> Section:
    """The items that are explained."""
    items = subject.items
    scores = [f"{score:.4f}" for score in subject.scores[items]]
    columns: dict[str, Any] = {"place": items + 1, "rank": subject.ranks[items], "score": scores}
    if subject.split is not None:  # the labels of a file are not read
        columns["label"] = [f"{x:g}" for x in subject.lists.labels[subject.rows][items]]
    note = f"{len(items)} of {len(subject.scores)} items with their places in the data, best first"
    return Section(_block("The items", note, pd.DataFrame(columns, subject.names(items))))


def parts_section(subject: Subject, parts: Attributions, count: int) -> Section:
    """What the ``count`` leading features add to the scores, and all parts as a frame."""
    names, items = subject.features, subject.names(subject.items)
    size = np.abs(parts.values).mean(0)
    leading = np.argsort(-size, kind="stable")[:count]
    rows, cells = [names[f] for f in leading], parts.values[:, leading].T
    sums = {"all other features": np.delete(parts.values, leading, axis=1).sum(-1)}
    if parts.others is not None:
        sums["features of other items"] = parts.others.sum(-1)
    sums |= {"baseline": parts.baseline, "score": parts.scores}
    table = pd.DataFrame([*cells, *sums.values()], [*rows, *sums], items).map("{:+.4f}".format)
    sizes = [*map("{:.4f}".format, size[leading]), *[""] * len(sums)]
    table.insert(0, "mean size", sizes, allow_duplicates=True)
    given = subject.lists.features[subject.rows][subject.items]
    known = [subject.value(f, x) for row in given for f, x in enumerate(row)]
    return Section(
        _block("What features add to the scores", parts.method, table),
        "parts of scores",
        _frame(subject, "feature", names, value=known, part=parts.values),
    )


def effects_section(subject: Subject, effects: Effects) -> Section:
    """What leaving out each other item does to scores and places."""
    title, size, names = "Leave-one-out effects", len(subject.scores), subject.names(subject.items)
    everyone, (scores, places) = np.array(subject.names(range(size))), effects
    columns: dict[str, Any] = {}
    if size > 1:
        columns = {
            "rank": subject.ranks[subject.items],
            "mean change": [f"{value:.4f}" for value in np.nanmean(np.abs(scores), axis=1)],
        }
        most = {"raised most without": np.nanargmax, "lowered most without": np.nanargmin}
        for head, find in most.items():
            pairs = zip(scores, find(scores, axis=1), strict=True)
            columns[head] = [f"{row[j]:+.4f} ({everyone[j]})" for row, j in pairs]
        columns["items that move it"] = (places != 0).sum(1)
        columns["places"] = [f"{row.min():+d} to {row.max():+d}" for row in places]
    note = (
        "the score without another item less that with it; places: how many it then stands higher "
        "than closing the gap alone explains"
    )
    block = _block(title, note, pd.DataFrame(columns, names if columns else []))
    frame = _frame(subject, "without", range(1, size + 1), score=scores, places=places)
    return Section(block, "leave one out", frame)


def importance_section(subject: Subject, table: pd.DataFrame, count: int) -> Section:
    """What the metric loses without each feature."""
    leading = table.head(count)
    texts = leading[["drop", "low", "high"]].map("{:+.4f}".format)
    lines = {"drop": texts["drop"], "interval": texts["low"] + " to " + texts["high"]}
    note = (
        f"drop of {subject.metric} where a feature's values are shuffled within each list, mean "
        "and 95% interval over lists"
    )
    shown = pd.DataFrame(lines).set_axis(leading["name"])
    block = _block("Permutation importance", note, shown)
    return Section(block, "permutation importance", table)


def _block(title: str, note: str, frame: pd.DataFrame) -> Block:
    """A table of texts; a row's name is its index."""
    rows = frame.reset_index(allow_duplicates=True).astype(str).to_numpy().tolist()
    return Block(title, note, ("", *map(str, frame.columns)), rows)


def _frame(subject: Subject, name: str, others: Sequence[Any], **values: Any) -> pd.DataFrame:
    """A row for each explained item and each of ``others``, with ``values`` in this order."""
    items = np.repeat(subject.items, len(others))
    frame = pd.DataFrame({"item": items + 1, name: np.tile(others, len(subject.items))})
    if subject.ids is not None:
        frame.insert(1, "id", [subject.ids[item] for item in items.tolist()])
    return frame.assign(**{key: np.ravel(one) for key, one in values.items()})
