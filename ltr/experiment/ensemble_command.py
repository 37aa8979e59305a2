"""The command ``ensemble``: an ensemble of finished runs for each fold, with a summary of them."""

import math
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from tabulate import tabulate

from ltr.atomic import writing_folder
from ltr.console.keys import texts
from ltr.errors import ConfigError
from ltr.experiment.ensemble import check_alike, make_ensemble
from ltr.experiment.report import metric_table
from ltr.experiment.run_folder import (
    NO_TEST_SPLIT,
    RunFolder,
    check_measured_alike,
    find_runs,
)
from ltr.scorers.inputs import set_threads
from ltr.scorers.weights import EQUAL, parse_weights


def ensemble_of_runs(cfg: DictConfig) -> str:
    """Make the ensemble that ``cfg`` describes, one for each fold; return members, metrics and
    folder as text.

    ``ConfigError``: no runs are given, one is not finished, the folds have not equally many, or the
    output folder exists; see also ``make_ensemble``.
    """
    if not (paths := texts(cfg, "runs")):
        raise ConfigError("give run folders, or a folder that holds runs; see --help")
    set_threads(cfg)
    runs, unfinished = find_runs(paths)
    if unfinished:
        raise ConfigError(
            f"{unfinished[0]} is not finished: go on with it, or name the runs one by one"
        )
    folds: dict[str | None, list[RunFolder]] = {}
    for run in runs:
        folds.setdefault(run.repeat, []).append(run)
    counts = {len(of_fold): name for name, of_fold in folds.items()}
    if len(counts) > 1:
        (one, first), (other, second), *_ = counts.items()
        raise ConfigError(
            f"{first} has {one} runs and {second} has {other}: give the same runs of every fold"
        )
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    name = f"{now}_{runs[0].results['dataset']}-ensemble_{secrets.token_hex(2)}"
    folder = Path(cfg.output or f"{cfg.output_dir}/{name}")
    if folder.exists():
        raise ConfigError(f"output={folder} is there already: give the name of a new folder")
    for of_fold in folds.values():
        check_alike(of_fold)
    check_measured_alike(runs)
    weights = parse_weights(texts(cfg, "weights"), len(runs) // len(folds))
    with writing_folder(folder) as part:
        made = {
            str(fold): make_ensemble(of_fold, weights, place_of_fold(part, fold, len(folds)), cfg)
            for fold, of_fold in sorted(folds.items(), key=lambda one: str(one[0]))
        }
    return "\n\n".join([*_summary(made), f"kept in {folder}"])


def place_of_fold(folder: Path, fold: str | None, folds: int) -> Path:
    """Return the run folder of the ensemble of a fold: ``folder`` itself if there is one fold."""
    return folder if folds == 1 else folder / str(fold).replace(", ", "_").replace(" ", "-")


def _summary(made: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return tables of members and metrics, as means over folds, and what the weights are worth."""
    import pandas as pd

    every, several = [*made.values()], len(made) > 1
    first, select_on = every[0], every[0]["select_on"]
    members = pd.DataFrame(first["members"])
    if several:
        numbers = pd.concat(pd.DataFrame(one["members"]) for one in every).groupby(level=0)
        columns = [f"vali {select_on}", "weight"]
        members = members.drop(columns="run").assign(**numbers[columns].mean())
    look: Any = {"headers": "keys", "floatfmt": ".4f", "showindex": False}
    parts = [tabulate(members.to_dict("list"), **look)]
    splits = [split for split in ("vali", "test") if split in first]
    means = {split: pd.DataFrame([one[split] for one in every]) for split in splits}
    if several:
        values = {f"{split} {select_on}": frame[select_on] for split, frame in means.items()}
        parts.append(tabulate({"": [*made], **values}, **look))
        parts.append(f"mean over {len(made)} folds")
    parts.append(metric_table({split: dict(frame.mean()) for split, frame in means.items()}))
    if "test" not in splits:
        parts.append(NO_TEST_SPLIT)
    parts.append(str(first["convention"]["text"]))
    names = ["crossfit", "crossfit_equal", "crossfit_error"]
    value, equal, error = pd.DataFrame(every)[names].astype(float).mean(skipna=False)
    if not math.isnan(value):
        beside = "" if first["choices"]["weights"] == EQUAL else f"; equal weights {equal:.4f}"
        parts.append(
            f"crossfit vali {select_on} {value:.4f} ± {error / math.sqrt(len(every)):.4f} "
            "(standard error), epochs and weights chosen on one half of the lists and measured on "
            f"the other{beside}"
        )
    return parts
