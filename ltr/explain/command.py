"""Write the page that explains a list, and its numbers."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.folders import register_resolvers
from ltr.console.values import whole
from ltr.errors import as_started
from ltr.explain.attributions import Attributions, attributions_of
from ltr.explain.others import TakenOut, taken_out
from ltr.explain.permutation import permutation_importance
from ltr.explain.plots import drops, matrix
from ltr.explain.subject import Subject, subject_of
from ltr.tables.report import Block, Cell, Picture, Report, page, terminal
from ltr.training.evaluation import metrics_of_scores

_SHOWN = 15  # features of a table
_OTHERS = 10  # items in the picture of what is taken out


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
    removed = None if subject.pointwise else taken_out(subject, items=items)
    worth = permutation_importance(subject, lists=lists, seed=seed, items=items) if lists else None
    folder = _folder(cfg, subject)
    frames = _frames(subject, parts, removed, worth)
    blocks, pictures = [_list_block(subject)], []
    if parts is not None:
        blocks.append(_parts_block(subject, parts, shown))
        pictures.append(_parts_picture(subject, parts, shown))
    if removed is not None:
        blocks.append(_removed_block(subject, removed))
        pictures.append(_removed_picture(subject, removed))
    if worth is not None:
        blocks.append(_worth_block(subject, worth, shown))
        caption = "Mean and 95% interval over lists; blue right of 0: the metric needs the feature."
        pictures.append(drops(worth.head(shown), str(subject.metric), caption))
    report = Report(
        name=folder.name,
        title=f"list {subject.qid} of {subject.name}",
        command=_command(cfg, subject),
        facts=_facts(subject, parts, lists),
        blocks=tuple(blocks),
        ours="one kept model",
    )
    make_folder("output", folder)
    atomic_write(folder / "page.html", page(report, pictures, [*frames.items()]))
    files = ["page.html"]
    for title, frame in frames.items():
        files.append(f"{title.replace(' ', '_')}.csv")
        write_frame(folder / files[-1], frame)
    return f"{terminal(report)}\nkept in {folder} ({', '.join(files)})"


def _folder(cfg: DictConfig, subject: Subject) -> Path:
    if cfg.output is not None:
        return Path(cfg.output)
    run = Path(subject.checkpoint)
    name = run.parent.name if run.suffix == ".pt" else run.name
    words = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{name}-qid-{subject.qid}")
    return Path(cfg.output_dir, "explained", words)


def _command(cfg: DictConfig, subject: Subject) -> str:
    words = [f"checkpoint={cfg.checkpoint}", f"qid={subject.qid}"]
    if subject.split is not None:
        words.append(f"split={subject.split}")
    given = ("input", "regroup", "query", "id", "header", "names")
    words += [f"{key}={cfg[key]}" for key in given if cfg[key] not in (None, False)]
    if cfg["items"] is not None:
        words.append(f"items={','.join(map(str, sorted(subject.items + 1)))}")
    keys = {"top": 10, "features": 15, "lists": 100, "seed": 0}
    words += [f"{key}={cfg[key]}" for key in keys if cfg[key] != keys[key]]
    return f"{as_started('explain')} {shlex.join(words)}"


def _facts(subject: Subject, parts: Attributions | None, lists: int) -> tuple[tuple[str, str], ...]:
    metric, convention = subject.metric, subject.convention
    place = subject.split or subject.name
    facts = [
        ("run", subject.checkpoint),
        ("model", subject.model_name),
        ("list", f"qid {subject.qid} of {place}, {len(subject.scores)} items"),
    ]
    if subject.split is not None:
        values = metrics_of_scores(subject.data, subject.scores, [metric], convention)
        value = values[str(metric)][0]
        facts.append((str(metric), f"{value:.4f} ({convention.describe(metric.parts)})"))
    if parts is None:
        facts.append(("features", "no parts of single scores: such a model has none; an ensemble's "
                      "members can be explained one by one"))  # fmt: skip
    else:
        largest = float(np.abs(parts.scores).max())
        facts += [
            ("features", parts.method),
            ("completeness", f"baseline plus all parts miss the score by {parts.error:.2g} at most "
             f"(largest score {largest:.3g})"),
        ]  # fmt: skip
    if subject.pointwise:
        facts.append(("other items", "no effect: the model scores items one by one"))
    else:
        facts.append(("other items", "each taken out of the list, one at a time"))
    if lists:
        count = min(lists, len(subject.lists))
        facts.append(("permutation", f"each feature shuffled within the lists, {count} lists"))
    return tuple(facts)


def _named(subject: Subject) -> list[str]:
    return list(map(subject.name_of, subject.items))


def _block(title: str, note: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    return Block(title, note, tuple(head), tuple(tuple(map(Cell, row)) for row in rows))


def _list_block(subject: Subject) -> Block:
    rows = [
        [subject.name_of(i), str(i + 1), str(subject.ranks[i]), f"{subject.scores[i]:.4f}",
         f"{subject.labels[i]:g}"]
        for i in subject.items
    ]  # fmt: skip
    head = ["", "place", "rank", "score", "label"]
    if subject.split is None:  # of a file, whose labels are not read
        rows, head = [row[:-1] for row in rows], head[:-1]
    note = f"{len(rows)} of {len(subject.scores)} items with their places in the data, best first"
    return _block("The items", note, head, rows)


def _leading(parts: Attributions, count: int) -> np.ndarray:
    """The features with the largest parts, so many."""
    return np.argsort(-np.abs(parts.values).mean(0), kind="stable")[:count]


def _parts_block(subject: Subject, parts: Attributions, count: int) -> Block:
    names = subject.features
    rows = [
        [names[f], f"{np.abs(parts.values[:, f]).mean():.4f}",
         *(f"{value:+.4f}" for value in parts.values[:, f])]
        for f in _leading(parts, count)
    ]  # fmt: skip
    rest = np.delete(parts.values, _leading(parts, count), axis=1).sum(-1)
    sums = [("all other features", rest)]
    if parts.others is not None:
        sums.append(("features of other items", parts.others.sum(-1)))
    sums += [("baseline", parts.baseline), ("score", parts.scores)]
    rows += [[name, "", *(f"{value:+.4f}" for value in values)] for name, values in sums]
    head = ["", "mean size", *_named(subject)]
    return _block("What features add to the scores", parts.method, head, rows)


def _parts_picture(subject: Subject, parts: Attributions, count: int) -> Picture:
    leading = _leading(parts, count)
    return matrix(
        "Features and scores",
        "Blue raises the score of the item in the column, orange lowers it.",
        parts.values[:, leading].T, [subject.features[f] for f in leading],
        _named(subject), name="parts", across="item",
    )  # fmt: skip


def _strongest(subject: Subject, removed: TakenOut) -> np.ndarray:
    """The items that change most where they are taken out, as they are ranked."""
    sizes = np.nansum(np.abs(removed.scores), axis=0)
    return np.array(
        sorted(np.argsort(-sizes, kind="stable")[:_OTHERS], key=lambda j: subject.ranks[j])
    )


def _removed_block(subject: Subject, removed: TakenOut) -> Block:
    rows = []
    for at, item in enumerate(subject.items):
        if len(subject.scores) == 1:
            continue
        up, down = int(np.nanargmax(removed.scores[at])), int(np.nanargmin(removed.scores[at]))
        moved = removed.places[at]
        rows.append(
            [subject.name_of(item), str(subject.ranks[item]),
             f"{np.nanmean(np.abs(removed.scores[at])):.4f}",
             f"{removed.scores[at, up]:+.4f} ({subject.name_of(up)})",
             f"{removed.scores[at, down]:+.4f} ({subject.name_of(down)})",
             str(int((moved != 0).sum())), f"{moved.min():+d} to {moved.max():+d}"]
        )  # fmt: skip
    head = ["", "rank", "mean change", "raised most without", "lowered most without",
            "items that move it", "places"]  # fmt: skip
    note = (
        "the score without another item less that with it; places: how many it then stands higher "
        "than closing the gap alone explains"
    )
    return _block("What the other items did", note, head, rows)


def _removed_picture(subject: Subject, removed: TakenOut) -> Picture:
    others = _strongest(subject, removed)
    values, places = removed.scores[:, others], removed.places[:, others]
    notes = [
        [
            f"{value:+.2f}" + (f" ({move:+d})" if move else "")
            for value, move in zip(*row, strict=True)
        ]
        for row in zip(values, places, strict=True)
    ]
    return matrix(
        "What the other items did",
        "Change of the score of the item in the row where the item in the column is taken out, and "
        f"in brackets by how many places it moves; the {len(others)} items that change most.",
        values, _named(subject), list(map(subject.name_of, others)), name="others",
        across="taken out", notes=notes,
    )  # fmt: skip


def _worth_block(subject: Subject, worth: pd.DataFrame, count: int) -> Block:
    rows = [
        [str(line["name"]), f"{line['drop']:+.4f}", f"{line['low']:+.4f} to {line['high']:+.4f}"]
        for line in worth.head(count).to_dict("records")
    ]
    note = f"drop of {subject.metric} where a feature's values are shuffled within each list"
    return _block("What features are worth", note, ["", "drop", "interval"], rows)


def _frames(
    subject: Subject, parts: Attributions | None, removed: TakenOut | None,
    worth: pd.DataFrame | None,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """All numbers: a row for each item and feature, for each two items, for each feature."""
    found: dict[str, pd.DataFrame] = {}
    items = subject.items + 1
    if parts is not None:
        names = subject.features
        given = np.asarray(subject.lists.features[subject.rows])[subject.items]
        found["parts of scores"] = pd.DataFrame(
            {
                "item": np.repeat(items, len(names)),
                "feature": np.tile(names, len(items)),
                "value": [subject.value(f, x) for row in given for f, x in enumerate(row)],
                "part": parts.values.ravel(),
            }
        )
    if removed is not None:
        size = len(subject.scores)
        found["items taken out"] = pd.DataFrame(
            {
                "item": np.repeat(items, size),
                "without": np.tile(np.arange(1, size + 1), len(items)),
                "score": removed.scores.ravel(),
                "places": removed.places.ravel(),
            }
        )
    if (ids := subject.ids) is not None:
        for frame in found.values():
            frame.insert(1, "id", [ids[item - 1] for item in frame["item"]])
    if worth is not None:
        found["worth of features"] = worth
    return found
