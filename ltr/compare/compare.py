"""Compare finished runs."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.compare.findings import Findings, frame, latex, report, write_plot
from ltr.compare.systems import System, folds_of, group, named_queries, values_of
from ltr.console.values import number, text, texts, whole
from ltr.errors import ConfigError
from ltr.experiment.provenance import mixed, short_commit
from ltr.experiment.run_folder import RunFolder, find_runs
from ltr.statistics.compare import compare_seeds, compare_systems, interval_of
from ltr.statistics.values import SystemValues, align


@dataclass(frozen=True)
class Order:
    """The arguments of ``scripts/compare.py``; ``configs/compare.yaml`` says what they mean."""

    paths: tuple[str, ...]
    metric: str | None
    margin: float
    alpha: float
    baseline: str | None
    published: float | None
    seed: int
    samples: int
    write: str | None
    # of rankers that are no run: name -> a file of scores for each fold
    scores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data: tuple[str, ...] = ()  # the file that was scored, for each fold; none: the runs' own lists
    places: Mapping[str, str] = field(default_factory=dict)  # of the runs' own lists


def compare_runs(cfg: DictConfig) -> str:
    """Which of the runs are better, as ``cfg`` of ``configs/compare.yaml`` asks."""
    return compare(compare_order(cfg))


def compare_order(cfg: DictConfig) -> Order:
    """The order in a config; ``ConfigError`` if no run is given or a value is wrong."""
    paths = texts(cfg, "runs")
    if not paths:
        raise ConfigError(
            "give run folders, or folders that hold runs, such as outputs/<sweep>; see --help"
        )
    return Order(
        paths=paths,
        metric=text(cfg, "metric"),
        margin=number(cfg, "margin"),
        alpha=number(cfg, "alpha"),
        baseline=text(cfg, "baseline"),
        published=None if cfg.published is None else number(cfg, "published"),
        seed=whole(cfg, "seed", least=0),
        samples=whole(cfg, "samples", least=0),
        write=text(cfg, "write"),
        scores=_scores(cfg),
        data=texts(cfg, "data"),
        places={key: str(cfg[key]) for key in ("data_dir", "cache_dir") if cfg[key] is not None},
    )


def _scores(cfg: DictConfig) -> dict[str, tuple[str, ...]]:
    """The files of each ranker; in a list each file is one, and names it."""
    if isinstance(cfg.scores, DictConfig):
        found = {str(name): texts(cfg.scores, str(name)) for name in cfg.scores}
        if empty := [name for name, files in found.items() if not files]:
            raise ConfigError(f"scores={{{empty[0]}: null}}: name a file of scores")
        return found
    files = texts(cfg, "scores")
    names = [Path(file).stem for file in files]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"scores: two files of the name {twice[0]}: name them, 'scores={{a:FILE,b:FILE}}'"
        )
    return {name: (file,) for name, file in zip(names, files, strict=True)}


def compare(order: Order) -> str:
    """Compare the runs of ``order``, write its files, and return the report.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    runs, unfinished = find_runs(order.paths)
    findings = findings_of(runs, order)
    parts = [report(findings)]
    if unfinished:
        parts.append(f"not finished, left out: {', '.join(map(str, unfinished))}")
    if order.write is None:
        parts.append(
            "write=FOLDER keeps this with the p of every test, and draws it; write=FILE.tex, .md "
            "or .csv writes that alone"
        )
    else:
        parts.append(f"kept in {_write(findings, Path(order.write))}")
    return "\n\n".join(parts)


def _write(findings: Findings, place: Path) -> str:
    """Write one file where ``place`` ends as one does, else all of them to that folder."""
    forms: dict[str, Callable[[Path], None]] = {
        ".md": lambda path: atomic_write(path, report(findings, markdown=True) + "\n"),
        ".tex": lambda path: atomic_write(path, latex(findings)),
        ".csv": lambda path: write_frame(path, frame(findings.pairs)),
    }
    if place.suffix in forms:
        make_folder("write", place.parent)
        forms[place.suffix](place)
        return str(place)
    make_folder("write", place)
    paths = [place / f"compare{ending}" for ending in (".md", ".tex")]
    for path in paths:
        forms[path.suffix](path)
    paths += write_plot(findings, place)
    return f"{place} ({', '.join(path.name for path in paths)})"


def findings_of(runs: Sequence[RunFolder], order: Order) -> Findings:
    """Compare ``runs`` as ``order`` asks."""
    metric = order.metric or _selected_on(runs)
    systems = group(runs, metric)
    values = {system.name: values_of(system, metric) for system in systems}
    for name, files in order.scores.items():
        if name in values:
            raise ConfigError(f"scores: {name} is a system of the runs: give it another name")
        values[name] = _measured(runs, name, files, metric, order)
    draws: Any = {"seed": order.seed, "samples": order.samples, "alpha": order.alpha}
    if len(values) == 1:
        (only,) = values.values()
        if len(only.values) < 2:
            raise ConfigError("one run of one system: give another seed of it, or another system")
        pairs = compare_seeds(only, margin=order.margin, **draws)
    else:
        baseline = None if order.baseline is None else _baseline(order.baseline, list(values))
        pairs = compare_systems(values, margin=order.margin, baseline=baseline, **draws)
    folds = [fold for fold in systems[0].folds if fold is not None]
    where = f" of {len(folds)} folds" if len(folds) > 1 else "".join(f", {f}" for f in folds)
    outside = [f"{name}: the scores of {', '.join(files)}" for name, files in order.scores.items()]
    aligned = align(values)
    dataset = runs[0].results["dataset"]
    return Findings(
        title=f"{metric} on {dataset}, test: {aligned.queries:,} queries{where}",
        made="\n".join([_made(systems), *outside]),
        convention=runs[0].convention,
        metric=metric,
        systems={name: interval_of(of, **draws) for name, of in values.items()},
        pairs=pairs,
        published=order.published,
        dropped=aligned.dropped,
        one_system=len(values) == 1,
    )


def _made(systems: Sequence[System]) -> str:
    """Weights, seeds and commits; systems whose runs are not of one commit are named."""
    runs = [(system.name, run.results) for system in systems for run in system.runs]
    rules, seeds = set(), set()
    commits: dict[str, set[str]] = {}  # commit -> systems
    for name, run in runs:
        best = f"best epoch by {run['select_on']} of vali"
        rules.add(best if run["select"] == "best" else "last epoch")
        seeds.add(run["seed"])
        commits.setdefault(run.get("commit") or "unknown", set()).add(name)
    lines = [
        f"weights: {', '.join(sorted(rules))}; seeds {' '.join(map(str, sorted(seeds)))}; "
        f"commit {', '.join(map(short_commit, commits))}"
    ]
    note = mixed(runs)
    lines += [f"NOTE {note}"] if note is not None else []
    for system in systems:
        count = sum(system.name in names for names in commits.values())
        if count > 1:
            lines.append(
                f"NOTE {system.name} is of {count} commits: seeds and code differ together and "
                "cannot be told apart; train all its seeds with one commit"
            )
    return "\n".join(lines)


def _selected_on(runs: Sequence[RunFolder]) -> str:
    metrics = sorted({str(run.results["select_on"]) for run in runs})
    if len(metrics) > 1:
        raise ConfigError(
            f"the runs were selected on {' and '.join(metrics)}: give metric=NAME, one of theirs"
        )
    return metrics[0]


def _measured(
    runs: Sequence[RunFolder], name: str, files: Sequence[str], metric: str, order: Order
) -> SystemValues:
    """``metric`` of the scores ``files`` of a ranker, a file for each fold of ``runs``."""
    from ltr.scoring.outside import values_of_scores  # torch, which runs alone do without

    if "." in metric and order.metric is None:
        raise ConfigError(
            f"the runs were selected on {metric}, a function of someone's own: to measure scores "
            f"by it, which imports its module, give metric={metric}"
        )
    fold_of = folds_of(runs)
    of_fold = {fold_of[run.repeat]: run for run in reversed(runs)}
    folds = sorted(of_fold, key=str)
    for key, given in (("scores", files), ("data", order.data)):
        if given and len(given) != len(folds):
            example = "data=[FILE,FILE]" if key == "data" else f"scores={{{name}:[FILE,FILE]}}"
            raise ConfigError(
                f"{key}: {len(given)} files for {len(folds)} folds: give one for each, in the "
                f"order {', '.join(map(str, folds))}, such as '{example}'"
            )
    blocks, queries = [], list[tuple[Hashable, str]]()
    for place, fold in enumerate(folds):
        run, data = of_fold[fold], Path(order.data[place]) if order.data else None
        file = Path(files[place])
        blocks.append(values_of_scores(file, run, metric, data=data, places=order.places))
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
