"""The tables and the pictures of the page of a list, and the frames of its CSV files."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ltr.analysis.report import Block, Picture
from ltr.analysis.style import BLUE, INK, ORANGE, page_style, svg
from ltr.inference.explain.attributions import Attributions
from ltr.inference.explain.effects import Effects
from ltr.inference.explain.subject import Subject

_OTHERS = 10  # items in the picture of what is left out
_WIDTH, _ROW = 9.0, 0.27  # inches
_MAP = LinearSegmentedColormap.from_list("lower to higher", [ORANGE, "#f6f6f6", BLUE])
_SEEN = 16  # columns with numbers in their cells


class Section(NamedTuple):
    """A table of the page, its picture, and all its numbers."""

    block: Block
    picture: Picture | None = None
    frame: pd.DataFrame | None = None


def _block(title: str, note: str, frame: pd.DataFrame) -> Block:
    """A table of texts; a row's name is its index."""
    rows = zip(frame.index, *(frame.iloc[:, i] for i in range(frame.shape[1])), strict=True)
    head = ("", *map(str, frame.columns))
    return Block(title, note, head, [list(map(str, row)) for row in rows])


def list_section(subject: Subject) -> Section:
    """The items that are explained."""
    items = subject.items
    columns: dict[str, Any] = {
        "place": items + 1,
        "rank": subject.ranks[items],
        "score": [f"{score:.4f}" for score in subject.scores[items]],
    }
    if subject.split is not None:  # the labels of a file are not read
        labels = np.asarray(subject.lists.labels[subject.rows])
        columns["label"] = [f"{label:g}" for label in labels[items]]
    note = f"{len(items)} of {len(subject.scores)} items with their places in the data, best first"
    return Section(_block("The items", note, pd.DataFrame(columns, subject.names(items))))


def parts_section(subject: Subject, parts: Attributions, count: int) -> Section:
    """What the ``count`` leading features add to the scores, and all parts as a frame."""
    names, items = subject.features, subject.names(subject.items)
    size = np.abs(parts.values).mean(0)
    leading = np.argsort(-size, kind="stable")[:count]
    values = {names[f]: parts.values[:, f] for f in leading}
    sums = {"all other features": np.delete(parts.values, leading, axis=1).sum(-1)}
    if parts.others is not None:
        sums["features of other items"] = parts.others.sum(-1)
    sums |= {"baseline": parts.baseline, "score": parts.scores}
    table = pd.DataFrame([*values.values(), *sums.values()], [*values, *sums], items)
    table = table.map("{:+.4f}".format)
    sizes = [f"{size[f]:.4f}" for f in leading] + [""] * len(sums)
    table.insert(0, "mean size", sizes, allow_duplicates=True)
    given = np.asarray(subject.lists.features[subject.rows])[subject.items]
    frame = pd.DataFrame(
        {
            "item": np.repeat(subject.items + 1, len(names)),
            "feature": np.tile(names, len(items)),
            "value": [subject.value(f, x) for row in given for f, x in enumerate(row)],
            "part": parts.values.ravel(),
        }
    )
    caption = "Blue raises the score of the item in the column, orange lowers it."
    cells = np.array([*values.values()])
    title = "What features add to the scores"
    picture = _matrix("Features and scores", caption, cells, [*values], items, "parts", "item")
    return Section(_block(title, parts.method, table), picture, _with_ids(subject, frame))


def effects_section(subject: Subject, effects: Effects) -> Section:
    """What leaving out each other item does to scores and places."""
    title, items, size = "Leave-one-out effects", subject.items, len(subject.scores)
    names, everyone = subject.names(items), subject.names(range(size))
    scores, places = (part if size > 1 else part[:0] for part in effects)

    def most(which: np.ndarray) -> list[str]:
        rows = zip(scores, which, strict=True)
        return [f"{row[j]:+.4f} ({everyone[j]})" for row, j in rows]

    columns = {
        "rank": subject.ranks[items][: len(scores)],
        "mean change": [f"{value:.4f}" for value in np.nanmean(np.abs(scores), axis=1)],
        "raised most without": most(np.nanargmax(scores, axis=1)),
        "lowered most without": most(np.nanargmin(scores, axis=1)),
        "items that move it": (places != 0).sum(1),
        "places": [f"{row.min():+d} to {row.max():+d}" for row in places],
    }
    table = pd.DataFrame(columns, names[: len(scores)])
    note = (
        "the score without another item less that with it; places: how many it then stands higher "
        "than closing the gap alone explains"
    )
    frame = pd.DataFrame(
        {
            "item": np.repeat(items + 1, size),
            "without": np.tile(np.arange(1, size + 1), len(items)),
            "score": effects.scores.ravel(),
            "places": effects.places.ravel(),
        }
    )
    change = np.nansum(np.abs(effects.scores), axis=0)
    others = np.argsort(-change, kind="stable")[:_OTHERS]
    others = others[np.argsort(subject.ranks[others])]
    caption = (
        "Change of the score of the item in the row where the item in the column is left out, and "
        f"in brackets by how many places it moves; the {len(others)} items that change most."
    )
    picture = _matrix(
        title, caption, effects.scores[:, others], names, subject.names(others),
        "others", "left out", effects.places[:, others],
    )  # fmt: skip
    return Section(_block(title, note, table), picture, _with_ids(subject, frame))


def importance_section(subject: Subject, table: pd.DataFrame, count: int) -> Section:
    """What the metric loses without each feature."""
    title, leading = "Permutation importance", table.head(count)
    lines = {
        "drop": leading["drop"].map("{:+.4f}".format),
        "interval": leading["low"].map("{:+.4f} to ".format)
        + leading["high"].map("{:+.4f}".format),
    }
    note = f"drop of {subject.metric} where a feature's values are shuffled within each list"
    block = _block(title, note, pd.DataFrame(lines).set_axis(leading["name"]))
    with page_style():
        figure = Figure(figsize=(_WIDTH, 0.9 + _ROW * len(leading)), layout="constrained")
        axes, heights = figure.subplots(), -np.arange(len(leading))
        low, high = (leading[end].fillna(leading["drop"]) for end in ("low", "high"))
        axes.hlines(heights, low, high, color=BLUE, linewidth=1.8)
        axes.plot(leading["drop"], heights, "o", color=BLUE, markersize=5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(heights, leading["name"])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"drop of {subject.metric}")
        drawn = svg(figure, "drops", title)
    caption = "Mean and 95% interval over lists; blue right of 0: the metric needs the feature."
    return Section(block, Picture(title, caption, drawn), table)


def _with_ids(subject: Subject, frame: pd.DataFrame) -> pd.DataFrame:
    if subject.ids is not None:
        frame.insert(1, "id", [subject.ids[item - 1] for item in frame["item"]])
    return frame


def _matrix(
    title: str, caption: str, values: np.ndarray, rows: Sequence[str], columns: Sequence[str],
    name: str, across: str, places: np.ndarray | None = None,
) -> Picture:  # fmt: skip
    """A matrix in colours, blue above 0 and orange below; NaN stays empty.

    ``name`` is that of the drawing in the page, ``across`` what the columns are, and ``places``
    stand in brackets behind the values.
    """
    with page_style():
        figure = Figure(figsize=(_WIDTH, 1.3 + _ROW * len(rows)), layout="constrained")
        axes, shown = figure.subplots(), np.ma.masked_invalid(values)
        bound = float(np.abs(shown).max()) if shown.count() else 0.0
        bound = bound or 1.0
        how: Any = {"cmap": _MAP, "vmin": -bound, "vmax": bound}
        axes.pcolormesh(shown, edgecolors="white", linewidth=0.8, **how)
        for i, j in np.argwhere(np.isfinite(values)) if len(columns) <= _SEEN else ():
            move = 0 if places is None else places[i, j]
            text = f"{values[i, j]:+.2f}" + (f" ({move:+d})" if move else "")
            ink: Any = "white" if abs(values[i, j]) > 0.6 * bound else "#1b1f24"
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=ink, fontsize=7.5)
        axes.invert_yaxis()
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel(across)
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=45, ha="left")
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        return Picture(title, caption, svg(figure, name, title))
