"""Compare finished runs by system: the runs whose configs differ only in seed and fold."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from omegaconf import DictConfig

from ltr.analysis.report import FORMS, NO_TEST, Block, Report, terminal
from ltr.analysis.systems import runs_frame, side_by_side, values_of
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
from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.configs import own_keys
from ltr.console.keys import number, text, texts, whole
from ltr.errors import ConfigError, as_started
from ltr.experiment.run_folder import NO_TEST_SPLIT, NO_TEST_VERDICT, RunFolder, find_runs


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
    paths = texts(cfg, "runs")
    if not paths:
        raise ConfigError(
            "give run folders, or folders that hold runs, such as outputs/<sweep>; see --help"
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


def findings_of(runs: Sequence[RunFolder], cfg: DictConfig) -> Findings:
    """Compare ``runs``, and the files of scores in ``cfg``, with the settings in ``cfg``.

    Raises:
        ConfigError, DataError: a setting is wrong, or the runs cannot be compared.
    """
    selected = sorted({str(run.results["select_on"]) for run in runs})
    metric = text(cfg, "metric") or selected[0]
    if cfg.metric is None and selected[1:]:
        raise ConfigError(f"the runs were selected on {' and '.join(selected)}: give metric=NAME")
    cells = runs_frame(runs, metric)
    groups = {str(name): of.droplevel(0) for name, of in cells.groupby(level=0, sort=False)}
    values = {name: values_of(of, metric) for name, of in groups.items()}
    scores = _scores(cfg)
    for name, files in scores.items():
        if name in values:
            raise ConfigError(f"scores: {name} is a system of the runs: give it another name")
        values[name] = _measured(cells.iloc[0], name, files, metric, cfg)
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
    aligned, folds = align(values), [fold for fold in cells if fold]
    where = f" of {len(folds)} folds" if len(folds) > 1 else "".join(f", {f}" for f in folds)
    places = "runs", "write", "data_dir", "cache_dir"
    changed = [
        f"{key}={cfg[key]}"
        for key, usual in own_keys("compare").items()
        if key not in places and cfg[key] != usual
    ]
    words = [*texts(cfg, "runs"), *changed]
    notes = _notes(systems, pairs, None if cfg.published is None else number(cfg, "published"))
    split, worth = runs[0].split, dict[str, float]()
    if split == "vali":
        notes.insert(0, f"{NO_TEST_SPLIT}; {NO_TEST_VERDICT}")
        if cfg.published is not None:
            notes.insert(1, f"published={cfg.published} is compared with values of vali")
        worth = {name: _crossfit(of, metric) for name, of in groups.items()}
    if aligned.dropped:
        notes.append(f"{aligned.dropped} queries that the convention skips are left out")
    report = Report(
        name="compare",
        title=f"{metric} on {runs[0].results['dataset']}, {split}: {aligned.queries:,} queries"
              f"{where}",
        command=f"{as_started('compare')} {shlex.join(words)}",
        facts=[*_facts([run.results for run in runs]),
               *(("scores", f"{name} of {', '.join(files)}") for name, files in scores.items())],
        blocks=_blocks(systems, pairs, metric, draws["alpha"], worth),
        notes=[*notes, runs[0].convention[1]],
    )  # fmt: skip
    return Findings(report, systems, pairs, split)


def _facts(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the head of the report: which epoch's weights, seeds and commits, from the results."""
    best = {f"best epoch by {one['select_on']} of vali" if one["select"] == "best" else "last epoch"
            for one in runs}  # fmt: skip
    return [
        ("weights", ", ".join(sorted(best))),
        ("seeds", " ".join(map(str, sorted({one["seed"] for one in runs})))),
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


def _measured(
    of_fold: pd.Series, name: str, files: Sequence[str], metric: str, cfg: DictConfig
) -> SystemValues:
    """Measure a ranker that is not a run.

    ``files`` are its scores, one file for each fold in ``of_fold``, which maps a fold to a run with
    the test lists and the convention to use.
    """
    from ltr.analysis.scores_file import values_of_scores  # imports torch, not needed for runs

    if "." in metric and cfg.metric is None:
        raise ConfigError(
            f"the runs were selected on {metric}, a function of someone's own: to measure scores "
            f"by it, which imports its module, give metric={metric}"
        )
    named = [Path(file) for file in texts(cfg, "data")]
    data: Sequence[Path | None] = named or [None] * len(of_fold)
    for key, given in (("scores", files), ("data", data)):
        if len(given) != len(of_fold):
            raise ConfigError(
                f"{key}: {len(given)} files for {len(of_fold)} folds: give one for each, in the "
                f"order {', '.join(of_fold.index)}, such as 'scores={{{name}:[FILE,FILE]}}' and "
                "'data=[FILE,FILE]'"
            )
    places = {key: str(cfg[key]) for key in ("data_dir", "cache_dir") if cfg[key] is not None}
    folds = {}
    for (fold, run), file, scored in zip(of_fold.items(), files, data, strict=True):
        found = values_of_scores(Path(file), run, metric, data=scored, places=places)
        folds[fold] = [(run.queries["qid"], found)]
    return side_by_side(folds)
