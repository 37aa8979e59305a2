"""The history of a search as a plot: every trial, and the best so far."""

from pathlib import Path

import optuna
from matplotlib.ticker import MaxNLocator
from optuna.trial import TrialState

from ltr.figures.drawing import BLUE, GREY, ORANGE, page, save_figure, style
from ltr.search.claims import finished, worth


def draw_history(study: optuna.Study, folder: Path, title: str, metric: str) -> list[Path]:
    """Write ``history.png`` and ``history.svg``."""
    trials = finished(study)
    done = [(t.number, t.value) for t in trials if t.state == TrialState.COMPLETE]
    pruned = [
        (t.number, worth(t)) for t in trials if t.state == TrialState.PRUNED and t.value is not None
    ]
    failed = [t.number for t in trials if t.state == TrialState.FAIL]
    with style():
        figure = page(
            title,
            f"Each dot is a trial, at its {metric} on vali; a cross is one that was pruned, at "
            "what it had reached by then; the line is the best so far. "
            f"{len(failed)} trials failed" + (", marked at the bottom." if failed else "."),
            width=6.4,
            height=3.4,
        )
        axes = figure.subplots()
        if done:
            numbers, values = zip(*done, strict=True)
            best = [max(values[: i + 1]) for i in range(len(values))]
            end = max(trial.number for trial in trials)
            axes.step(
                [*numbers, end], [*best, best[-1]], where="post", color=BLUE, label="best so far"
            )
            axes.plot(numbers, values, "o", color=BLUE, markersize=4, label="trained to its end")
        if pruned:
            axes.plot(*zip(*pruned, strict=True), "x", color=GREY, markersize=5, label="pruned")
        if failed:
            axes.plot(
                failed,
                [0.02] * len(failed),
                "|",
                transform=axes.get_xaxis_transform(),
                color=ORANGE,
                markersize=9,
                label="failed",
            )
        axes.set(xlabel="trial", ylabel=f"{metric} on vali")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if trials:
            axes.legend()
        return save_figure(figure, folder, "history", dpi=150)
