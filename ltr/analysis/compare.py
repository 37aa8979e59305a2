"""Compare finished runs by system: the runs whose configs differ only in seed and fold."""

import math
import shlex
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from ltr.analysis.report import FORMS, NO_TEST, Block, Report, terminal
from ltr.analysis.systems import OfQueries, runs_frame, side_by_side, values_of
from ltr.analysis.values import SystemValues, align
from ltr.analysis.verdicts import (
    COVERS,
    Comparison,
    SystemInterval,
    compare_systems,
    interval_of,
    leaders,
    rule,
)  # fmt: skip
from ltr.atomic import atomic_write, make_folder, safe_cell, write_frame
from ltr.console.configs import files_of, own_keys
from ltr.console.keys import number, text, texts, whole
from ltr.errors import ConfigError, as_started
from ltr.experiment.run_folder import (
    NO_TEST_SPLIT,
    NO_TEST_VERDICT,
    RESULTS,
    RunFolder,
    find_runs,
)
from ltr.knobs import levels_for


class Findings(NamedTuple):
    """The result of a comparison: a report, the interval of each system, all pairs, the split."""

    report: Report
    systems: Mapping[str, SystemInterval]
    pairs: Sequence[Comparison]
    split: str  # the split that the runs are measured on


def compare(cfg: DictConfig) -> str:
    """Compare the runs that ``cfg`` names, write the files that it asks for, and return the report.

    Raises:
        ConfigError, DataError: one line that says what to correct.
    """
    _take_files_as_scores(cfg)
    paths = texts(cfg, "runs")
    if not paths and (cfg.scores is None or (cfg.data is None) == (cfg.qrels is None)):
        raise ConfigError(
            "give run folders, or folders that hold runs, such as outputs/<sweep>; or scores= "
            "with data= (LETOR text) or qrels= (for runs of TREC); see --help"
        )
    runs, unfinished = find_runs(paths)
    found = findings_of(runs, cfg)
    parts = [terminal(found.report)]
    if unfinished:
        parts.append(f"not finished, left out: {', '.join(map(str, unfinished))}\n")
    if cfg.write is None:
        parts.append("write=FOLDER keeps this and has the p of every test; write=FILE "
                     "that ends in .tex, .md, .html or .csv writes that alone")  # fmt: skip
    else:
        parts.append(f"kept in {_write(found, Path(str(cfg.write)))}")
    return "\n".join(parts)


def _write(found: Findings, place: Path) -> str:
    """Write one file if ``place`` ends in .html, .md, .tex or .csv, else a folder; return where."""
    table = frame(found.pairs).assign(split=found.split)
    if place.suffix not in {*FORMS, ".csv"}:
        return f"{place} ({', '.join(found.report.write(place, 'compare', {'compare': table}))})"
    make_folder("write", place.parent)
    if place.suffix == ".csv":
        write_frame(place, table)
    else:
        atomic_write(place, FORMS[place.suffix](found.report))
    return str(place)


def _none_first(seed: int | None) -> tuple[bool, int]:
    """Return a key to sort seeds by; None (an ensemble of several seeds) comes first."""
    return seed is not None, seed or 0


def findings_of(runs: Sequence[RunFolder], cfg: DictConfig) -> Findings:
    """Compare ``runs``, and the files of scores in ``cfg``, with the settings in ``cfg``.

    Raises:
        ConfigError, DataError: a setting is wrong, or the runs cannot be compared.
    """
    metric = _metric(runs, cfg)
    scores = _scores(cfg)
    if runs:
        if cfg.get("metrics_as"):
            raise ConfigError("metrics_as: scores are measured as the runs were; leave it out")
        cells = runs_frame(runs, metric)
        groups = {str(name): of.droplevel(0) for name, of in cells.groupby(level=0, sort=False)}
        measure = partial(_remeasured, metric=metric, cfg=cfg)
        values = {name: values_of(of, metric, measure) for name, of in groups.items()}
        folds = [str(fold) for fold in cells if fold]
        data = str(runs[0].results["dataset"])
        convention = runs[0].convention[1]
        for name, files in scores.items():
            if name in values:
                raise ConfigError(f"scores: {name} is a system of the runs: give it another name")
            values[name] = _measured(cells.iloc[0], name, files, metric, cfg)
    else:
        files = texts(cfg, "data" if cfg.qrels is None else "qrels")
        data = ", ".join(files)
        folds = [f"fold {number}" for number, _ in enumerate(files, 1)] if files[1:] else []
        values, convention = _measured_alone(scores, folds or [""], metric, cfg)
    draws: Any = {
        "seed": whole(cfg, "seed", least=0),
        "samples": whole(cfg, "samples", least=100),
        "alpha": number(cfg, "alpha"),
    }
    margin, baseline = number(cfg, "margin"), text(cfg, "baseline")
    if baseline is not None and baseline not in values:
        alike = [name for name in values if baseline in name]
        if len(alike) != 1:
            raise ConfigError(f"baseline={baseline}: choose one of {' | '.join(values)}")
        baseline = alike[0]
    pairs = compare_systems(values, margin=margin, baseline=baseline, **draws)
    systems = {name: interval_of(of, metric, **draws) for name, of in values.items()}
    aligned = align(values)
    where = f" of {len(folds)} folds" if len(folds) > 1 else "".join(f", {f}" for f in folds)
    places = "runs", "write", "data_dir", "cache_dir", "metrics_as"
    changed = [
        f"{key}={cfg[key]}"
        for key, usual in own_keys("compare").items()
        if key not in places and cfg[key] != usual
    ]
    if cfg.get("metrics_as"):
        changed.append(f"metrics_as={','.join(cfg.metrics_as)}")
    words = [*texts(cfg, "runs"), *changed]
    notes = _notes(systems, pairs, None if cfg.published is None else number(cfg, "published"))
    split, worth = runs[0].split if runs else "test", dict[str, float]()
    if split == "vali":
        notes.insert(0, f"{NO_TEST_SPLIT}; {NO_TEST_VERDICT}")
        if cfg.published is not None:
            notes.insert(1, f"published={cfg.published} is compared with values of vali")
        worth = {name: _crossfit(of, metric) for name, of in groups.items()}
    if aligned.dropped:
        notes.append(
            f"{aligned.dropped} queries that the convention skips, or that a file lacks, are "
            "left out"
        )
    report = Report(
        name="compare",
        title=f"{metric} on {data}, {split}: {aligned.queries:,} queries{where}",
        command=f"{as_started('compare')} {shlex.join(words)}",
        facts=[*(_facts([run.results for run in runs]) if runs else ()),
               *(("scores", f"{name} of {', '.join(files)}") for name, files in scores.items())],
        blocks=_blocks(systems, pairs, metric, draws["alpha"], worth),
        notes=[*notes, convention],
    )  # fmt: skip
    return Findings(report, systems, pairs, split)


def _take_files_as_scores(cfg: DictConfig) -> None:
    """Move the files among ``cfg.runs`` that are not of runs to ``cfg.scores``."""
    paths = texts(cfg, "runs")
    files = [path for path in paths if Path(path).is_file() and Path(path).name != RESULTS]
    if files and not isinstance(cfg.scores, DictConfig):
        cfg.scores = [*files, *texts(cfg, "scores")]
        cfg.runs = [path for path in paths if path not in files]


def _metric(runs: Sequence[RunFolder], cfg: DictConfig) -> str:
    """Return the metric by which systems are compared."""
    if cfg.metric is not None:
        return str(cfg.metric)
    selected = sorted({str(run.results["select_on"]) for run in runs})
    if len(selected) == 1:
        return selected[0]
    if not selected:
        raise ConfigError("give metric=NAME, such as metric=ndcg@10: files of scores name none")
    raise ConfigError(f"the runs were selected on {' and '.join(selected)}: give metric=NAME")


def _facts(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the head of the report: which epoch's weights, seeds and commits, from the results."""
    best = {f"best epoch by {one['select_on']} of vali" if one["select"] == "best" else "last epoch"
            for one in runs}  # fmt: skip
    return [
        ("weights", ", ".join(sorted(best))),
        ("seeds", " ".join(map(str, sorted({one["seed"] for one in runs}, key=_none_first)))),
        ("commit", ", ".join(dict.fromkeys(one.get("commit") or "unknown" for one in runs))),
    ]


def _crossfit(runs: pd.DataFrame, metric: str) -> float:
    """Return the mean crossfit of ``metric`` over the ``runs`` of a system; NaN if unknown."""
    every = [run.results for of_fold in runs.to_numpy() for run in of_fold]
    if any(one["select_on"] != metric or one.get("crossfit") is None for one in every):
        return math.nan
    return sum(float(one["crossfit"]) for one in every) / len(every)


def _blocks(
    systems: Mapping[str, SystemInterval],
    pairs: Sequence[Comparison],
    metric: str,
    alpha: float,
    worth: Mapping[str, float],
) -> list[Block]:
    """Return the table of the systems and, if there are pairs, the table of their differences.

    ``worth`` has the crossfit of each system that is measured on vali.
    """
    sure = f"{1 - alpha:.0%} interval"
    head = ["", "seeds", metric, sure, "sd of seeds", "interval covers"]
    rows = [
        [
            name, str(of.seeds), f"{of.mean:.4f}", f"{of.low:.4f} to {of.high:.4f}",
            "" if math.isnan(of.deviation) else f"{of.deviation:.4f}", COVERS[of.spread.covers],
        ]
        for name, of in systems.items()
    ]  # fmt: skip
    if worth:
        head.append("crossfit")
        for row in rows:
            value = worth.get(row[0], math.nan)
            row.append("" if math.isnan(value) else f"{value:.4f}")
    best = [(name, metric) for name in leaders(systems, pairs)]
    first = Block("Systems", "", head, rows, best)
    head = ["", "verdict", "against", "difference", sure, "p", "wins/ties/losses", "resolves"]
    rows = [
        [
            pair.first, pair.word, pair.second, f"{pair.difference:+.4f}",
            "{:+.4f} to {:+.4f}".format(*pair.interval),
            "<0.0001" if pair.p_holm < 0.0001 else f"{pair.p_holm:.4f}",
            f"{pair.wins}/{pair.ties}/{pair.losses}", f"{pair.resolvable():.4f}",
        ]
        for pair in pairs
    ]  # fmt: skip
    if not pairs:
        return [first]
    return [
        first,
        Block(
            "Differences",
            "p has Holm's correction; wins/ties/losses count the queries on which the first is "
            "better, equal or worse; resolves is the true difference found in 80% of such tests",
            head,
            rows,
        ),
    ]


def _notes(
    systems: Mapping[str, SystemInterval], pairs: Sequence[Comparison], published: float | None
) -> list[str]:
    """Return the notes below the tables, such as the rule for verdicts and what is not covered."""
    notes = [
        f"{pair.first}, {pair.word}, {pair.second}: {pair.note}" for pair in pairs if pair.note
    ]
    if published is not None:
        notes += [
            f"{name}: ours {of.mean:.4f} ({of.low:.4f} to {of.high:.4f}) "
            f"{of.covers(published)} {published:.4f}"
            for name, of in systems.items()
        ]
        notes.append(NO_TEST)
    if pairs:
        first, count = pairs[0], len(pairs)
        resolved = [max(pair.resolvable(pairs=n) for pair in pairs) for n in (1, count)]
        notes += [
            rule(first.margin, first.alpha),
            f"{first.queries} queries resolve (80% power, alpha {first.alpha:g}) a true difference "
            f"of {resolved[0]:.4f} in each pair, {resolved[1]:.4f} at Holm's first step of {count}",
        ]
    if any(pair.spread.uncovered for pair in pairs):
        folds = any(pair.spread.covers == "folds" for pair in pairs)
        what = "what the folds have in common" if folds else "what another training would give"
        notes.append(
            f"NOT COVERED of systems with one seed: {what}; the words are about these "
            "trained models, not the methods; train 3 seeds or more"
        )
    return [*notes, "not covered: other data, and settings chosen by looking at these queries"]


def frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Return a frame with one line per pair and all its numbers, for ``compare.csv``."""
    ends = "low", "high", "inner_low", "inner_high"
    rows = [
        vars(pair) | dict(zip(ends, pair.interval + pair.inner, strict=True))
        | {"word": pair.word, "note": pair.note, "error": pair.spread.error, "df": pair.spread.df,
           "covers": pair.spread.covers, "resolves": pair.resolvable()}
        for pair in pairs
    ]  # fmt: skip
    nested = ["interval", "inner", "spread", "p_queries"]
    return pd.DataFrame(rows).drop(columns=nested, errors="ignore")


def _scores(cfg: DictConfig) -> dict[str, tuple[str, ...]]:
    """Return name (by default that of the file) -> files, for each ranker that is not a run."""
    if isinstance(cfg.scores, DictConfig):
        return {str(name): texts(cfg.scores, str(name)) for name in cfg.scores}
    files = texts(cfg, "scores")
    named: dict[str, tuple[str, ...]] = {Path(file).stem: (file,) for file in files}
    if len(named) < len(files):
        raise ConfigError("scores: two files of one name: name them, 'scores={a:FILE,b:FILE}'")
    return named


def _remeasured(run: RunFolder, *, metric: str, cfg: DictConfig) -> OfQueries:
    """Compute a metric that ``run`` did not, from the scores that it keeps."""
    from ltr.analysis.scores_file import values_of_kept_scores  # imports torch

    return run.qids, values_of_kept_scores(run, metric, _places(cfg))


def _places(cfg: DictConfig) -> dict[str, str]:
    return {key: str(cfg[key]) for key in ("data_dir", "cache_dir") if cfg[key] is not None}


def _measured(
    of_fold: pd.Series, name: str, files: Sequence[str], metric: str, cfg: DictConfig
) -> SystemValues:
    """Measure a ranker that is not a run.

    ``files`` are its scores, one file for each fold in ``of_fold``, which maps a fold to a run with
    the test lists and the convention to use.
    """
    from ltr.analysis.scores_file import measured, values_of_scores  # imports torch
    from ltr.analysis.trec import read_run
    from ltr.metrics import Convention

    if "." in metric and cfg.metric is None:
        raise ConfigError(
            f"the runs were selected on {metric}, a function of someone's own: to measure scores "
            f"by it, which imports its module, give metric={metric}"
        )
    beside = _files_beside(cfg, name, files, [*of_fold.index])
    folds = {}
    for (fold, run), file, other in zip(of_fold.items(), files, beside, strict=True):
        if cfg.qrels is not None:
            lists, ranked = read_run(Path(file), Path(str(other)))
            values = measured(lists, ranked, metric, Convention(**run.convention[0]))
            by_query = pd.Series(values, [safe_cell(str(qid)) for qid in lists.qids])
            if pd.Index(run.qids).has_duplicates:
                raise ConfigError(f"qrels: {run.folder} has two test lists of one query id")
            found = np.asarray(by_query.reindex(run.qids), np.float64)
        else:
            scored = None if other is None else Path(other)
            found = values_of_scores(Path(file), run, metric, data=scored, places=_places(cfg))
        folds[fold] = [(run.qids, found)]
    return side_by_side(folds)


def _files_beside(
    cfg: DictConfig, name: str, files: Sequence[str], folds: Sequence[str]
) -> Sequence[str | None]:
    """Return for each fold the file of ``qrels`` or ``data``, None: the test lists of the run."""
    if cfg.data is not None and cfg.qrels is not None:
        raise ConfigError("data, qrels: give one of them")
    key = "data" if cfg.qrels is None else "qrels"
    beside: Sequence[str | None] = texts(cfg, key) or [None] * len(folds)
    for what, given in (("scores", files), (key, beside)):
        if len(given) != len(folds):
            raise ConfigError(
                f"{what}: {len(given)} files for {len(folds)} folds: give one for each, in the "
                f"order {', '.join(folds)}, such as 'scores={{{name}:[FILE,FILE]}}' and "
                f"'{key}=[FILE,FILE]'"
            )
    return beside


def _measured_alone(
    scores: Mapping[str, Sequence[str]], folds: Sequence[str], metric: str, cfg: DictConfig
) -> tuple[dict[str, SystemValues], str]:
    """Measure rankers without any run; return their values, and the convention in words."""
    from ltr.analysis.scores_file import measured, read_scored  # imports torch
    from ltr.analysis.trec import read_run
    from ltr.metrics import Convention

    named = [*(cfg.get("metrics_as") or ["paper" if cfg.qrels is None else "trec"])]
    if len(named) > 1:
        raise ConfigError(f"metrics_as={','.join(named)}: choose one convention")
    keys: Any = OmegaConf.load(files_of("metrics_as")[named[0]])
    read: dict[str, list[tuple[Any, Any]]] = {}
    for name, files in scores.items():
        pairs = zip(files, _files_beside(cfg, name, files, folds), strict=True)
        read[name] = [
            read_scored(Path(file), Path(str(other)))
            if cfg.qrels is None
            else read_run(Path(file), Path(str(other)))
            for file, other in pairs
        ]
    largest = max(float(lists.labels.max()) for parts in read.values() for lists, _ in parts)
    convention = Convention(**keys, levels=levels_for(largest))
    values = {
        name: [
            pd.Series(measured(lists, of, metric, convention), lists.qids) for lists, of in parts
        ]
        for name, parts in read.items()
    }
    by_fold: dict[str, dict[Hashable, Sequence[OfQueries]]] = {name: {} for name in values}
    for place, fold in enumerate(folds):
        qids = list(dict.fromkeys(qid for parts in values.values() for qid in parts[place].index))
        for name, parts in values.items():  # NaN where a run of TREC lacks a query
            of_fold = np.asarray(parts[place].reindex(qids), np.float64)
            by_fold[name][fold] = [(qids, of_fold)]
    return {name: side_by_side(of) for name, of in by_fold.items()}, convention.describe()
