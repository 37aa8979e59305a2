"""Whether what settings are worth on vali says what they are worth on test."""

from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.analysis.systems import runs_frame
from ltr.console.keys import text, texts
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder, find_runs

_FEWEST = 3  # settings, below which a correlation says nothing
_BEST, _CROSSFIT = "best epoch", "crossfit"


def selection(cfg: DictConfig) -> str:
    """Correlate both values of vali with test over the settings of the runs ``cfg.runs``.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    paths = texts(cfg, "runs")
    if not paths:
        raise ConfigError("give folders that hold runs, such as outputs/<sweep>; see --help")
    runs, unfinished = find_runs(paths)
    metric = _metric_of(runs, text(cfg, "metric"))
    cells = runs_frame(runs, metric).melt(ignore_index=False)["value"]
    rows = [(one["vali"][one["select_on"]], one["crossfit"], one["test"][metric])
            for one in (run.results for run in cells)]  # fmt: skip
    values = pd.DataFrame(rows, index=cells.index, columns=[_BEST, _CROSSFIT, "test"])
    groups = values.groupby(level="system", sort=False)
    settings = groups.mean().sort_values(_CROSSFIT, ascending=False, kind="stable")
    if len(settings) < _FEWEST:
        raise ConfigError(
            f"{len(settings)} settings: a correlation needs {_FEWEST}; give the runs of more, "
            "which differ in more than seed and fold"
        )
    settings.insert(0, "runs", groups.size())
    head = ["setting", "runs", "best epoch vali", "crossfit vali", f"test {metric}"]
    with np.errstate(all="ignore"):  # where one of them does not vary
        plain, of_ranks = settings.corr()["test"], settings.corr("spearman")["test"]
    lines = []
    for name in (_BEST, _CROSSFIT):
        chosen: Any = settings[name].idxmax()
        bias = (settings[name] - settings["test"]).mean()
        lines.append(
            [name, f"{plain[name]:.2f}", f"{of_ranks[name]:.2f}", f"{bias:+.4f}",
             f"{settings.loc[chosen, 'test']:.4f}", chosen]
        )  # fmt: skip
    rules = ["value on vali", "correlation", "of ranks", "minus test", "test of its best"]
    parts = [
        tabulate(settings.reset_index().to_numpy().tolist(), head, floatfmt=".4f"),
        f"with test {metric}, over {len(settings)} settings (best on test "
        f"{settings['test'].max():.4f}):\n"
        f"{tabulate(lines, [*rules, 'its best'], disable_numparse=True)}",
        runs[0].convention[1],
    ]
    if unfinished:
        parts.append(f"not finished, left out: {', '.join(map(str, unfinished))}")
    return "\n\n".join(parts)


def _metric_of(runs: list[RunFolder], metric: str | None) -> str:
    """What the runs were selected on, which ``metric`` may be another name of on test."""
    for run in runs:
        if run.results.get("crossfit") is None:
            raise ConfigError(
                f"{run.folder} has no crossfit value (select=last chooses nothing): train it again "
                "with select=best, or leave it out"
            )
    names = sorted({str(run.results["select_on"]) for run in runs})
    if len(names) > 1:
        raise ConfigError(f"the runs were selected on {' and '.join(names)}: give those of one")
    name = metric or names[0]
    known = runs[0].results["test"]
    if any(name not in run.results["test"] for run in runs):
        raise ConfigError(f"metric={name}: not in every run; choose one of {', '.join(known)}")
    return name
