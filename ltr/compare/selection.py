"""Whether what settings are worth on vali says what they are worth on test."""

from dataclasses import dataclass
from statistics import fmean

import numpy as np
from omegaconf import DictConfig
from scipy.stats import rankdata
from tabulate import tabulate

from ltr.compare.systems import System, group
from ltr.console.values import text, texts
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder, find_runs

_FEWEST = 3  # settings, below which a correlation says nothing


@dataclass(frozen=True)
class Setting:
    """A system and the means over its runs: on vali the best epoch and crossfit, and test."""

    name: str
    runs: int
    best: float
    crossfit: float
    test: float


def selection(cfg: DictConfig) -> str:
    """Correlate both values of vali with test over the settings of the runs ``cfg.runs``.

    Only ``results.json`` is read.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    paths = texts(cfg, "runs")
    if not paths:
        raise ConfigError("give folders that hold runs, such as outputs/<sweep>; see --help")
    runs, unfinished = find_runs(paths)
    metric = _metric_of(runs, text(cfg, "metric"))
    found = [_setting(system, metric) for system in group(runs, metric)]
    if len(found) < _FEWEST:
        raise ConfigError(
            f"{len(found)} settings: a correlation needs {_FEWEST}; give the runs of more, which "
            "differ in more than seed and fold"
        )
    parts = [_report(found, metric, runs[0].convention)]
    if unfinished:
        parts.append(f"not finished, left out: {', '.join(map(str, unfinished))}")
    return "\n\n".join(parts)


def _metric_of(runs: list[RunFolder], metric: str | None) -> str:
    """What the runs were selected on, which ``metric`` may be another name of on test."""
    for run in runs:
        if run.crossfit is None:
            raise ConfigError(
                f"{run.folder} has no crossfit value (select=last chooses nothing, an earlier "
                "version kept none): train it again with select=best, or leave it out"
            )
    names = sorted({str(run.results["select_on"]) for run in runs})
    if len(names) > 1:
        raise ConfigError(f"the runs were selected on {' and '.join(names)}: give those of one")
    name = metric or names[0]
    known = runs[0].results["test"]
    if any(name not in run.results["test"] for run in runs):
        raise ConfigError(f"metric={name}: not in every run; choose one of {', '.join(known)}")
    return name


def _setting(system: System, metric: str) -> Setting:
    results = [run.results for run in system.runs]
    return Setting(
        name=system.name,
        runs=len(results),
        best=fmean(one["vali"][one["select_on"]] for one in results),
        crossfit=fmean(one["crossfit"] for one in results),
        test=fmean(one["test"][metric] for one in results),
    )


def _report(found: list[Setting], metric: str, convention: str) -> str:
    found = sorted(found, key=lambda setting: -setting.crossfit)
    test = np.array([setting.test for setting in found])
    head = ["setting", "runs", "best epoch vali", "crossfit vali", f"test {metric}"]
    rows = [[one.name, one.runs, one.best, one.crossfit, one.test] for one in found]
    table = tabulate(rows, head, floatfmt=".4f")
    lines = []
    for name, values in (
        ("best epoch", np.array([setting.best for setting in found])),
        ("crossfit", np.array([setting.crossfit for setting in found])),
    ):
        chosen = found[int(values.argmax())]
        lines.append(
            [
                name, f"{_correlation(values, test):.2f}",
                f"{_correlation(rankdata(values), rankdata(test)):.2f}",
                f"{(values - test).mean():+.4f}", f"{chosen.test:.4f}", chosen.name,
            ]
        )  # fmt: skip
    head = [
        "value on vali",
        "correlation",
        "of ranks",
        "minus test",
        "test of its best",
        "its best",
    ]
    rules = tabulate(lines, head, disable_numparse=True)
    return (
        f"{table}\n\nwith test {metric}, over {len(found)} settings (best on test "
        f"{test.max():.4f}):\n{rules}\n\n{convention}"
    )


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's; nan where one of them does not vary."""
    if not (np.ptp(one) and np.ptp(other)):
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])
