"""Simulate the choice of epochs and settings on vali: what the best epoch claims, what it is.

python examples/paper_figures/selection.py [FOLDER]
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from drawn import page, save
from numpy.typing import NDArray
from scipy.stats import rankdata
from tabulate import tabulate

from ltr.metrics.crossfit import Halves, crossfit_of_halves
from ltr.pages.style import BLUE, GREY, ORANGE, style

LISTS = [50, 157, 500, 2000]  # of vali, in each fold
SETTINGS, FOLDS, EPOCHS, DRAWS, SEED = 20, 5, 60, 20, 0
Array = NDArray[np.float64]


def main() -> None:
    """The bias of the best epoch's value and of crossfit, and how well each ranks settings."""
    found = pd.DataFrame([summary(n, SETTINGS, FOLDS, EPOCHS, DRAWS, SEED) for n in LISTS])
    title = "Choosing the best epoch: what its value on vali claims, and what it is"
    caption = (
        f"Simulated: {SETTINGS} settings of {EPOCHS} epochs on {FOLDS} folds, {DRAWS} draws. "
        "Left: the value minus what it should be, in the mean. The best epoch's value is set "
        "against the true value of that epoch; crossfit against the true value of the epochs that "
        "it measures, each chosen on half of the lists, and against that of the best epoch. Right: "
        "rank correlation over settings of each value with the true value of the epoch that is "
        "kept. Bars: two standard errors."
    )
    figure = page(title, caption, width=7.2, height=3.0)
    left, right = figure.subplots(1, 2)
    for axes, columns in ((left, _BIASES), (right, _RANKS)):
        for (column, label), colour in zip(columns.items(), (ORANGE, BLUE, GREY), strict=False):
            errors = 2 * found[f"{column}_error"]
            look = {"color": colour, "marker": "o", "markersize": 4, "label": label}
            axes.errorbar(LISTS, found[column], errors, **look)
        axes.set(xscale="log", xlabel="lists of vali")
        axes.set_xticks(LISTS, [f"{size:,}" for size in LISTS])
        axes.minorticks_off()
        axes.legend()
    left.set_ylabel("value minus truth")
    right.set_ylabel("rank correlation with the truth")
    save("selection", figure, found, _text(found))


_BIASES = {
    "best": "best epoch",
    "crossfit": "crossfit, of epochs chosen on a half",
    "crossfit_of_best": "crossfit, of the best epoch",
}
_RANKS = {"best_rank": "best epoch", "crossfit_rank": "crossfit"}


def summary(
    lists: int, settings: int, folds: int, epochs: int, draws: int, seed: int
) -> dict[str, float | int]:
    """Means over ``draws`` of what ``judged`` finds; ``NAME_error`` are their standard errors."""
    generator = np.random.default_rng([seed, lists])
    rows = [judged(generator, lists, settings, folds, epochs) for _ in range(draws)]
    found: dict[str, float | int] = {"lists": lists}
    for name in rows[0]:
        column = np.array([row[name] for row in rows])
        found[name] = float(column.mean())
        found[f"{name}_error"] = float(column.std(ddof=1) / np.sqrt(draws))
    return found


def judged(
    generator: np.random.Generator, lists: int, settings: int, folds: int, epochs: int
) -> Mapping[str, float]:
    """Bias and rank correlation of both values in one simulation, as means over the settings.

    The true curve of a setting rises to its own height within its first epochs and falls as it
    overfits. The value of a list in an epoch is the truth and three draws of mean 0: the list's
    own, the setting's on this list, and the epoch's, which is larger the more restless the setting
    is. 157 lists then have about the bias that NeuralNDCG's settings have on MQ2008.
    """
    epoch = np.arange(1, epochs + 1) / epochs

    def each(low: float, high: float) -> Array:
        return generator.uniform(low, high, (settings, 1))

    rise = np.exp(-epoch / each(0.02, 0.1))
    true = each(0.47, 0.49) - 0.05 * rise - each(0, 0.015) * np.maximum(0, epoch - 0.2)
    restless = each(0.01, 0.07)
    by_fold = []
    for _ in range(folds):
        noise = generator.standard_normal((settings, epochs, lists)) * restless[..., None]
        noise += generator.normal(0, 0.07, (settings, 1, lists)) + generator.normal(0, 0.3, lists)
        by_fold.append(_judged(true, noise))
    best, crossfit, _, kept, by_halves, luck = np.mean(by_fold, axis=0)
    return {
        "best": float((best - kept - luck).mean()),
        "crossfit": float((crossfit - by_halves - luck).mean()),
        "crossfit_of_best": float((crossfit - kept - luck).mean()),
        "best_rank": _rank_correlation(best, kept),
        "crossfit_rank": _rank_correlation(crossfit, kept),
        "best_worth": float(kept[best.argmax()]),
        "crossfit_worth": float(kept[crossfit.argmax()]),
        "variance": float(np.mean([np.square(fold[1] - fold[4]).mean() for fold in by_fold])),
        "claimed": float(np.mean([np.square(fold[2]).mean() for fold in by_fold])),
    }


def _judged(true: Array, noise: Array) -> Array:
    """What a fold says of each setting, ``[6, settings]``.

    These are the best epoch's value, the crossfit value and its standard error; the true value of
    the epoch that is kept, and of those that halves choose, in the mean; and the mean of the noise,
    the same for all settings. Its expectation is 0: without it the biases need fewer draws.

    Args:
        true: ``[settings, epochs]``.
        noise: ``[settings, epochs, lists]``, of mean 0.
    """
    values = true[..., None] + noise
    halves = Halves.split(np.ones(values.shape[-1], dtype=bool))
    means = np.array([[halves.means(row) for row in setting] for setting in values])
    worth = [crossfit_of_halves(setting) for setting in means]
    whole = values.mean(-1)
    kept = np.take_along_axis(true, whole.argmax(1)[:, None], 1)[:, 0]
    chosen = means.argmax(axis=1).reshape(len(true), -1)  # by every half
    return np.array(
        [
            whole.max(1),
            [one.value for one in worth if one is not None],
            [one.error for one in worth if one is not None],
            kept,
            np.take_along_axis(true, chosen, 1).mean(1),
            np.full(len(true), noise.mean()),
        ]
    )


def _rank_correlation(one: Array, other: Array) -> float:
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])


def _text(found: pd.DataFrame) -> str:
    """The numbers of a summary as tables."""

    def mean(column: str) -> list[str]:
        errors = found[f"{column}_error"]
        return [f"{v:+.5f} ± {e:.5f}" for v, e in zip(found[column], errors, strict=True)]

    lists = [f"{size:,}" for size in found["lists"]]
    biases = {label: mean(column) for column, label in _BIASES.items()}
    ranks = {
        f"{what}, {label}": [f"{value:.{digits}f}" for value in found[f"{column}_{name}"]]
        for what, name, digits in (("rank correlation", "rank", 2), ("setting chosen", "worth", 4))
        for column, label in (("best", "best"), ("crossfit", "crossfit"))
    }
    errors = {
        label: [f"{value:.4f}" for value in np.sqrt(found[column].to_numpy())]
        for column, label in (("variance", "standard error"), ("claimed", "as crossfit says"))
    }
    return "\n\n".join(
        (
            "value minus truth, ± standard error",
            tabulate({"lists": lists, **biases}, "keys", disable_numparse=True),
            "rank correlation with the truth over settings, and what the setting chosen is worth",
            tabulate({"lists": lists, **ranks}, "keys", disable_numparse=True),
            "crossfit: root of its mean squared distance from the truth, and its standard error",
            tabulate({"lists": lists, **errors}, "keys", disable_numparse=True),
        )
    )


if __name__ == "__main__":
    with style():
        main()
