"""What a comparison found as text, Markdown, CSV and a plot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from ltr.statistics import (
    BETTER,
    DIFFER,
    EQUIVALENT,
    WORSE,
    Comparison,
    SystemInterval,
    covers,
    rule,
)


@dataclass(frozen=True)
class Findings:
    """All that a report says.

    Attributes:
        title: metric, data, number of queries.
        made: which weights, seeds and version of the code the values are of.
        convention: in words.
        metric: its name.
        systems: mean and interval of each.
        pairs: the comparisons.
        published: a number to set the systems beside.
        dropped: queries that the convention skips.
        one_system: the pairs are seeds of one system.
    """

    title: str
    made: str
    convention: str
    metric: str
    systems: Mapping[str, SystemInterval]
    pairs: Sequence[Comparison]
    published: float | None
    dropped: int
    one_system: bool


def report(findings: Findings, *, markdown: bool = False) -> str:
    """The whole report, for a terminal or as Markdown."""
    fmt = "github" if markdown else "simple"
    alpha = findings.pairs[0].alpha
    sure = f"{1 - alpha:.0%}"
    head = [
        "system",
        "seeds",
        findings.metric,
        f"{sure} interval",
        "sd of seeds",
        "interval covers",
    ]
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
    if said := [f"{_sentence(pair)}: {pair.note}" for pair in findings.pairs if pair.note]:
        parts.append("\n".join(_listed(said, markdown)))
    if findings.published is not None:
        said = [
            f"{name}: {covers(of, findings.published).text}"
            for name, of in findings.systems.items()
        ]
        said.append(
            "the published number is taken as printed: its values per query are not known, so this "
            "is no test of a difference"
        )
        parts.append("\n".join(_listed(said, markdown)))
    parts.append("\n".join(_listed(_footnotes(findings), markdown)))
    return "\n\n".join(parts)


def _pairs(pairs: Sequence[Comparison], sure: str, *, fmt: str, markdown: bool) -> str:
    """A row per pair; for a terminal with the p of the verdict alone, and names over lines."""
    single = ["p random.", "p t", "p training"] if markdown else []
    counts = "wins/ties/losses" if markdown else "wins/ties\n/losses"
    rows = [
        [
            _broken(pair.first, markdown),
            f"**{pair.word}**" if markdown else pair.word.upper(),
            _broken(pair.second, markdown),
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


def _broken(name: str, markdown: bool) -> str:
    return name if markdown else name.replace(", ", ",\n")


_COVERS = {
    "seeds": "queries and seeds",
    "folds": "queries and trainings, by folds",
    "queries": "queries only",
}


def _listed(lines: Sequence[str], markdown: bool) -> list[str]:
    return [f"- {line}" for line in lines] if markdown else list(lines)


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
    """The rule, what the queries resolve, what no figure here covers."""
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
    return pd.DataFrame(
        {
            "first": pair.first,
            "second": pair.second,
            "word": pair.word,
            "note": pair.note,
            "difference": pair.difference,
            "low": pair.interval[0],
            "high": pair.interval[1],
            "inner_low": pair.inner[0],
            "inner_high": pair.inner[1],
            "p_randomisation": pair.p_randomisation,
            "p_t": pair.p_t,
            "p_training": pair.p_training,
            "p_holm": pair.p_holm,
            "p_equivalence": pair.p_equivalence,
            "effect": pair.effect.value,
            "effect_low": pair.effect.low,
            "effect_high": pair.effect.high,
            "wins": pair.wins,
            "ties": pair.ties,
            "losses": pair.losses,
            "queries": pair.queries,
            "error": pair.spread.error,
            "df": pair.spread.df,
            "covers": pair.spread.covers,
            "resolves": pair.resolvable(),
            "margin": pair.margin,
            "alpha": pair.alpha,
        }
        for pair in pairs
    )


_LINE = 0.3  # inches for a system or a pair


def write_plot(findings: Findings, folder: Path) -> list[Path]:
    """Write ``compare.png``, ``compare.svg`` and, with every figure, ``compare.csv``.

    Above the systems' means; below each pair's difference with the margin as a band, beside it how
    many queries are won, tied and lost.
    """
    from ltr.figures.drawing import (  # matplotlib only where it is asked
        BLUE,
        GREEN,
        GREY,
        ORANGE,
        Drawing,
        page,
        style,
        verdict_colours,
        verdict_key,
    )  # fmt: skip

    pairs, systems, colours = findings.pairs, findings.systems, verdict_colours()
    with style():
        caption = (
            f"{findings.convention}. Bars: {1 - pairs[0].alpha:.0%} intervals over queries and, "
            f"where there are several, seeds. Band: the margin, ±{pairs[0].margin:g}. "
            f"{verdict_key()}."
        )
        height = 1.6 + _LINE * (len(systems) + 2 * len(pairs))
        figure = page(findings.title, caption, width=9, height=height)
        above, below = figure.subplots(
            2, 2, height_ratios=[len(systems) + 1, 2 * len(pairs) + 1], width_ratios=[3, 2]
        )
        above[1].axis("off")
        axes = above[0]
        for row, of in enumerate(systems.values()):
            axes.plot([of.low, of.high], [row, row], color=GREY)
            axes.plot([of.mean], [row], "o", color="black", markersize=4)
        axes.set(xlabel=findings.metric, ylim=(len(systems) - 0.5, -0.5))
        axes.set_yticks(range(len(systems)), list(systems))
        if findings.published is not None:
            axes.axvline(findings.published, color=ORANGE, linestyle="--", linewidth=1)
            axes.set_title("dashed: published", loc="left")

        axes, counts = below
        margin = pairs[0].margin
        axes.axvspan(-margin, margin, color=GREEN, alpha=0.12, linewidth=0)
        axes.axvline(0, color=GREY, linewidth=0.8)
        for row, pair in enumerate(pairs):
            colour = colours[pair.word]
            axes.plot(pair.interval, [row, row], color=colour)
            axes.plot([pair.difference], [row], "o", color=colour, markersize=4)
            left = 0
            for count, shade in ((pair.wins, BLUE), (pair.ties, "#DDDDDD"), (pair.losses, ORANGE)):
                counts.barh(row, count, left=left, color=shade, height=0.7)
                if count:
                    counts.text(left + count / 2, row, str(count), ha="center", va="center", size=7)
                left += count
        labels = [f"{pair.first}\nless {pair.second}" for pair in pairs]
        axes.set_yticks(range(len(pairs)), labels)
        axes.set(xlabel=f"difference of {findings.metric}", ylim=(len(pairs) - 0.5, -0.5))
        counts.set(
            xlabel="queries won, tied, lost", ylim=(len(pairs) - 0.5, -0.5), xlim=(0, left or 1)
        )
        counts.set_yticks([])
        counts.grid(False)
        drawing = Drawing(figure, frame(pairs), report(findings))
        return drawing.save(folder, "compare", dpi=150)
