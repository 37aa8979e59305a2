"""Recommend a ranker: train the rows of a table, combine them, and choose one on vali."""

import re
import secrets
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.atomic import writing_folder
from ltr.console.compose import run_config
from ltr.console.configs import own_keys
from ltr.console.folders import recorded
from ltr.console.keys import as_list, number, texts
from ltr.console.process import say
from ltr.errors import ConfigError, OutputError, as_started
from ltr.experiment.copies import correct_copy
from ltr.experiment.engines import check_engine
from ltr.experiment.ensemble_command import place_of_fold
from ltr.experiment.run_folder import NO_TEST_SPLIT, RunFolder
from ltr.metrics.crossfit import Crossfit
from ltr.scorers.scorer import load_model
from ltr.tables.config import table_config
from ltr.tables.results import CROSSFIT, OWN, Results, check_measured_lists
from ltr.tables.runs import Run, complete, plan
from ltr.tables.spec import Table, read_table
from ltr.tables.table import report_of, results_of
from ltr.training.results_file import BEFORE

_FOLD = "dataset.fold="
_MINUTE = 60.0  # seconds
_ERRORS = 2  # standard errors by which a row must be better than the ensemble


def recommend(cfg: DictConfig) -> str:
    """Train and choose as ``cfg`` says; return the rows, the choice and its folder as text.

    ``ConfigError``, ``DataError``: before anything runs, with one line that says what to correct;
    also if no row was finished in time.
    """
    if number(cfg, "minutes") <= 0:
        raise ConfigError(f"minutes={cfg.minutes}: give a number > 0, such as 30")
    until = time.monotonic() + _MINUTE * cfg.minutes
    given = texts(cfg, "train")
    folds = [one.removeprefix(_FOLD).split(",") for one in given if one.startswith(_FOLD)]
    merged = DictConfig(OmegaConf.merge(own_keys("table"), cfg))
    merged.train = [one for one in given if not one.startswith(_FOLD)]
    order = table_config(merged)
    output_dir, now = Path(cfg.output_dir).absolute(), datetime.now()
    table = _rows_of(read_table(str(cfg.table)), texts(cfg, "rows"))
    if folds and not all(re.fullmatch("[0-9]{1,9}", fold) for fold in folds[-1]):
        raise ConfigError(f"{_FOLD}{','.join(folds[-1])}: give a whole number, such as 1")
    if folds:
        table = replace(table, folds=folds[-1])
        largest = max(map(int, folds[-1]))
        data_set = run_config([*table.settings, *order.overrides])[0].dataset
        home = Path(str(data_set.get("data_dir")), str(data_set.get("folder")))
        if data_set.get("folds") == 0 and (home / f"Fold{largest}").is_dir():
            order.overrides.append(f"dataset.folds={largest}")  # their number was unknown
    trained = replace(
        table, rows={label: row for label, row in table.rows.items() if not row.ensemble}
    )
    planned = partial(plan, trained, order.overrides, range(1, cfg.seeds + 1), output_dir)
    runs = planned()
    _check_alike(runs, bool(folds))
    config = runs[0].config
    metrics = [*dict.fromkeys([str(config.select_on), *map(str, as_list(config.metrics))])]
    table = replace(table, metrics=metrics, verdicts=metrics, conventions=[OWN], published={})
    data, workers = str(runs[0].config.dataset.name), order.workers(runs[0].config)
    new_name = f"recommended_{data}_{now:%Y-%m-%d_%H-%M-%S}_{secrets.token_hex(2)}"
    output = Path(cfg.output or output_dir / new_name)
    if output.exists():
        raise ConfigError(f"output={output} is there already: give the name of a new folder")
    check_measured_lists(table, runs)
    words = [*order.of_table, *(f"{_FOLD}{','.join(fold)}" for fold in folds[-1:])]
    folder = order.path(output_dir / "tables", data, ["recommend", *words])
    todo = sum(not run.done for run in runs)
    say(f"{len(runs)} runs of {len(trained.rows)} rows, {todo} to do, {cfg.minutes:g} min at most")
    runs, failures = complete(runs, planned, folder, workers, until)
    _tell(failures)
    final = _finished(table, runs)
    left_out = _left_out(runs, failures, f"{cfg.minutes:g}", over=time.monotonic() >= until)
    if not final.rows:
        raise ConfigError(
            f"no row was finished in minutes={cfg.minutes:g}: the same command goes on; give it "
            "more minutes, or fewer rows"
        )
    if left_out:
        say(left_out)
    final_plan = partial(plan, final, order.overrides, range(1, cfg.seeds + 1), output_dir)
    runs, more = complete(final_plan(), final_plan, folder, workers)
    _tell(more)
    command = f"{as_started('recommend')} {shlex.join([*recorded(order.overrides), *words])}"
    results = results_of(final, runs, more, float(order.cfg.margin))
    report, frames = report_of(results, order, folder.name, command)
    if left_out:
        report = replace(report, facts=[*report.facts, ("left out", left_out)])
    report.write(folder, "table", frames)
    chosen = {
        at: choose([run for run in runs if run.fold == at and run.done])
        for at in dict.fromkeys(run.fold for run in runs)
    }
    with writing_folder(output) as part:
        for place, run in places(part, chosen).items():
            keep(run.folder, place)
    return _text(results, chosen, output, folder, left_out)


def _rows_of(table: Table, labels: Sequence[str]) -> Table:
    """Return ``table`` with the rows ``labels``, all that they need, and the ensembles; with no
    label, all rows.
    """
    if table.by_fold:
        raise ConfigError(f"table={table.name}: it stands beside published numbers: give recipes")
    if not labels:
        return table
    found = [row for label in labels for row in table.find("rows", label)]
    wanted = {*table.ensembles} | {needed for row in found for needed in table.with_needed(row)}
    return replace(table, rows={k: row for k, row in table.rows.items() if k in wanted})


def _check_alike(runs: Sequence[Run], by_fold: bool) -> None:
    """Raise ``ConfigError`` if the values of ``runs`` cannot be compared."""
    for key in ("dataset", "select_on", "convention"):
        plain = [OmegaConf.to_container(run.config, resolve=True) for run in runs]
        nodes = {(run.fold, str(one[key])) for run, one in zip(runs, plain, strict=True)}  # type: ignore[call-overload,index]
        if len(nodes) > len({run.fold for run in runs}):
            raise ConfigError(f"rows differ in {key}: give it for all rows, outside of the table")
    if by_fold and runs[0].fold is None:
        raise ConfigError(f"{_FOLD}...: this data set has no folds: leave it out")


def _tell(failures: Mapping[Path, str]) -> None:
    for path, reason in failures.items():
        say(f"{path.name} failed, and is left out: {reason}")


def _left_out(
    runs: Sequence[Run], failures: Mapping[Path, str], minutes: str, *, over: bool
) -> str:
    """Return which rows have a run that did not begin, and why; empty if all began. ``over``: the
    time for them was over; otherwise a run failed that they learn from.
    """
    rows = {run.label: None for run in runs if not run.done and run.folder not in failures}
    if not rows:
        return ""
    if not over:
        return f"left out, as a row that they need failed: {', '.join(rows)}"
    return (
        f"left out, as they did not begin in minutes={minutes}: {', '.join(rows)}; the same "
        "command with more minutes goes on"
    )


def places(output: Path, chosen: Mapping[int | None, Run]) -> dict[Path, Run]:
    """Return the run folder to write for each chosen run: ``output`` if there are no folds."""
    return {place_of_fold(output, f"fold {at}", len(chosen)): run for at, run in chosen.items()}


def _finished(table: Table, runs: Sequence[Run]) -> Table:
    """Return ``table`` with the rows that are finished in all folds and seeds, and the ensembles of
    at least two of them.
    """
    done = {run.label for run in runs} - {run.label for run in runs if not run.done}
    rows = {label: row for label, row in table.rows.items() if label in done}
    for label, row in table.ensembles.items():
        members = [one for one in row.ensemble if one in done]
        seeds = len({run.seed for run in runs}) if row.seeds == "all" else 1
        whole = isinstance(row.weights, str) or members == row.ensemble
        if whole and len(members) * seeds > 1:
            rows[label] = replace(row, ensemble=members)
    baseline = table.baseline if table.baseline in rows else None
    return replace(table, rows=rows, baseline=baseline)


def choose(runs: Sequence[Run]) -> Run:
    """Return the run to recommend: the best ensemble on the validation lists, unless other runs are
    better than it by more than two standard errors; then the best of these.

    All are measured by crossfit, and compared on the same halves of the lists: the noise that they
    share cancels. An ensemble is preferred because the best of many noisy values is too high: on
    few lists it would most often be the luckiest row (``examples/paper_figures/ensembles.py``).
    """
    halves = [RunFolder(run.folder).results["crossfit_halves"] for run in runs]
    worth = {n: Crossfit.of(np.array(of)) for n, of in enumerate(halves) if of is not None}
    if not worth:  # fewer than two validation lists count
        return next((run for run in runs if run.members), runs[0])
    ensembles = [n for n in worth if runs[n].members]
    best_ensemble = max(ensembles or worth, key=lambda n: worth[n].value)
    gains = {n: crossfit.less(worth[best_ensemble]) for n, crossfit in worth.items()}
    better = [n for n, gain in gains.items() if gain.value > _ERRORS * gain.error]
    return runs[max(better, key=lambda n: gains[n].value, default=best_ensemble)]


def keep(run: Path, place: Path) -> None:
    """Copy the run folder ``run`` to ``place``, with relative paths that are right from there;
    ``OutputError``: it cannot be written.
    """
    try:
        left_out = shutil.ignore_patterns(".lock", f"{BEFORE}*")
        shutil.copytree(run, place, ignore=left_out, dirs_exist_ok=True)
    except shutil.Error as error:
        _, file, reason = error.args[0][0]
        raise OutputError(f"{file} cannot be written ({reason}): free some space") from error
    correct_copy(place, run)


def _text(
    results: Results,
    chosen: Mapping[int | None, Run],
    output: Path,
    folder: Path,
    left_out: str,
) -> str:
    """Return the rows with their values, what was chosen, and what can be done with it."""
    frame, convention = results.by_run, results.table.conventions[0]
    select_on = str(next(iter(chosen.values())).config.select_on)
    split = results.split
    measured = {f"{convention} {metric}": f"{split} {metric}" for metric in results.table.metrics}
    names = {CROSSFIT: f"{CROSSFIT} {select_on}", **measured}
    by_row = frame.groupby("row", sort=False)
    means = by_row[[*names]].mean().assign(seconds=by_row["seconds"].sum().round())
    means = means.sort_values(CROSSFIT, ascending=False)
    ours = frame[frame["run"].isin([str(run.folder) for run in chosen.values()])]
    means.loc["the choice"] = ours.drop_duplicates("fold")[[*names]].mean()
    shown = means.rename(columns=names).reset_index(names="").astype(object)
    look: Any = {"headers": "keys", "floatfmt": ("", *[".4f"] * len(names), ".0f")}
    words = ", ".join(dict.fromkeys(run.label for run in chosen.values()))
    place = next(iter(places(output, chosen)))
    note = f"\n{NO_TEST_SPLIT}" if split == "vali" else ""
    evaluate = f"{as_started('evaluate')} {place}{' split=vali' if split == 'vali' else ''}"
    return "\n\n".join(
        [
            tabulate(shown.where(shown.notna(), None).to_dict("list"), **look),
            *filter(None, [left_out]),
            f"the choice, by crossfit on vali: {words}{note}\nkept in {output}\n"
            f"all intervals: {folder / 'table.html'}",
            f"next: {as_started('predict')} {place} input=FILE\n"
            f"      {_export_of(next(iter(chosen.values())), place)}\n"
            f"      {evaluate}",
        ]
    )


def _export_of(run: Run, place: Path) -> str:
    """Return the command that exports the chosen ``run``, kept in ``place``; or why none does."""
    scorer, reason = load_model(run.folder, trust=run.trust), ""
    for engine in ("onnx", "native"):
        try:
            check_engine(engine, scorer.model, scorer.transform)
        except ConfigError as error:
            reason = reason or str(error)
        else:
            return f"{as_started('export')} {place} to={engine}"
    return f"no {as_started('export')} of it ({reason})"
