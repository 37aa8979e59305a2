"""The tables and the pictures of the page of a list, and the frames of its CSV files."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ltr.analysis.report import Block, Picture
from ltr.analysis.style import BLUE, INK, ORANGE, page_style, svg
from ltr.inference.explain.effects import Attributions, Effects
from ltr.inference.explain.subject import Subject

_OTHERS = 10  # items in the picture of what is left out
_MAP = LinearSegmentedColormap.from_list("lower to higher", [ORANGE, "#f6f6f6", BLUE])
_SEEN = 16  # columns with numbers in their cells


class Section(NamedTuple):
    """A table of the page, its picture, and all its numbers."""

    block: Block
    picture: Picture | None = None
    frame: pd.DataFrame | None = None


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
    names, places, items = subject.features, subject.items, subject.names(subject.items)
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
    title, caption = "Features and scores", "Blue raises the score of an item, orange lowers it."
    given = subject.lists.features[subject.rows][places]
    frame = _frame(
        subject, "feature", names,
        value=[subject.value(f, x) for row in given for f, x in enumerate(row)], part=parts.values,
    )  # fmt: skip
    return Section(
        _block("What features add to the scores", parts.method, table),
        _matrix("parts", title, caption, cells, rows, items, "item"),
        frame,
    )


def effects_section(subject: Subject, effects: Effects) -> Section:
    """What leaving out each other item does to scores and places."""
    title, size, names = "Leave-one-out effects", len(subject.scores), subject.names(subject.items)
    everyone = subject.names(range(size))
    scores, places = (part if size > 1 else part[:0] for part in effects)

    def most(which: np.ndarray) -> list[str]:
        return [f"{x[j]:+.4f} ({everyone[j]})" for x, j in zip(scores, which, strict=True)]

    columns = {
        "rank": subject.ranks[subject.items][: len(scores)],
        "mean change": [f"{value:.4f}" for value in np.nanmean(np.abs(scores), axis=1)],
        "raised most without": most(np.nanargmax(scores, axis=1)),
        "lowered most without": most(np.nanargmin(scores, axis=1)),
        "items that move it": (places != 0).sum(1),
        "places": [f"{row.min():+d} to {row.max():+d}" for row in places],
    }
    note = (
        "the score without another item less that with it; places: how many it then stands higher "
        "than closing the gap alone explains"
    )
    block = _block(title, note, pd.DataFrame(columns, names[: len(scores)]))
    change = np.nansum(np.abs(effects.scores), axis=0)
    others = np.argsort(-change, kind="stable")[:_OTHERS]
    others = others[np.argsort(subject.ranks[others])]
    caption = (
        "Change of the score of the item in the row where the item in the column is left out, and "
        f"in brackets by how many places it moves; the {len(others)} items that change most."
    )
    shown, moves = effects.scores[:, others], effects.places[:, others]
    columns_of = [everyone[j] for j in others]
    picture = _matrix("others", title, caption, shown, names, columns_of, "left out", moves)
    without = range(1, size + 1)
    return Section(
        block,
        picture,
        _frame(subject, "without", without, score=effects.scores, places=effects.places),
    )


def importance_section(subject: Subject, table: pd.DataFrame, count: int) -> Section:
    """What the metric loses without each feature."""
    title, leading = "Permutation importance", table.head(count)
    texts = leading[["drop", "low", "high"]].map("{:+.4f}".format)
    lines = {"drop": texts["drop"], "interval": texts["low"] + " to " + texts["high"]}
    note = f"drop of {subject.metric} where a feature's values are shuffled within each list"
    block = _block(title, note, pd.DataFrame(lines).set_axis(leading["name"]))

    def draw(axes: Axes) -> None:
        heights = -np.arange(len(leading))
        low, high = (leading[end].fillna(leading["drop"]) for end in ("low", "high"))
        axes.hlines(heights, low, high, color=BLUE, linewidth=1.8)
        axes.plot(leading["drop"], heights, "o", color=BLUE, markersize=5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(heights, leading["name"])
        axes.set_xlabel(f"drop of {subject.metric}")

    caption = "Mean and 95% interval over lists; blue right of 0: the metric needs the feature."
    return Section(block, _picture("drops", title, caption, len(leading), draw), table)


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


def _matrix(
    name: str, title: str, caption: str, values: np.ndarray, rows: Sequence[str],
    columns: Sequence[str], across: str, moves: np.ndarray | None = None,
) -> Picture:  # fmt: skip
    """A matrix in colours, blue above 0 and orange below; NaN stays empty.

    ``across`` is what the columns are; ``moves`` stand in brackets behind the values.
    """

    def draw(axes: Axes) -> None:
        bound = float(np.nanmax(np.abs(values), initial=0)) or 1.0
        how: Any = {"cmap": _MAP, "vmin": -bound, "vmax": bound}
        axes.pcolormesh(np.ma.masked_invalid(values), edgecolors="white", linewidth=0.8, **how)
        for i, j in np.argwhere(np.isfinite(values)) if len(columns) <= _SEEN else ():
            move = 0 if moves is None else moves[i, j]
            text = f"{values[i, j]:+.2f}" + (f" ({move:+d})" if move else "")
            ink = "white" if abs(values[i, j]) > 0.6 * bound else "#1b1f24"
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

    return _picture(name, title, caption, len(rows) + 1.5, draw)


def _picture(name: str, title: str, caption: str, rows: float, draw: Any) -> Picture:
    """A drawing with so many rows; ``name`` is that of its ids in the page."""
    with page_style():
        figure = Figure(figsize=(9.0, 0.9 + 0.27 * rows), layout="constrained")
        draw(figure.subplots())
        return Picture(title, caption, svg(figure, name, title))
