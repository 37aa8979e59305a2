"""Choose one of the finished runs by its value on vali, copy it to a folder, and describe it."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from ltr.atomic import writing_folder
from ltr.errors import ConfigError, OutputError, as_started
from ltr.experiment.copies import correct_copy
from ltr.experiment.run_folder import NO_TEST_SPLIT, RunFolder
from ltr.inference.export.engines import check_engine
from ltr.lab.ensembles.command import fold_folder
from ltr.lab.tables.results import CROSSFIT, Results
from ltr.lab.tables.runs import Run
from ltr.metrics.crossfit import Crossfit
from ltr.parts.scorer import load_model
from ltr.training.results_file import BEFORE

_ERRORS = 2  # a run must be better than the best ensemble by more than this many standard errors


@dataclass(frozen=True)
class Choice:
    """The rows of a table that were trained, and the run that was chosen for each fold."""

    results: Results
    runs: Mapping[int | None, Run]  # the chosen run of each fold
    folder: Path  # the folder to which the chosen runs are copied
    report: Path  # the folder of the table of all rows
    left_out: str  # says which rows are left out, and why; empty if none

    @property
    def labels(self) -> list[str]:
        """The labels of the rows of the chosen runs."""
        return [*dict.fromkeys(run.label for run in self.runs.values())]

    @property
    def column_names(self) -> dict[str, str]:
        """The columns of ``Results.by_run`` that are shown, each with the name to show."""
        convention = self.results.table.conventions[0]
        select_on = str(next(iter(self.runs.values())).config.select_on)
        names = {CROSSFIT: f"{CROSSFIT} {select_on}"}
        for metric in self.results.table.metrics:
            names[f"{convention} {metric}"] = f"{self.results.split} {metric}"
        return names

    def row_means(self) -> pd.DataFrame:
        """Return the means of each row over its folds and seeds.

        They are sorted by the cross-fitted metric, best first. The columns are those of
        ``column_names``, and ``seconds``, the total time of the row's runs.
        """
        by_row = self.results.by_run.groupby("row", sort=False)
        means = by_row[[*self.column_names]].mean()
        means["seconds"] = by_row["seconds"].sum().round()
        ordered = means.sort_values(CROSSFIT, ascending=False)
        return ordered.rename(columns=self.column_names)

    def chosen_means(self) -> pd.Series:
        """Return the means of the chosen runs over the folds, named as in ``column_names``."""
        by_run = self.results.by_run
        chosen_folders = [str(run.folder) for run in self.runs.values()]
        chosen = by_run[by_run["run"].isin(chosen_folders)].drop_duplicates("fold")
        return chosen[[*self.column_names]].mean().rename(self.column_names)

    def keep(self) -> None:
        """Copy the chosen runs to ``folder``; after an error, none is copied."""
        with writing_folder(self.folder) as new_folder:
            for run_folder, run in output_folders(new_folder, self.runs).items():
                copy_run(run.folder, run_folder)

    def describe(self) -> str:
        """Describe the rows and their values, the choice, and commands that use it."""
        choice = f"the choice, by crossfit on vali: {', '.join(self.labels)}"
        run_folder, run = next(iter(output_folders(self.folder, self.runs).items()))
        evaluate = f"{as_started('evaluate')} {run_folder}"
        if self.results.split == "vali":
            choice += f"\n{NO_TEST_SPLIT}"
            evaluate += " split=vali"
        paragraphs = [
            self._rows_text(),
            self.left_out,
            f"{choice}\nkept in {self.folder}\nall intervals: {self.report / 'table.html'}",
            f"next: {as_started('predict')} {run_folder} input=FILE\n"
            f"      {_describe_export(run, run_folder)}\n"
            f"      {evaluate}",
        ]
        return "\n\n".join(filter(None, paragraphs))

    def _rows_text(self) -> str:
        """Return the means of each row and of the choice, as a table."""
        means = self.row_means()
        means.loc["the choice"] = self.chosen_means()
        shown = means.reset_index(names="").astype(object)
        formats = ("", *(".4f" for _ in self.column_names), ".0f")
        cells: Any = shown.where(shown.notna(), None).to_dict("list")
        return tabulate(cells, headers="keys", floatfmt=formats)


def choose_run(runs: Sequence[Run]) -> Run:
    """Return the run to keep: the ensemble that is best on the validation lists, unless other runs
    are better than it by more than two standard errors. In that case, return the best of those.

    All runs are measured by cross-fitting on the same halves of the lists, so the noise that they
    share cancels in a difference. Ensembles are preferred because the largest of many noisy values
    is too high: on few lists, it often belongs to the luckiest run, not to the best one
    (``examples/paper_figures/ensembles.py``).
    """
    halves = [RunFolder(run.folder).results["crossfit_halves"] for run in runs]
    crossfits = {
        n: Crossfit.from_halves(np.array(values))
        for n, values in enumerate(halves)
        if values is not None
    }
    if not crossfits:  # fewer than two validation lists count
        return next((run for run in runs if run.members), runs[0])
    ensembles = [n for n in crossfits if runs[n].members]
    best_ensemble = max(ensembles or crossfits, key=lambda n: crossfits[n].value)
    gains = {n: crossfit.minus(crossfits[best_ensemble]) for n, crossfit in crossfits.items()}
    better = [n for n, gain in gains.items() if gain.value > _ERRORS * gain.error]
    return runs[max(better, key=lambda n: gains[n].value, default=best_ensemble)]


def output_folders(output: Path, chosen: Mapping[int | None, Run]) -> dict[Path, Run]:
    """Return a dict from new folders to chosen runs; a single run is copied to ``output``."""
    return {fold_folder(output, f"fold {fold}", len(chosen)): run for fold, run in chosen.items()}


def copy_run(run_folder: Path, target: Path) -> None:
    """Copy a run folder to ``target``, and correct the relative paths in its files.

    Raises:
        OutputError: a file cannot be written.
    """
    try:
        ignore = shutil.ignore_patterns(".lock", f"{BEFORE}*")
        shutil.copytree(run_folder, target, ignore=ignore, dirs_exist_ok=True)
    except shutil.Error as error:
        _, file, reason = error.args[0][0]
        raise OutputError(f"{file} cannot be written ({reason}): free some disk space") from error
    correct_copy(target, run_folder)


def _describe_export(run: Run, folder: Path) -> str:
    """Return the command that exports ``run``, kept in ``folder``, or why it cannot be exported."""
    scorer = load_model(run.folder, trust=run.trust)
    reasons = []
    for engine in ("onnx", "native"):
        try:
            check_engine(engine, scorer.model, scorer.transform)
        except ConfigError as error:
            reasons.append(str(error))
        else:
            return f"{as_started('export')} {folder} to={engine}"
    return f"{as_started('export')} cannot export this ranker ({reasons[0]})"
