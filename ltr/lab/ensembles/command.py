"""The command ``ensemble``: make an ensemble of finished runs for each fold, and summarise it."""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from ltr.atomic import writing_folder
from ltr.cli.options import option
from ltr.errors import ConfigError
from ltr.experiment.report import metric_table
from ltr.experiment.run_folder import (
    NO_TEST_SPLIT,
    RunFolder,
    check_measured_alike,
    find_runs,
)
from ltr.inference.inputs import ScoringOptions
from ltr.lab.ensembles.ensemble import check_combinable, make_ensemble
from ltr.lab.ensembles.weights import EQUAL, parse_weights


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions(ScoringOptions):
    """Combine several finished runs, networks and trees alike, into one ranker. The
    ranker's score is the weighted mean of the runs' scores, which are standardised within each
    list. The new run folder contains copies of the combined models; evaluate, predict, export,
    explain and compare accept it.

      ltr ensemble outputs/RUN outputs/OTHER
      ltr ensemble outputs/SWEEP weights=vali
      ltr ensemble outputs/RUN outputs/OTHER weights=0.7,0.3 output=outputs/BOTH

    Bagging takes two commands:

      ltr train -m bagging=bootstrap seed=1,2,3,4,5 sweep=bagged
      ltr ensemble outputs/bagged
    """

    runs: tuple[str, ...] = option(
        (), help="run folders, or folders that contain runs; the prefix runs= is optional"
    )
    weights: tuple[str, ...] = option(
        ("equal",),
        help="equal | vali: chosen on the validation lists | a number for each run: [0.7,0.3]",
    )
    output: str | None = option(
        None,
        help="the new run folder; null = a folder in output_dir, named after the date and time",
    )
    output_dir: str = option("outputs", help="the folder in which the run folder is created")
    data_dir: str | None = option(
        None, help="the folder of the data set; null = the folder that the first run used"
    )
    cache_dir: str = option("data/cache", help="the folder in which parsed data files are kept")


def ensemble_of_runs(options: EnsembleOptions) -> str:
    """Make an ensemble of finished runs for each fold.

    Returns:
        What to print: the members, the metrics and the folder.

    Raises:
        ConfigError: no runs are named, a run is not finished, the folds do not have the same number
            of runs, or the output folder exists. ``make_ensemble`` raises further errors.
    """
    if not options.runs:
        raise ConfigError("expected run folders, or a folder that contains runs; see --help")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    runs, unfinished = find_runs(options.runs)
    if unfinished:
        raise ConfigError(
            f"{unfinished[0]} is not finished: resume it, or name the finished runs one by one"
        )
    runs_of_folds = _group_by_fold(runs)
    folder = _output_folder(options, runs[0])
    for fold_runs in runs_of_folds.values():
        check_combinable(fold_runs)
    check_measured_alike(runs)
    weights = parse_weights(options.weights, len(runs) // len(runs_of_folds))
    results: dict[str, dict[str, Any]] = {}
    with writing_folder(folder) as unfinished_folder:
        for fold, fold_runs in sorted(runs_of_folds.items(), key=_fold_name):
            results[str(fold)] = make_ensemble(
                fold_runs,
                weights,
                fold_folder(unfinished_folder, fold, len(runs_of_folds)),
                device=options.device,
                items=options.evaluation_items,
                data_dir=options.data_dir,
                cache_dir=options.cache_dir,
                trust=options.trust,
            )
    return "\n\n".join([*_summarise(results), f"kept in {folder}"])


def _group_by_fold(runs: Sequence[RunFolder]) -> dict[str | None, list[RunFolder]]:
    """Return the runs of each fold; raise ``ConfigError`` if their numbers differ."""
    groups: dict[str | None, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(run.repeat, []).append(run)
    fold_of_count = {len(fold_runs): fold for fold, fold_runs in groups.items()}
    if len(fold_of_count) > 1:
        (first_count, first), (second_count, second), *_ = fold_of_count.items()
        numbers = " and ".join(
            f"{count} {f'for {fold}' if fold else 'without a fold'}"
            for count, fold in [(first_count, first), (second_count, second)]
        )
        raise ConfigError(
            f"expected the same number of runs for every fold, got {numbers}: for every fold, name "
            "the runs with the same settings and seeds"
        )
    return groups


def _fold_name(group: tuple[str | None, list[RunFolder]]) -> str:
    fold, _ = group
    return str(fold)


def _output_folder(options: EnsembleOptions, first: RunFolder) -> Path:
    """Return the folder to write; raise ``ConfigError`` if it exists."""
    time = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    name = f"{time}_{first.results['dataset']}-ensemble_{secrets.token_hex(2)}"
    folder = Path(options.output or f"{options.output_dir}/{name}")
    if folder.exists():
        raise ConfigError(f"output={folder} already exists: choose the name of a new folder")
    return folder


def fold_folder(folder: Path, fold: str | None, folds: int) -> Path:
    """Return the run folder of the ensemble of a fold: ``folder`` itself if there is one fold."""
    return folder if folds == 1 else folder / str(fold).replace(", ", "_").replace(" ", "-")


def _summarise(results: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the parts of the text to print: the members, the metrics and the cross-fitted metric.

    The numbers are means over folds. ``results`` maps each fold to the content of its ensemble's
    ``results.json``.
    """
    import pandas as pd

    first, *_ = results.values()
    has_folds = len(results) > 1
    select_on = first["select_on"]
    style: Any = {"headers": "keys", "floatfmt": ".4f", "showindex": False}
    splits = [split for split in ("vali", "test") if split in first]
    metrics = {
        split: pd.DataFrame([fold_results[split] for fold_results in results.values()])
        for split in splits
    }
    sections = [tabulate(_member_table(results).to_dict("list"), **style)]
    if has_folds:
        columns = {f"{split} {select_on}": frame[select_on] for split, frame in metrics.items()}
        sections.append(tabulate({"": [*results], **columns}, **style))
        sections.append(f"mean over {len(results)} folds")
    sections.append(metric_table({split: dict(frame.mean()) for split, frame in metrics.items()}))
    if "test" not in splits:
        sections.append(NO_TEST_SPLIT)
    sections.append(str(first["convention"]["text"]))
    crossfit = _describe_crossfit(results)
    if crossfit is not None:
        sections.append(crossfit)
    return sections


def _member_table(results: Mapping[str, dict[str, Any]]) -> Any:
    """Return a data frame with a row for each member; its numbers are means over folds."""
    import pandas as pd

    first, *_ = results.values()
    members = pd.DataFrame(first["members"])
    if len(results) == 1:
        return members
    frames = [pd.DataFrame(fold_results["members"]) for fold_results in results.values()]
    numbers = pd.concat(frames).groupby(level=0)
    columns = [f"vali {first['select_on']}", "weight"]
    return members.drop(columns="run").assign(**numbers[columns].mean())


def _describe_crossfit(results: Mapping[str, dict[str, Any]]) -> str | None:
    """Describe the mean cross-fitted metric over folds; return None if a fold lacks it."""
    import pandas as pd

    first, *_ = results.values()
    columns = ["crossfit", "crossfit_equal", "crossfit_error"]
    frame = pd.DataFrame([*results.values()])[columns].astype(float)
    value, equal, error = frame.mean(skipna=False)
    if math.isnan(value):
        return None
    comparison = ""
    if first["choices"]["weights"] != EQUAL:
        comparison = f"; equal weights {equal:.4f}"
    return (
        f"crossfit vali {first['select_on']} {value:.4f} ± {error / math.sqrt(len(results)):.4f} "
        "(standard error), epochs and weights chosen on one half of the lists and measured on the "
        f"other{comparison}"
    )
