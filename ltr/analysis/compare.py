"""Compare finished runs."""

import math
import shlex
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from omegaconf import DictConfig

from ltr.analysis.report import FORMS, NO_TEST, Block, Report, terminal
from ltr.analysis.systems import folds_of, named_queries, runs_frame, values_of
from ltr.analysis.values import SystemValues, align
from ltr.analysis.verdicts import (
    BETTER,
    DIFFER,
    EQUIVALENT,
    WORSE,
    Comparison,
    SystemInterval,
    compare_seeds,
    compare_systems,
    interval_of,
    rule,
)
from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.compose import composed
from ltr.console.keys import number, text, texts, whole
from ltr.errors import ConfigError, as_started
from ltr.experiment.run_folder import RunFolder, find_runs, mixed, short_commit

_COVERS = {
    "seeds": "queries and seeds",
    "folds": "queries and trainings, by folds",
    "queries": "queries only",
}
_WHERE = {"covers": "covers", "above": "is above", "below": "is below"}
_JOINT = {
    BETTER: "is better than",
    WORSE: "is worse than",
    DIFFER: "differs from",
    EQUIVALENT: "is equivalent to",
}


class Findings(NamedTuple):
    """A comparison: its report, the interval of each system, and the pairs."""

    report: Report
    systems: Mapping[str, SystemInterval]
    pairs: Sequence[Comparison]


def compare(cfg: DictConfig) -> str:
    """Compare the runs of ``cfg`` (``configs/compare.yaml``), write its files, return the report.

    Raises:
        ConfigError, DataError: one line that says what to mend.
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
    """Write one file where ``place`` ends as one does, else all of them to that folder."""
    table = frame(found.pairs)
    if place.suffix not in {*FORMS, ".csv"}:
        return f"{place} ({', '.join(found.report.write(place, 'compare', {'compare': table}))})"
    make_folder("write", place.parent)
    if place.suffix == ".csv":
        write_frame(place, table)
    else:
        atomic_write(place, FORMS[place.suffix](found.report))
    return str(place)


def findings_of(runs: Sequence[RunFolder], cfg: DictConfig) -> Findings:
    """Compare ``runs`` as ``cfg`` asks."""
    metric = text(cfg, "metric") or _selected_on(runs)
    cells = runs_frame(runs, metric)
    groups = {str(name): of.droplevel(0) for name, of in cells.groupby(level=0, sort=False)}
    values = {name: values_of(of, metric) for name, of in groups.items()}
    scores = _scores(cfg)
    for name, files in scores.items():
        if name in values:
            raise ConfigError(f"scores: {name} is a system of the runs: give it another name")
        values[name] = _measured(runs, name, files, metric, cfg)
    draws: Any = {
        "seed": whole(cfg, "seed", least=0),
        "samples": whole(cfg, "samples", least=0),
        "alpha": number(cfg, "alpha"),
    }
    margin, (first, *others) = number(cfg, "margin"), values.values()
    if others:
        baseline = None if cfg.baseline is None else _baseline(str(cfg.baseline), list(values))
        pairs = compare_systems(values, margin=margin, baseline=baseline, **draws)
    elif len(first.values) > 1:
        pairs = compare_seeds(first, margin=margin, **draws)
    else:
        raise ConfigError("one run of one system: give another seed of it, or another system")
    systems = {name: interval_of(of, **draws) for name, of in values.items()}
    aligned, folds = align(values), [fold for fold in cells if fold]
    where = f" of {len(folds)} folds" if len(folds) > 1 else "".join(f", {f}" for f in folds)
    usual, places = composed("compare"), ("runs", "write", "data_dir", "cache_dir")
    given = [
        f"{key}={cfg[key]}"
        for key in map(str, usual)
        if key not in places and cfg[key] != usual[key]
    ]
    published = None if cfg.published is None else number(cfg, "published")
    sure = f"{1 - pairs[0].alpha:.0%} interval"
    notes = _notes(systems, pairs, published, one_system=not others)
    if aligned.dropped:
        notes.append(f"{aligned.dropped} queries that the convention skips are left out")
    report = Report(
        name="compare",
        title=f"{metric} on {runs[0].results['dataset']}, test: {aligned.queries:,} queries{where}",
        command=f"{as_started('compare')} {shlex.join([*texts(cfg, 'runs'), *given])}",
        facts=[*_facts(groups),
               *(("scores", f"{name} of {', '.join(files)}") for name, files in scores.items())],
        blocks=[_system_block(systems, metric, sure), _pair_block(pairs, sure)],
        notes=[*notes, runs[0].convention],
    )  # fmt: skip
    return Findings(report, systems, pairs)


def _facts(groups: Mapping[str, pd.DataFrame]) -> list[tuple[str, str]]:
    """Weights, seeds and commits; systems whose runs are not of one commit are named."""
    runs = [(name, run.results) for name, of in groups.items() for run in of.to_numpy().ravel()]
    best = {f"best epoch by {one['select_on']} of vali" if one["select"] == "best" else "last epoch"
            for _, one in runs}  # fmt: skip
    commits: dict[str, dict[str, str]] = {}
    for name, one in runs:
        commit = one.get("commit") or "unknown"
        commits.setdefault(name, {})[commit] = short_commit(commit)
    every = {key: short for of in commits.values() for key, short in of.items()}
    facts = [
        ("weights", ", ".join(sorted(best))),
        ("seeds", " ".join(map(str, sorted({one["seed"] for _, one in runs})))),
        ("commit", ", ".join(every.values())),
    ]
    facts += [("NOTE", note)] if (note := mixed(runs)) is not None else []
    return facts + [
        ("NOTE", f"{name} is of {len(of)} commits: seeds and code differ together and cannot be "
         "told apart; train all its seeds with one commit")
        for name, of in commits.items()
        if len(of) > 1
    ]  # fmt: skip


def _system_block(systems: Mapping[str, SystemInterval], metric: str, sure: str) -> Block:
    head = ["", "seeds", metric, sure, "sd of seeds", "interval covers"]
    rows = [
        [
            name,
            str(of.seeds),
            f"{of.mean:.4f}",
            f"{of.low:.4f} to {of.high:.4f}",
            "" if math.isnan(of.deviation) else f"{of.deviation:.4f}",
            _COVERS[of.spread.covers],
        ]
        for name, of in systems.items()
    ]
    return Block("Systems", "", head, rows).mark_best(systems, [metric])


def _pair_block(pairs: Sequence[Comparison], sure: str) -> Block:
    head = ["", "is", "than/to", "difference", sure, "p", "d_z", "wins/ties/losses", "resolves"]
    rows = [
        [
            pair.first,
            pair.word,
            pair.second,
            f"{pair.difference:+.4f}",
            f"{pair.interval[0]:+.4f} to {pair.interval[1]:+.4f}",
            "<0.0001" if pair.p_holm < 0.0001 else f"{pair.p_holm:.4f}",
            f"{pair.effect.value:+.2f} ({pair.effect.low:+.2f} to {pair.effect.high:+.2f})",
            f"{pair.wins}/{pair.ties}/{pair.losses}",
            f"{pair.resolvable():.4f}",
        ]
        for pair in pairs
    ]
    note = f"p after Holm; equivalent: within ±{pairs[0].margin:g}"
    return Block("Differences", note, head, rows)


def _notes(
    systems: Mapping[str, SystemInterval],
    pairs: Sequence[Comparison],
    published: float | None,
    *,
    one_system: bool,
) -> list[str]:
    """What the words leave out, the rule, what the queries resolve, what is not covered."""
    first = pairs[0]
    notes = [
        f"{pair.first} {_JOINT.get(pair.word, 'is undecided beside')} {pair.second}: {pair.note}"
        for pair in pairs
        if pair.note
    ]
    if published is not None:
        notes += [
            f"{name}: ours {of.mean:.4f} ({of.low:.4f} to {of.high:.4f}) "
            f"{_WHERE[of.covers(published)]} {published:.4f}"
            for name, of in systems.items()
        ]
        notes.append(NO_TEST)
    notes.append(rule(first.margin, first.alpha))
    count = len(pairs)
    one, all_pairs = (_span(pair.resolvable(pairs=n) for pair in pairs) for n in (1, count))
    notes.append(
        f"{first.queries} queries resolve (80% power, alpha {first.alpha:g}) a true difference of "
        f"{one}" + (f"; at Holm's first step of {count} pairs {all_pairs}" if count > 1 else "")
    )
    single = dict.fromkeys(name for pair in pairs for name in pair.spread.uncovered)
    if one_system:
        notes.append("these are seeds of one system, of which none can be better or worse")
    elif single:
        folds = any(pair.spread.covers == "folds" for pair in pairs)
        notes.append(
            f"NOT COVERED, one seed only of {', '.join(single)}: "
            + ("what the folds have in common, their first weights and most of their training lists"
               if folds else "what another training would give")
            + "; the words are about these trained models, not the methods; train 3 seeds or more"
        )  # fmt: skip
    return [*notes, "not covered: other data, and settings chosen by looking at these queries"]


def _span(values: Iterable[float]) -> str:
    """The least and the largest of ``values``."""
    ends = sorted(values)
    return " to ".join(dict.fromkeys(f"{end:.4f}" for end in (ends[0], ends[-1])))


def frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """A row per pair with every figure, for ``compare.csv``."""
    nested = ("interval", "inner", "effect", "spread", "p_queries", "one_system")
    rows = []
    for pair in pairs:
        row: dict[str, Any] = {
            "first": pair.first,
            "second": pair.second,
            "word": pair.word,
            "note": pair.note,
        }
        row |= {key: value for key, value in vars(pair).items() if key not in nested}
        named = {"": pair.interval, "inner_": pair.inner, "effect_": pair.effect[1:]}
        row |= {f"{a}{b}": x for a, ends in named.items()
                for b, x in zip(("low", "high"), ends, strict=True)}  # fmt: skip
        row |= {"effect": pair.effect.value, "error": pair.spread.error, "df": pair.spread.df}
        rows.append(row | {"covers": pair.spread.covers, "resolves": pair.resolvable()})
    return pd.DataFrame(rows)


def _scores(cfg: DictConfig) -> dict[str, tuple[str, ...]]:
    """The files of each ranker that is no run; in a list each file is one, and names it."""
    if isinstance(cfg.scores, DictConfig):
        return {str(name): texts(cfg.scores, str(name)) for name in cfg.scores}
    files = texts(cfg, "scores")
    named: dict[str, tuple[str, ...]] = {Path(file).stem: (file,) for file in files}
    if len(named) < len(files):
        raise ConfigError("scores: two files of one name: name them, 'scores={a:FILE,b:FILE}'")
    return named


def _selected_on(runs: Sequence[RunFolder]) -> str:
    metrics = sorted({str(run.results["select_on"]) for run in runs})
    if len(metrics) > 1:
        raise ConfigError(
            f"the runs were selected on {' and '.join(metrics)}: give metric=NAME, one of theirs"
        )
    return metrics[0]


def _measured(
    runs: Sequence[RunFolder], name: str, files: Sequence[str], metric: str, cfg: DictConfig
) -> SystemValues:
    """``metric`` of the scores ``files`` of a ranker, a file for each fold of ``runs``."""
    from ltr.analysis.scores_file import values_of_scores  # torch, which runs alone do without

    if "." in metric and cfg.metric is None:
        raise ConfigError(
            f"the runs were selected on {metric}, a function of someone's own: to measure scores "
            f"by it, which imports its module, give metric={metric}"
        )
    fold_of = folds_of(runs)
    of_fold = dict(sorted({fold_of[run.repeat]: run for run in reversed(runs)}.items()))
    named = [Path(file) for file in texts(cfg, "data")]
    data: Sequence[Path | None] = named or [None] * len(of_fold)
    for key, given in (("scores", files), ("data", data)):
        if len(given) != len(of_fold):
            raise ConfigError(
                f"{key}: {len(given)} files for {len(of_fold)} folds: give one for each, in the "
                f"order {', '.join(of_fold)}, such as 'scores={{{name}:[FILE,FILE]}}' and "
                "'data=[FILE,FILE]'"
            )
    places = {key: str(cfg[key]) for key in ("data_dir", "cache_dir") if cfg[key] is not None}
    blocks, queries = [], list[tuple[Hashable, str]]()
    for (fold, run), file, scored in zip(of_fold.items(), files, data, strict=True):
        blocks.append(values_of_scores(Path(file), run, metric, data=scored, places=places))
        queries += named_queries(fold, run.queries["qid"].tolist())
    return SystemValues(np.concatenate(blocks)[None], queries)


def _baseline(given: str, names: Sequence[str]) -> str:
    found = [name for name in names if name == given] or [name for name in names if given in name]
    if len(found) != 1:
        what = "no system" if not found else f"{len(found)} systems"
        raise ConfigError(
            f"baseline={given} is {what}: choose of {' | '.join(names)}, or a part that only one "
            "of them has"
        )
    return found[0]
