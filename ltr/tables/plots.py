"""The plots of a table's page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ltr.analysis.style import (
    BAND,
    BLUE,
    COLOURS,
    INK,
    LINE,
    ORANGE,
    PAPER,
    looks,
    page_style,
    svg,
    verdict_colours,
)
from ltr.statistics.compare import BETTER, DIFFER, UNDECIDED, WORSE
from ltr.tables.measure import CUTOFFS, Measured
from ltr.tables.report import Picture
from ltr.tables.verdicts import Verdicts

_WIDTH = 10.4  # inches, of every drawing
_ROW = 0.24  # inches, a line of text
_NAMED = len(COLOURS)  # rows that a plot of many lines names, besides the baseline
_TIE = 1e-9
_TICKS = (1, 3, 5, 8, 10, 15, 20)  # of k that are written

Looks = Mapping[str, Mapping[str, Any]]  # row -> colour and marker, the same in every plot


def pictures(
    measured: Sequence[Measured],
    verdicts: Mapping[str, Verdicts],
    found: pd.DataFrame,
    baseline: str,
) -> tuple[Picture, ...]:
    """All plots that the finished runs allow.

    Args:
        measured: the finished runs, at least one.
        verdicts: by metric; the first is drawn.
        found: of ``numbers``.
        baseline: the row that the others are compared with.
    """
    metric = next(iter(verdicts))
    judged = verdicts[metric]
    on = str(measured[0].run.config.select_on)
    over = "folds and seeds" if len({one.run.fold for one in measured}) > 1 else "seeds"
    convention = found["convention"].iloc[0]
    ranked = _ranked(found, metric, baseline)
    every = [*ranked, *(one.run.label for one in measured)]  # best first: its look differs most
    look = looks([label for label in dict.fromkeys(every) if label != baseline])
    look[baseline] = {"color": INK, "marker": "*"}
    drawings: list[tuple[str, str, Callable[[], Figure | None]]] = [
        (
            "Learning curves",
            f"{on} of vali after each epoch, epoch 0 is the untrained model: the mean over {over}, "
            "and one standard deviation around it, over seeds where there are several; as far as "
            "all runs of the row went. The other rows stand behind in grey. A row has its colour "
            "and marker here and in the next two plots.",
            lambda: learning_curves(measured, f"vali_{on}", look),
        ),
        (
            "NDCG against k",
            f"NDCG@k of test under {convention}, mean over {over}; the baseline and the "
            f"{_NAMED} best rows by {metric} are named, the others are grey.",
            lambda: ndcg_against_k(measured, ranked[:_NAMED], baseline, look),
        ),
        (
            "Intervals",
            f"The mean of ours and its interval; a diamond is the published number. The band is "
            f"the interval of {baseline}. Rows far below are cut off at the left.",
            lambda: intervals(found, list(verdicts), baseline, look),
        ),
        (
            f"Queries won and lost against {baseline}",
            f"Share of the test queries on which {metric}, mean over seeds, is lower and "
            f"higher than that of {baseline}.",
            lambda: won_and_lost(judged, baseline),
        ),
        (
            "Every pair",
            f"The row minus the column, in points (0.01 of {metric}), and the verdict, "
            "corrected for all pairs: stricter than the verdicts above, which are corrected "
            "for the pairs with the baseline.",
            lambda: matrix(judged),
        ),
    ]
    made: list[Picture] = []
    with page_style():
        for title, caption, draw in drawings:
            if (figure := draw()) is not None:
                made.append(Picture(title, caption, svg(figure, f"p{len(made) + 1}", title)))
    return tuple(made)


def learning_curves(measured: Sequence[Measured], column: str, look: Looks) -> Figure | None:
    """A panel for each row: the metric of vali by epoch, mean and standard deviation.

    A row's curve ends where the first of its runs ends: beyond, a mean would be over fewer.
    """
    curves = {
        label: curve
        for label in dict.fromkeys(one.run.label for one in measured)
        if (curve := _curve([one for one in measured if one.run.label == label], column))
        is not None
    }
    if not curves:
        return None
    means = {label: curve.mean(axis=1) for label, curve in curves.items()}
    trained = pd.concat([mean[mean.index > 0] for mean in means.values()])
    low, high = trained.quantile(0.02), trained.max()
    room = max(0.05 * (high - low), 1e-3)
    across = min(len(curves), 5)
    down = -(-len(curves) // across)
    figure = Figure(figsize=(_WIDTH, 0.35 + 1.45 * down), layout="constrained")
    axes = figure.subplots(down, across, sharey=True, squeeze=False)
    for place in axes.flat[len(curves) :]:
        place.set_visible(False)
    for place, (label, curve) in zip(axes.flat, curves.items(), strict=False):
        for other, mean in means.items():
            if other != label:
                place.plot(mean.index, mean, color=LINE, linewidth=0.7)
        mean, spread = means[label], curve.std(axis=1)
        if curve.shape[1] > 1:
            shade: Any = {"color": look[label]["color"], "alpha": 0.25, "linewidth": 0}
            place.fill_between(mean.index, mean - spread, mean + spread, **shade)
        place.plot(mean.index, mean, **look[label], markevery=[-1])
        place.set_title(label if len(label) <= 26 else f"{label[:25]}…")
        place.set_xlim(0, 1.05 * max(1, curve.index.max()))  # the marker stands at the end
        place.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        place.set_ylim(low - room, high + room)
        place.grid(visible=False)
    for place in axes[-1]:
        place.set_xlabel("epoch")
    return figure


def _curve(measured: Sequence[Measured], column: str) -> pd.DataFrame | None:
    """A row's metric by epoch, a column for each seed, mean over folds; with one seed each fold."""
    runs = {
        (one.run.seed, one.run.fold): one.history.set_index("epoch")[column]
        for one in measured
        if column in one.history
    }
    if not runs:
        return None
    every = pd.DataFrame(dict(enumerate(runs.values()))).dropna()
    seeds = np.array([seed for seed, _ in runs])
    if len(set(seeds)) > 1:
        every = pd.DataFrame(
            {seed: every.loc[:, seeds == seed].mean(axis=1) for seed in dict.fromkeys(seeds)}
        )
    return every if len(every) > 1 else None


def ndcg_against_k(
    measured: Sequence[Measured], named: Sequence[str], baseline: str, look: Looks
) -> Figure:
    """NDCG@k of test for every row; those ``named`` and the baseline in colour."""
    rows: dict[str, list[list[float]]] = {}
    for one in measured:
        line = [float(np.nanmean(one.curve[f"ndcg@{k}"])) for k in CUTOFFS]
        rows.setdefault(one.run.label, []).append(line)
    means = {label: np.mean(lines, axis=0) for label, lines in rows.items()}
    zero = np.zeros(len(CUTOFFS))
    sides = [("NDCG@k", 1, zero)]
    if baseline in means:
        sides.append((f"points more than {baseline}", 100, means[baseline]))
    figure = Figure(figsize=(_WIDTH, 3.9), layout="constrained")
    panels = figure.subplots(1, len(sides), squeeze=False)[0]
    for axes, (title, unit, less) in zip(panels, sides, strict=True):
        for label, mean in means.items():
            if label not in named and label != baseline:
                axes.plot(CUTOFFS, unit * (mean - less), color=LINE, linewidth=1)
        inside = [means[label] for label in named]
        for label in named:
            style: Any = {**look[label], "markersize": 4, "label": label}
            axes.plot(CUTOFFS, unit * (means[label] - less), **style)
        if baseline in means:
            style = {**look[baseline], "linestyle": "--", "label": f"{baseline} (baseline)"}
            axes.plot(CUTOFFS, unit * (means[baseline] - less), **style)
            inside.append(means[baseline])
        shown = unit * (np.stack(inside) - less)
        room = max(0.08 * float(np.ptp(shown)), 1e-3 * unit)
        axes.set_ylim(shown.min() - room, shown.max() + room)
        axes.set_title(title)
        axes.set_xlabel("k")
        axes.set_xticks(CUTOFFS, [str(k) if k in _TICKS else "" for k in CUTOFFS])
    panels[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def intervals(found: pd.DataFrame, metrics: Sequence[str], baseline: str, look: Looks) -> Figure:
    """Mean, interval and published number of every row, a panel for each metric."""
    first = found[found["convention"] == found["convention"].iloc[0]]
    labels = list(dict.fromkeys(first["row"]))
    figure = Figure(figsize=(_WIDTH, 0.8 + _ROW * len(labels)), layout="constrained")
    axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    heights = {label: -place for place, label in enumerate(labels)}
    for place, metric in zip(axes, metrics, strict=True):
        lines = first[first["metric"] == metric].set_index("row")
        if baseline in lines.index and not pd.isna(lines.loc[baseline, "low"]):
            base = lines.loc[baseline]
            place.axvspan(base["low"], base["high"], color=BAND, linewidth=0, zorder=0)
        for label, line in lines.iterrows():
            y, own = heights[str(label)], look[str(label)]
            if not pd.isna(line["low"]):
                ends = [line["low"], line["high"]]
                place.plot(ends, [y, y], color=own["color"], linewidth=1.8)
            place.plot(line["ours"], y, **own, linestyle="none", markersize=5.5)
            if not pd.isna(line["published"]):
                place.plot(
                    line["published"], y, "D", markersize=5, color=INK, markerfacecolor=PAPER
                )
        low, high = lines["low"].fillna(lines["ours"]), lines["high"].fillna(lines["ours"])
        left = min(low.quantile(0.1), lines["published"].min())  # a few far below would hide all
        right = max(high.max(), lines["published"].max())
        room = max(0.05 * (right - left), 1e-3)
        place.set_xlim(left - room, right + room)
        place.set_title(metric)
        place.grid(visible=False, axis="y")
        place.spines["left"].set_visible(False)
        place.tick_params(axis="y", length=0)
        place.set_yticks(list(heights.values()), labels)
    return figure


def won_and_lost(judged: Verdicts, baseline: str) -> Figure | None:
    """Share of the queries that each row loses to and wins from the baseline."""
    of_row = {label: values.mean(axis=0) for label, values in judged.stacked.values.items()}
    base = of_row.pop(baseline, None)
    if base is None or not of_row:
        return None
    figure = Figure(figsize=(_WIDTH, 0.8 + _ROW * len(of_row)), layout="constrained")
    axes = figure.subplots()
    for place, values in enumerate(of_row.values()):
        gap = (values - base)[np.isfinite(values - base)]
        lost, won = float((gap < -_TIE).mean()), float((gap > _TIE).mean())
        axes.barh(-place, -lost, height=0.62, color=ORANGE, linewidth=0)
        axes.barh(-place, won, height=0.62, color=BLUE, linewidth=0)
        axes.text(-lost - 0.008, -place, f"{lost:.0%}", ha="right", va="center", fontsize=8.5)
        axes.text(won + 0.008, -place, f"{won:.0%}", ha="left", va="center", fontsize=8.5)
    axes.set_yticks([-place for place in range(len(of_row))], list(of_row))
    axes.tick_params(axis="y", length=0)
    axes.axvline(0, color=INK, linewidth=0.8)
    widest = max(abs(bound) for bound in axes.get_xlim())
    axes.set_xlim(-1.12 * widest, 1.12 * widest)
    axes.set_xticks([])
    axes.set_title("lost", loc="left", color=ORANGE)
    axes.set_title("won", loc="right", color=BLUE)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.grid(visible=False)
    return figure


def matrix(judged: Verdicts) -> Figure | None:
    """Every row less every other: its colour is the verdict."""
    if not judged.pairs:
        return None
    labels = list(judged.stacked.values)
    faint = {
        word: to_rgba(colour, 0.14 if word == UNDECIDED else 0.34)
        for word, colour in verdict_colours().items()
    }
    size = len(labels)
    figure = Figure(figsize=(_WIDTH, 1.6 + max(_ROW, 0.26) * size), layout="constrained")
    axes = figure.subplots()
    for i, row in enumerate(labels):
        for j, column in enumerate(labels):
            pair = judged.pairs.get((row, column))
            if pair is None:
                continue
            axes.add_patch(_square(i, j, faint[pair.word]))
            if size <= 24:
                axes.text(j, i, _points(pair.difference), ha="center", va="center", fontsize=7.5)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_yticks(range(size), labels)
    axes.set_xticks(range(size), labels, rotation=50, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    said = {BETTER: "row better", WORSE: "row worse", DIFFER: "models differ"}
    handles = [_square(0, 0, colour) for colour in faint.values()]
    words = [said.get(word, word) for word in faint]
    axes.legend(handles, words, loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def _points(difference: float) -> str:
    """In points with one digit; no sign on what rounds to none."""
    text = f"{100 * difference:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def _square(i: int, j: int, colour: Any) -> Rectangle:
    return Rectangle((j - 0.47, i - 0.45), 0.94, 0.9, facecolor=colour, edgecolor="none")


def _ranked(found: pd.DataFrame, metric: str, baseline: str) -> list[str]:
    """The rows by ``metric`` under the first convention, best first, without the baseline."""
    first = found[found["convention"] == found["convention"].iloc[0]]
    ordered = first[first["metric"] == metric].sort_values("ours", ascending=False, kind="stable")[
        "row"
    ]
    return [label for label in ordered if label != baseline]
