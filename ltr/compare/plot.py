"""The plot of a comparison: differences with their intervals, wins and losses per query."""

from pathlib import Path

from ltr.compare.report import Findings, table, text
from ltr.figures.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, Drawing, page, style
from ltr.statistics import BETTER, DIFFER, EQUIVALENT, UNDECIDED, WORSE

_COLOURS = {BETTER: BLUE, WORSE: ORANGE, DIFFER: PURPLE, EQUIVALENT: GREEN, UNDECIDED: GREY}
_LINE = 0.3  # inches for a system or a pair


def write_plot(findings: Findings, folder: Path) -> list[Path]:
    """Write ``compare.png``, ``compare.svg`` and, with every figure, ``compare.csv``.

    Above the systems' means; below each pair's difference with the margin as a band, beside it how
    many queries are won, tied and lost.
    """
    pairs, systems = findings.pairs, findings.systems
    with style():
        caption = (
            f"{findings.convention}. Bars: {1 - pairs[0].alpha:.0%} intervals over queries and, "
            f"where there are several, seeds. Band: the margin, ±{pairs[0].margin:g}. Blue: "
            "better, orange: worse, purple: differ, green: equivalent, grey: undecided."
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
            colour = _COLOURS[pair.word]
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
        drawing = Drawing(figure, table(pairs), text(findings))
        return drawing.save(folder, "compare", dpi=150)
