"""The plots of a table's page."""

from collections.abc import Sequence

import pandas as pd

from ltr.analysis.plots import Looks, Panel, curve_picture, interval_picture
from ltr.analysis.report import Picture
from ltr.analysis.style import INK, looks
from ltr.tables.measure import Measured
from ltr.tables.results import Results


def pictures(results: Results) -> list[Picture]:
    """The learning curves of the finished runs, and the intervals of each metric of verdicts."""
    measured, baseline, found = results.measured, results.baseline, results.numbers
    metrics = list(results.verdicts)
    if found.empty or not metrics:
        return []
    lines = found[found["convention"] == found["convention"].iloc[0]]
    first = lines[lines["metric"] == metrics[0]]
    best = first.sort_values("ours", ascending=False, kind="stable")["row"]
    every = dict.fromkeys([*best, *(one.run.label for one in measured)])  # looks of the best differ
    look: Looks = looks([label for label in every if label != baseline]) | {
        baseline: {"color": INK, "marker": "*"}
    }
    on = str(measured[0].run.config.select_on)
    over = "folds and seeds" if len({one.run.fold for one in measured}) > 1 else "seeds"
    drawn = []
    if curves := _curves(measured, f"vali_{on}"):
        caption = (
            f"{on} of vali after each epoch, epoch 0 is the untrained model: the mean over {over}, "
            "and one standard deviation around it, over seeds where there are several; as far as "
            "all runs of the row went. The other rows stand behind in grey."
        )
        drawn.append(curve_picture(caption, curves, look))
    panels: dict[str, Panel] = {}
    for metric in metrics:
        of_metric = lines[lines["metric"] == metric].set_index("row")
        band = of_metric[of_metric.index == baseline][["low", "high"]].dropna().to_numpy()
        panels[metric] = of_metric, band[0].tolist() if len(band) else None
    caption = (
        "The mean of ours and its interval; a diamond is the published number. The band is the "
        f"interval of {baseline}. Rows far below are cut off at the left."
    )
    return [*drawn, interval_picture("Intervals", caption, panels, look)]


def _curves(measured: Sequence[Measured], column: str) -> dict[str, pd.DataFrame]:
    """Of each row ``column`` by epoch, a column for each seed, mean over folds; of one seed a fold.

    A curve ends where the first of the row's runs ends: beyond, a mean would be over fewer.
    """
    rows = {}
    for label in dict.fromkeys(one.run.label for one in measured):
        runs = {
            (one.run.seed, one.run.fold): one.history.set_index("epoch")[column]
            for one in measured
            if one.run.label == label and column in one.history
        }
        curve = pd.DataFrame(runs).dropna()
        if len(curve) > 1:
            one_seed = len({seed for seed, _ in runs}) == 1
            rows[label] = curve if one_seed else curve.T.groupby(level=0, sort=False).mean().T
    return rows
