"""Report a comparison as text, Markdown, CSV and a plot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from ltr.analysis.latex import latex_comment, latex_table, latex_text
from ltr.atomic import write_frame
from ltr.statistics.compare import (
    BETTER,
    DIFFER,
    EQUIVALENT,
    WORSE,
    Comparison,
    SystemInterval,
    rule,
)


@dataclass(frozen=True)
class Findings:
    """A comparison."""

    title: str  # metric, data, number of queries
    made: str  # weights, seeds and commits of the runs
    convention: str  # in words
    metric: str
    systems: Mapping[str, SystemInterval]  # mean and interval of each
    pairs: Sequence[Comparison]
    published: float | None  # a number to set the systems beside
    dropped: int  # number of queries that the convention skips
    one_system: bool  # the pairs are seeds of one system


def report(findings: Findings, *, markdown: bool = False) -> str:
    """The whole report, for a terminal or as Markdown."""
    fmt = "github" if markdown else "simple"
    alpha = findings.pairs[0].alpha
    sure = f"{1 - alpha:.0%}"
    interval = f"{sure} interval"
    head = ["system", "seeds", findings.metric, interval, "sd of seeds", "interval covers"]
    rows = [
        [
            name,
            of.seeds,
            f"{of.mean:.4f}",
            f"{of.low:.4f} to {of.high:.4f}",
            "" if math.isnan(of.deviation) else f"{of.deviation:.4f}",
            _COVERS[of.spread.covers],
        ]
        for name, of in findings.systems.items()
    ]
    parts = [f"# {findings.title}" if markdown else findings.title, findings.made]
    parts.append(tabulate(rows, head, tablefmt=fmt, disable_numparse=True))
    parts.append(_pairs(findings.pairs, sure, fmt=fmt, markdown=markdown))
    lists = [[f"{_sentence(pair)}: {pair.note}" for pair in findings.pairs if pair.note]]
    if (published := findings.published) is not None:
        said = [
            f"{name}: ours {of.mean:.4f} ({of.low:.4f} to {of.high:.4f}) "
            f"{_WHERE[of.covers(published)]} {published:.4f}"
            for name, of in findings.systems.items()
        ]
        said.append(
            "the published number is taken as printed: its values per query are not known, so this "
            "is no test of a difference"
        )
        lists.append(said)
    bullet = "- " if markdown else ""
    for lines in filter(None, [*lists, _footnotes(findings)]):
        parts.append("\n".join(f"{bullet}{line}" for line in lines))
    return "\n\n".join(parts)


_WHERE = {"covers": "covers", "above": "is above", "below": "is below"}
_COVERS = {
    "seeds": "queries and seeds",
    "folds": "queries and trainings, by folds",
    "queries": "queries only",
}


def _pairs(pairs: Sequence[Comparison], sure: str, *, fmt: str, markdown: bool) -> str:
    """A row per pair; a terminal gets the p of the verdict alone, and names over lines."""

    def broken(name: str) -> str:
        return name if markdown else name.replace(", ", ",\n")

    single = ["p random.", "p t", "p training"] if markdown else []
    counts = "wins/ties/losses" if markdown else "wins/ties\n/losses"
    rows = [
        [
            broken(pair.first),
            f"**{pair.word}**" if markdown else pair.word.upper(),
            broken(pair.second),
            f"{pair.difference:+.4f}",
            f"{pair.interval[0]:+.4f} to {pair.interval[1]:+.4f}",
            *(_p(p) for p in (pair.p_randomisation, pair.p_t, pair.p_training)[: len(single)]),
            _p(pair.p_holm),
            f"{pair.effect.value:+.2f} ({pair.effect.low:+.2f} to {pair.effect.high:+.2f})",
            f"{pair.wins}/{pair.ties}/{pair.losses}",
            f"{pair.resolvable():.4f}",
        ]
        for pair in pairs
    ]
    head = [
        "", "is", "than/to", "difference", f"{sure} interval", *single, "p Holm", "d_z", counts,
        "resolves",
    ]  # fmt: skip
    return tabulate(rows, head, tablefmt=fmt, disable_numparse=True)


def latex(findings: Findings) -> str:
    """Two tables for a paper, the systems and the pairs; the long notes stand in comments."""
    best = max(f"{of.mean:.4f}" for of in findings.systems.values())
    alpha, rows = findings.pairs[0].alpha, []
    for name, of in findings.systems.items():
        mean = f"{of.mean:.4f}"
        cells = [name, str(of.seeds), mean, f"{of.low:.4f} to {of.high:.4f}"]
        texts = [latex_text(cell) for cell in cells]
        rows.append([rf"\textbf{{{text}}}" if text == best else text for text in texts])
    sure = f"{1 - alpha:.0%} interval"
    systems = latex_table(
        f"{findings.title}.", "compare-systems", ["system", "seeds", findings.metric, sure], rows,
        f"{findings.convention}; bold: the best",
    )  # fmt: skip
    lines = [
        [
            f"{pair.first} minus {pair.second}",
            f"{pair.difference:+.4f}",
            f"{pair.interval[0]:+.4f} to {pair.interval[1]:+.4f}",
            _p(pair.p_holm),
            f"{pair.wins}/{pair.ties}/{pair.losses}",
            pair.word,
        ]
        for pair in findings.pairs
    ]
    pairs = latex_table(
        f"{findings.title}, differences.", "compare-pairs",
        ["", findings.metric, sure, "p", "wins/ties/losses", "verdict"],
        [[latex_text(cell) for cell in line] for line in lines],
        f"p after Holm; equivalent: within ±{findings.pairs[0].margin:g}",
    )  # fmt: skip
    notes = [findings.title, *findings.made.splitlines(), *_footnotes(findings)]
    return "\n".join([*map(latex_comment, notes), "", systems, "", pairs]) + "\n"


def _sentence(pair: Comparison) -> str:
    joint = {
        BETTER: "is better than",
        WORSE: "is worse than",
        DIFFER: "differs from",
        EQUIVALENT: "is equivalent to",
    }
    return f"{pair.first} {joint.get(pair.word, 'is undecided beside')} {pair.second}"


def _p(p: float) -> str:
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def _footnotes(findings: Findings) -> list[str]:
    """The rule, the difference that the queries resolve, and what no figure here covers."""
    pairs = findings.pairs
    alpha = pairs[0].alpha
    lines = [rule(pairs[0].margin, alpha)]
    if findings.one_system:
        lines.append("these are seeds of one system, of which none can be better or worse")
    lines.append(_resolution(pairs))
    if findings.dropped:
        lines.append(f"{findings.dropped} queries that the convention skips are left out")
    by_folds = any(pair.spread.covers == "folds" for pair in pairs)
    uncovered = list(dict.fromkeys(name for pair in pairs for name in pair.spread.uncovered))
    if uncovered and not (by_folds or findings.one_system):
        lines.append(
            f"NOT COVERED, one seed only of {', '.join(uncovered)}: what another training would "
            "give; the words are about these trained models, not the methods; train 3 seeds or more"
        )
    if by_folds and not findings.one_system:
        lines.append(
            "one seed, the same in every fold: the folds' differences stand for how training "
            "varies; NOT COVERED is what the folds have in common, their first weights and most of "
            "their training lists; the words are about these models; train 3 seeds or more"
        )
    lines.append("not covered: other data, and settings chosen by looking at these queries")
    lines.append(findings.convention)
    return lines


def _resolution(pairs: Sequence[Comparison]) -> str:
    found = sorted(pair.resolvable() for pair in pairs)
    span = f"{found[0]:.4f}" if len(found) == 1 else f"{found[0]:.4f} to {found[-1]:.4f}"
    line = (
        f"{pairs[0].queries} queries resolve (80% power, alpha {pairs[0].alpha:g}) a true "
        f"difference of {span}"
    )
    if len(pairs) > 1:
        strict = sorted(pair.resolvable(pairs=len(pairs)) for pair in pairs)
        line += f"; at Holm's first step of {len(pairs)} pairs {strict[0]:.4f} to {strict[-1]:.4f}"
    return line


def frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """A row per pair with every figure, for ``compare.csv``."""
    rows = []
    for pair in pairs:
        row = dict(vars(pair))
        spread, effect = row.pop("spread"), row.pop("effect")
        row["low"], row["high"] = row.pop("interval")
        row["inner_low"], row["inner_high"] = row.pop("inner")
        row |= {"effect": effect.value, "effect_low": effect.low, "effect_high": effect.high}
        row |= {"error": spread.error, "df": spread.df, "covers": spread.covers}
        rows.append(row | {"word": pair.word, "note": pair.note, "resolves": pair.resolvable()})
    return pd.DataFrame(rows)[_COLUMNS]


_COLUMNS = [
    "first", "second", "word", "note", "difference", "low", "high", "inner_low", "inner_high",
    "p_randomisation", "p_t", "p_training", "p_holm", "p_equivalence", "effect", "effect_low",
    "effect_high", "wins", "ties", "losses", "queries", "error", "df", "covers", "resolves",
    "margin", "alpha",
]  # fmt: skip


_LINE = 0.3  # inches for a system or a pair


def write_plot(findings: Findings, folder: Path) -> list[Path]:
    """Write ``compare.png``, ``compare.svg`` and, with every figure, ``compare.csv``.

    Above: the systems' means. Below: each pair's difference with the margin as a band, and its
    queries won, tied and lost.
    """
    from ltr.analysis import style as look  # matplotlib, for plots only

    pairs, systems, colours = findings.pairs, findings.systems, look.verdict_colours()
    with look.style():
        caption = (
            f"{findings.convention}. Bars: {1 - pairs[0].alpha:.0%} intervals over queries and, "
            f"where there are several, seeds. Band: the margin, ±{pairs[0].margin:g}. "
            f"{look.verdict_key()}."
        )
        height = 1.6 + _LINE * (len(systems) + 2 * len(pairs))
        figure = look.page(findings.title, caption, width=9, height=height)
        above, below = figure.subplots(
            2, 2, height_ratios=[len(systems) + 1, 2 * len(pairs) + 1], width_ratios=[3, 2]
        )
        above[1].axis("off")
        axes = above[0]
        for row, of in enumerate(systems.values()):
            axes.plot([of.low, of.high], [row, row], color=look.GREY)
            axes.plot([of.mean], [row], "o", color="black", markersize=4)
        axes.set(xlabel=findings.metric, ylim=(len(systems) - 0.5, -0.5))
        axes.set_yticks(range(len(systems)), list(systems))
        if findings.published is not None:
            axes.axvline(findings.published, color=look.ORANGE, linestyle="--", linewidth=1)
            axes.set_title("dashed: published", loc="left")

        axes, counts = below
        margin = pairs[0].margin
        axes.axvspan(-margin, margin, color=look.GREEN, alpha=0.12, linewidth=0)
        axes.axvline(0, color=look.GREY, linewidth=0.8)
        for row, pair in enumerate(pairs):
            colour = colours[pair.word]
            axes.plot(pair.interval, [row, row], color=colour)
            axes.plot([pair.difference], [row], "o", color=colour, markersize=4)
            left = 0
            shades = {look.BLUE: pair.wins, "#DDDDDD": pair.ties, look.ORANGE: pair.losses}
            for shade, count in shades.items():
                counts.barh(row, count, left=left, color=shade, height=0.7)
                if count:
                    counts.text(left + count / 2, row, str(count), ha="center", va="center", size=7)
                left += count
        labels = [f"{pair.first}\nminus {pair.second}" for pair in pairs]
        axes.set_yticks(range(len(pairs)), labels)
        axes.set(xlabel=f"difference of {findings.metric}", ylim=(len(pairs) - 0.5, -0.5))
        counts.set(xlabel="queries won, tied, lost", ylim=axes.get_ylim(), xlim=(0, left or 1))
        counts.set_yticks([])
        counts.grid(False)
        look.settle_layout(figure)
        csv = folder / "compare.csv"
        write_frame(csv, frame(pairs))
        return [*look.save_figure(figure, folder, "compare", dpi=150), csv]
