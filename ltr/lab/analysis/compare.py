"""Compare finished runs, grouped into systems: runs of a system differ only in seed and fold."""

import math
import shlex
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ltr.arrays import Doubles
from ltr.atomic import atomic_write, make_folder, safe_cell, write_frame
from ltr.cli.folders import convention_keys
from ltr.cli.keys import as_list
from ltr.cli.options import option
from ltr.errors import ConfigError, as_started
from ltr.experiment.run_folder import (
    NO_TEST_SPLIT,
    NO_TEST_VERDICT,
    RESULTS,
    RunFolder,
    find_runs,
)
from ltr.knobs import levels_for
from ltr.lab.analysis.systems import QueryValues, arrange_runs, join_folds, system_values
from ltr.lab.analysis.values import SystemValues, align
from ltr.lab.analysis.verdicts import (
    COVERS,
    Comparison,
    SystemInterval,
    compare_systems,
    interval_of,
    rule,
    significant_best,
)
from ltr.pages.report import NOT_A_TEST, RENDERERS, ReportBlock, ResultsPage, terminal


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compare finished runs by a metric computed on each test query, or on each validation query if
    the data have no test split. All runs that differ only in seed and fold form one system. The
    verdict on each pair of systems is "better", "worse", "equivalent" or "undecided". If one of
    the two systems was trained with a single seed, the verdict is "differ" instead of "better" or
    "worse".

      ltr compare outputs/RUN outputs/OTHER
      ltr compare outputs/SWEEP baseline=loss=rmse write=verdicts
      ltr compare outputs/RUN 'scores=[theirs.txt]' data=test.txt write=verdicts.tex
      ltr compare 'scores=[theirs.txt,others.txt]' data=test.txt metric=ndcg@10
      ltr compare 'scores=[a.run,b.run]' qrels=test.qrels metric=ndcg@10

    One seed does not show how much training varies, so train with three seeds or more:
      ltr train -m loss=neuralndcg,rmse seed=1,2,3
    """

    runs: tuple[str, ...] = option(
        (),
        help="run folders, or folders that contain runs; the prefix runs= is optional. [] = "
        "compare only files of scores",
    )
    metric: str | None = option(
        None,
        help="the metric, such as ndcg@10. If the runs did not compute it, it is computed from the "
        "scores that they stored. null = the metric by which the best epochs of the runs were "
        "chosen (select_on)",
    )
    margin: float = option(0.005, help="differences smaller than this margin do not matter")
    alpha: float = option(
        0.05,
        help="the significance level of all tests; the confidence level of all intervals is "
        "1 - alpha",
    )
    baseline: str | None = option(
        None,
        help="compare every system only with this one; systems are named after their settings, and "
        "a part of the name is enough, such as loss=rmse",
    )
    published: float | None = option(
        None,
        help="a published number; for each system, the report says whether its interval contains "
        "the number",
    )
    samples: int = option(
        10000,
        at_least=100,
        help="the number of bootstrap samples, and the minimum number of samples in the "
        "randomisation test, which draws more if there are many pairs of systems",
    )
    seed: int = option(
        0,
        at_least=0,
        help="the random seed of the resampling; with the same seed, the command prints the same "
        "output",
    )
    write: str | None = option(
        None, help="a folder for compare.html, .md, .tex and .csv, or the name of one such file"
    )
    scores: Any = option(
        None,
        help="files with the scores of other rankers, in the formats that evaluate reads. Type "
        "FILE, [FILE], {NAME: FILE} or, for several folds in order, {NAME: [FILE, FILE]}. If runs "
        "are compared too, the scores are measured under the convention of the runs",
    )
    data: Any = option(
        None,
        help="the LETOR file that was scored, or one file per fold; null = the test lists of the "
        "runs, or their validation lists if there are no test lists",
    )
    qrels: Any = option(
        None,
        help="the file of judgments, or one file per fold; the files in scores= must then be TREC "
        "runs",
    )
    data_dir: str | None = option(
        None, help="the folder of the runs' data set; null = the folder used in training"
    )
    cache_dir: str | None = option(
        "data/cache", help="the folder in which parsed data files are kept"
    )
    conventions: tuple[str, ...] = option(
        (),
        help="filled in from convention=NAME; do not set it directly. NAME is the convention of "
        "the metric (paper, lightgbm, letor4, trec or sklearn), and can be chosen only if no runs "
        "are compared. [] = trec if qrels is set, otherwise paper",
    )

    @property
    def label_files(self) -> list[str]:
        """The files of ``qrels`` or, if it is not set, of ``data``; one for each fold."""
        return as_list(self.data if self.qrels is None else self.qrels)

    @property
    def folders(self) -> dict[str, str]:
        """The values of ``data_dir`` and ``cache_dir``, without those that are None."""
        folders = {"data_dir": self.data_dir, "cache_dir": self.cache_dir}
        return {key: folder for key, folder in folders.items() if folder is not None}

    def arguments(self) -> list[str]:
        """Return the arguments that the report depends on, as typed on a command line."""
        unrecorded = ("runs", "write", "data_dir", "cache_dir", "conventions")
        arguments = list(self.runs)
        for declared in fields(self):
            value = getattr(self, declared.name)
            if declared.name not in unrecorded and value != declared.default:
                arguments.append(f"{declared.name}={value}")
        if self.conventions:
            arguments.append(f"convention={','.join(self.conventions)}")
        return arguments


class Findings(NamedTuple):
    """The result of a comparison: the report, and the numbers in it."""

    report: ResultsPage
    systems: Mapping[str, SystemInterval]  # by name
    pairs: Sequence[Comparison]  # a comparison for each pair of systems
    split: str  # the split that the runs are measured on


class _Measurements(NamedTuple):
    """The values of the systems, and what they were measured on."""

    values: dict[str, SystemValues]  # by system
    data: str  # name of the data set, or of the files
    folds: Sequence[str]  # their names
    convention: str  # in words
    split: str = "test"
    crossfit: Mapping[str, float] = {}  # by system; only for runs that are measured on vali


def compare(options: CompareOptions) -> str:
    """Compare runs, write the files that ``options`` name, and return the report as text.

    Raises:
        ConfigError, DataError: an option or a file is invalid, or the runs cannot be compared; the
            message says what to correct.
    """
    options = _take_files_as_scores(options)
    if not options.runs and (
        options.scores is None or (options.data is None) == (options.qrels is None)
    ):
        raise ConfigError(
            "expected run folders, or folders that contain runs, such as outputs/SWEEP; or scores= "
            "together with data= (LETOR text) or qrels= (for TREC runs); see --help"
        )
    runs, unfinished = find_runs(options.runs)
    findings = compare_runs(runs, options)
    paragraphs = [terminal(findings.report)]
    if unfinished:
        paragraphs.append(f"not finished, left out: {', '.join(map(str, unfinished))}\n")
    if options.write is None:
        paragraphs.append(
            "write=FOLDER saves this report and the p values of all tests; if write=FILE names a "
            "file that ends in .tex, .md, .html or .csv, only that file is written"
        )
    else:
        paragraphs.append(f"kept in {_write_findings(findings, Path(options.write))}")
    return "\n".join(paragraphs)


def _write_findings(findings: Findings, target: Path) -> str:
    """Write one file if ``target`` ends in .html, .md, .tex or .csv, otherwise a folder.

    Return the names of what was written, as a string.
    """
    table = pairs_frame(findings.pairs).assign(split=findings.split)
    if target.suffix not in {*RENDERERS, ".csv"}:
        files = findings.report.write(target, "compare", {"compare": table})
        return f"{target} ({', '.join(files)})"
    make_folder("write", target.parent)
    if target.suffix == ".csv":
        write_frame(target, table)
    else:
        atomic_write(target, RENDERERS[target.suffix](findings.report))
    return str(target)


def compare_runs(runs: Sequence[RunFolder], options: CompareOptions) -> Findings:
    """Compare ``runs`` and the files of scores in ``options``.

    Raises:
        ConfigError, DataError: a setting is invalid, or the runs cannot be compared.
    """
    metric = _choose_metric(runs, options.metric)
    score_files = _score_files(options.scores)
    if runs:
        measured = _measure_runs(runs, score_files, metric, options)
    else:
        measured = _measure_files(score_files, metric, options)
    draws: Any = {"seed": options.seed, "samples": options.samples, "alpha": options.alpha}
    baseline = _find_baseline(options.baseline, list(measured.values))
    pairs = compare_systems(measured.values, margin=options.margin, baseline=baseline, **draws)
    systems = {
        name: interval_of(values, metric, **draws) for name, values in measured.values.items()
    }
    facts = _facts([run.results for run in runs]) if runs else []
    facts += [("scores", f"{name} of {', '.join(files)}") for name, files in score_files.items()]
    aligned = align(measured.values)
    queries = f"{aligned.queries:,} queries{_describe_folds(measured.folds)}"
    report = ResultsPage(
        name="compare",
        title=f"{metric} on {measured.data}, {measured.split}: {queries}",
        command=f"{as_started('compare')} {shlex.join(options.arguments())}",
        facts=facts,
        blocks=_blocks(systems, pairs, metric, options.alpha, measured.crossfit),
        notes=[
            *_notes_on_vali(measured.split, options.published),
            *_notes(systems, pairs, options.published),
            *_notes_on_dropped(aligned.dropped),
            measured.convention,
        ],
    )
    return Findings(report, systems, pairs, measured.split)


def _describe_folds(folds: Sequence[str]) -> str:
    """Return the end of the title, which names or counts the folds."""
    if len(folds) > 1:
        return f" of {len(folds)} folds"
    return "".join(f", {fold}" for fold in folds)


def _take_files_as_scores(options: CompareOptions) -> CompareOptions:
    """Return the options with the files of scores moved from ``runs`` to ``scores``."""
    files = [path for path in options.runs if Path(path).is_file() and Path(path).name != RESULTS]
    if not files or isinstance(options.scores, dict):
        return options
    runs = tuple(path for path in options.runs if path not in files)
    return replace(options, runs=runs, scores=[*files, *as_list(options.scores)])


def _choose_metric(runs: Sequence[RunFolder], metric: str | None) -> str:
    """Return the metric by which systems are compared: ``metric`` or, if None, that of the runs."""
    if metric is not None:
        return metric
    selected = sorted({str(run.results["select_on"]) for run in runs})
    if len(selected) == 1:
        return selected[0]
    if not selected:
        raise ConfigError(
            "files of scores do not say which metric to compare: set metric=NAME, such as "
            "metric=ndcg@10"
        )
    raise ConfigError(
        f"the epochs of the runs were selected by {' and '.join(selected)}: set metric=NAME to "
        "compare all runs by one metric"
    )


def _find_baseline(baseline: str | None, names: Sequence[str]) -> str | None:
    """Return the system that ``baseline`` names; a part of its name is enough."""
    if baseline is None or baseline in names:
        return baseline
    matches = [name for name in names if baseline in name]
    if len(matches) != 1:
        raise ConfigError(f"baseline={baseline}: choose one of {' | '.join(names)}")
    return matches[0]


def _facts(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the entries at the head of the report: the tested epochs, the seeds, the commits."""
    weights = {
        f"best epoch by {result['select_on']} on vali"
        if result["select"] == "best"
        else "last epoch"
        for result in results
    }
    seeds = sorted({result["seed"] for result in results}, key=_none_first)
    commits = dict.fromkeys(result.get("commit") or "unknown" for result in results)
    return [
        ("weights", ", ".join(sorted(weights))),
        ("seeds", " ".join(map(str, seeds))),
        ("commit", ", ".join(commits)),
    ]


def _none_first(seed: int | None) -> tuple[bool, int]:
    """Return a key to sort seeds by; None (an ensemble of several seeds) comes first."""
    return seed is not None, seed or 0


def _mean_crossfit(runs: pd.DataFrame, metric: str) -> float:
    """Return the mean cross-fitted ``metric`` over the ``runs`` of a system; NaN if unknown."""
    results = [run.results for fold_runs in runs.to_numpy() for run in fold_runs]
    if any(result["select_on"] != metric or result.get("crossfit") is None for result in results):
        return math.nan
    return sum(float(result["crossfit"]) for result in results) / len(results)


def _blocks(
    systems: Mapping[str, SystemInterval],
    pairs: Sequence[Comparison],
    metric: str,
    alpha: float,
    crossfit: Mapping[str, float],
) -> list[ReportBlock]:
    """Return the table of the systems and, if there are pairs, the table of their differences.

    ``crossfit`` contains the cross-fitted metric of each system that is measured on vali.
    """
    interval_head = f"{1 - alpha:.0%} interval"
    blocks = [_systems_block(systems, pairs, metric, interval_head, crossfit)]
    if pairs:
        blocks.append(_differences_block(pairs, interval_head))
    return blocks


def _systems_block(
    systems: Mapping[str, SystemInterval],
    pairs: Sequence[Comparison],
    metric: str,
    interval_head: str,
    crossfit: Mapping[str, float],
) -> ReportBlock:
    head = ["", "seeds", metric, interval_head, "sd of seeds", "interval covers"]
    rows = [
        [
            name,
            str(system.seeds),
            f"{system.mean:.4f}",
            f"{system.low:.4f} to {system.high:.4f}",
            _format_unless_nan(system.deviation),
            COVERS[system.standard_error.covers],
        ]
        for name, system in systems.items()
    ]
    if crossfit:
        head.append("crossfit")
        for row in rows:
            row.append(_format_unless_nan(crossfit.get(row[0], math.nan)))
    best = [(name, metric) for name in significant_best(systems, pairs)]
    return ReportBlock("Systems", "", head, rows, best)


def _format_unless_nan(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def _differences_block(pairs: Sequence[Comparison], interval_head: str) -> ReportBlock:
    head = [
        "", "verdict", "against", "difference", interval_head, "p", "wins/ties/losses", "resolves",
    ]  # fmt: skip
    rows = [
        [
            pair.first,
            pair.word,
            pair.second,
            f"{pair.difference:+.4f}",
            "{:+.4f} to {:+.4f}".format(*pair.interval),
            "<0.0001" if pair.p_holm < 0.0001 else f"{pair.p_holm:.4f}",
            f"{pair.wins}/{pair.ties}/{pair.losses}",
            f"{pair.resolvable():.4f}",
        ]
        for pair in pairs
    ]
    return ReportBlock(
        "Differences",
        "p includes Holm's correction; wins/ties/losses count the queries on which the first "
        "system is better, equal or worse; resolves: 80% of such tests would find a true "
        "difference of this size",
        head,
        rows,
    )


def _notes_on_vali(split: str, published: float | None) -> list[str]:
    """Return notes on runs without a test split, which are compared on vali."""
    if split != "vali":
        return []
    notes = [f"{NO_TEST_SPLIT}; {NO_TEST_VERDICT}"]
    if published is not None:
        notes.append(f"published={published:g} is compared with values on vali")
    return notes


def _notes_on_dropped(count: int) -> list[str]:
    if not count:
        return []
    return [f"{count} queries that the convention skips, or that a file lacks, are left out"]


def _notes(
    systems: Mapping[str, SystemInterval], pairs: Sequence[Comparison], published: float | None
) -> list[str]:
    """Return the notes below the tables, such as the rule for verdicts and what is not covered."""
    notes = [
        f"{pair.first}, {pair.word}, {pair.second}: {pair.note}" for pair in pairs if pair.note
    ]
    if published is not None:
        notes += [
            f"{name}: ours {system.mean:.4f} ({system.low:.4f} to {system.high:.4f}) "
            f"{system.covers(published)} {published:.4f}"
            for name, system in systems.items()
        ]
        notes.append(NOT_A_TEST)
    if pairs:
        first = pairs[0]
        count = len(pairs)
        resolved_alone = max(pair.resolvable(pairs=1) for pair in pairs)
        resolved_first = max(pair.resolvable(pairs=count) for pair in pairs)
        notes += [
            rule(first.margin, first.alpha),
            f"{first.queries} queries resolve a true difference of {resolved_alone:.4f} in each "
            f"pair (80% power, alpha {first.alpha:g}), and of {resolved_first:.4f} at the first of "
            f"Holm's {count} steps",
        ]
    if any(pair.standard_error.uncovered for pair in pairs):
        folds = any(pair.standard_error.covers == "folds" for pair in pairs)
        missing = (
            "what the folds have in common" if folds else "what another training run would give"
        )
        notes.append(
            f"NOT COVERED for systems with one seed: {missing}; the verdicts hold for these "
            "trained models, not for the methods; train 3 seeds or more"
        )
    return [*notes, "not covered: other data, and settings chosen by looking at these queries"]


def pairs_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Return the content of ``compare.csv``: a line for each pair, a column for each number."""
    rows = []
    for pair in pairs:
        low, high = pair.interval
        inner_low, inner_high = pair.equivalence_interval
        rows.append(
            {
                **vars(pair),
                "low": low,
                "high": high,
                "inner_low": inner_low,
                "inner_high": inner_high,
                "word": pair.word,
                "note": pair.note,
                "error": pair.standard_error.error,
                "df": pair.standard_error.df,
                "covers": pair.standard_error.covers,
                "resolves": pair.resolvable(),
            }
        )
    nested = ["interval", "equivalence_interval", "standard_error", "p_queries"]
    return pd.DataFrame(rows).drop(columns=nested, errors="ignore")


def _score_files(scores: Any) -> dict[str, tuple[str, ...]]:
    """Return the files of each ranker that is not a run, by its name.

    A ranker without a name is named after its file.
    """
    if isinstance(scores, dict):
        return {str(name): tuple(as_list(files)) for name, files in scores.items()}
    paths = as_list(scores)
    files: dict[str, tuple[str, ...]] = {Path(path).stem: (path,) for path in paths}
    if len(files) < len(paths):
        raise ConfigError(
            "scores: two files have the same name: give the rankers names, as in "
            "'scores={a:FILE,b:FILE}'"
        )
    return files


def _measure_runs(
    runs: Sequence[RunFolder],
    score_files: Mapping[str, Sequence[str]],
    metric: str,
    options: CompareOptions,
) -> _Measurements:
    """Return the values of ``runs``, and of the files of scores on their test lists."""
    if options.conventions:
        raise ConfigError(
            "convention: score files that are compared with runs are measured under the convention "
            "of the runs: leave out convention"
        )
    cells = arrange_runs(runs, metric)
    groups = {str(name): group.droplevel(0) for name, group in cells.groupby(level=0, sort=False)}
    measure = partial(_measure_again, metric=metric, folders=options.folders)
    values = {name: system_values(group, metric, measure) for name, group in groups.items()}
    for name, files in score_files.items():
        if name in values:
            raise ConfigError(
                f"scores: the name {name} already belongs to a system of runs: choose another name"
            )
        values[name] = _measure_beside_runs(cells.iloc[0], name, files, metric, options)
    split = runs[0].split
    crossfit = {}
    if split == "vali":
        crossfit = {name: _mean_crossfit(group, metric) for name, group in groups.items()}
    return _Measurements(
        values=values,
        data=str(runs[0].results["dataset"]),
        folds=[str(fold) for fold in cells if fold],
        convention=runs[0].convention[1],
        split=split,
        crossfit=crossfit,
    )


def _measure_again(run: RunFolder, *, metric: str, folders: Mapping[str, str]) -> QueryValues:
    """Compute a metric that ``run`` did not compute, from the scores in its folder."""
    from ltr.inference.scores_file import values_of_stored_scores  # imports torch

    return run.qids, values_of_stored_scores(run, metric, folders)


def _measure_beside_runs(
    run_of_fold: pd.Series,
    name: str,
    files: Sequence[str],
    metric: str,
    options: CompareOptions,
) -> SystemValues:
    """Measure the ranker ``name``, which is not a run, on the test lists of runs.

    ``files`` are its scores, one file for each fold in ``run_of_fold``, which maps a fold to a run
    with the test lists and the convention to use.
    """
    if "." in metric and options.metric is None:
        raise ConfigError(
            f"the epochs of the runs were selected by {metric}, a user-defined function: set "
            f"metric={metric} to allow the import of its module"
        )
    label_files = _label_files(options, name, files, [*run_of_fold.index])
    folds = {}
    for (fold, run), file, label_file in zip(run_of_fold.items(), files, label_files, strict=True):
        values = _measure_on_run(run, Path(file), label_file, metric, options)
        folds[fold] = [(run.qids, values)]
    return join_folds(folds)


def _measure_on_run(
    run: RunFolder, file: Path, label_file: str | None, metric: str, options: CompareOptions
) -> Doubles:
    """Return the metric of the scores in ``file`` on each test list of ``run``, ``[lists]``."""
    from ltr.inference.scores_file import measure_lists, values_of_scores  # imports torch
    from ltr.inference.trec import read_trec_run
    from ltr.metrics import Convention

    if options.qrels is None:
        data = None if label_file is None else Path(label_file)
        return values_of_scores(file, run, metric, data=data, folders=options.folders)
    lists, scores = read_trec_run(file, Path(str(label_file)))
    values = measure_lists(lists, scores, metric, Convention(**run.convention[0]))
    by_query = pd.Series(values, [safe_cell(str(qid)) for qid in lists.qids])
    if pd.Index(run.qids).has_duplicates:
        raise ConfigError(
            f"qrels: expected unique query ids, but {run.folder} has two test lists with the same "
            "id: leave out qrels"
        )
    return np.asarray(by_query.reindex(run.qids), np.float64)


def _label_files(
    options: CompareOptions, name: str, score_files: Sequence[str], folds: Sequence[str]
) -> Sequence[str | None]:
    """Return the file of ``qrels`` or ``data`` for each fold; None means the run's test lists."""
    if options.data is not None and options.qrels is not None:
        raise ConfigError("data and qrels are both set: leave out one of them")
    key = "data" if options.qrels is None else "qrels"
    label_files: Sequence[str | None] = options.label_files or [None] * len(folds)
    for files_key, files in (("scores", score_files), (key, label_files)):
        if len(files) != len(folds):
            raise ConfigError(
                f"{files_key}: expected a file for each of the {len(folds)} folds, in the order "
                f"{', '.join(folds)}, got {len(files)}: write 'scores={{{name}:[FILE,FILE]}}' and "
                f"'{key}=[FILE,FILE]'"
            )
    return label_files


def _measure_files(
    score_files: Mapping[str, Sequence[str]], metric: str, options: CompareOptions
) -> _Measurements:
    """Measure files of scores that are compared with each other, without any run."""
    from ltr.inference.scores_file import measure_lists  # imports torch
    from ltr.metrics import Convention

    names = options.conventions or ("paper" if options.qrels is None else "trec",)
    if len(names) > 1:
        raise ConfigError(f"convention={','.join(names)}: choose one convention")
    label_files = options.label_files
    folds = [f"fold {number}" for number, _ in enumerate(label_files, 1)] if label_files[1:] else []
    scored = {
        name: _read_scores(name, files, folds or [""], options)
        for name, files in score_files.items()
    }
    largest = max(float(lists.labels.max()) for pairs in scored.values() for lists, _ in pairs)
    convention = Convention(**convention_keys(names[0]), levels=levels_for(largest))
    values = {
        name: [
            pd.Series(measure_lists(lists, scores, metric, convention), lists.qids)
            for lists, scores in pairs
        ]
        for name, pairs in scored.items()
    }
    return _Measurements(
        values=_join_by_query(values, folds or [""]),
        data=", ".join(label_files),
        folds=folds,
        convention=convention.describe(),
    )


def _read_scores(
    name: str, files: Sequence[str], folds: Sequence[str], options: CompareOptions
) -> list[tuple[Any, Any]]:
    """Read the scores of the ranker ``name``; return the lists and the scores of each fold."""
    from ltr.inference.scores_file import read_scored  # imports torch
    from ltr.inference.trec import read_trec_run

    read: Any = read_scored if options.qrels is None else read_trec_run
    label_files = _label_files(options, name, files, folds)
    return [
        read(Path(file), Path(str(label_file)))
        for file, label_file in zip(files, label_files, strict=True)
    ]


def _join_by_query(
    values: Mapping[str, Sequence[pd.Series]], folds: Sequence[str]
) -> dict[str, SystemValues]:
    """Align the values of each fold by query id; a value is NaN where a TREC run lacks a query.

    Args:
        values: for each ranker, the values of each fold, with the query ids as index.
        folds: the names of the folds.
    """
    by_fold: dict[str, dict[Hashable, Sequence[QueryValues]]] = {name: {} for name in values}
    for number, fold in enumerate(folds):
        fold_values = {name: series[number] for name, series in values.items()}
        qids = list(dict.fromkeys(qid for series in fold_values.values() for qid in series.index))
        for name, series in fold_values.items():
            by_fold[name][fold] = [(qids, np.asarray(series.reindex(qids), np.float64))]
    return {name: join_folds(fold_queries) for name, fold_queries in by_fold.items()}
