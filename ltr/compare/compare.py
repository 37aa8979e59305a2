"""Compare finished runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.compare.findings import Findings, report, write_plot
from ltr.compare.systems import System, find_runs, group, values_of
from ltr.console.values import number, text, texts, whole
from ltr.errors import ConfigError
from ltr.experiment.provenance import mixed, short_commit
from ltr.experiment.run_folder import RunFolder
from ltr.statistics import align, compare_seeds, compare_systems, interval_of
from ltr.whole import make_folder, write_whole


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
    )


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
        parts.append("write=FOLDER keeps this with the p of every test, and draws it")
    else:
        folder = Path(order.write)
        make_folder("write", folder)
        markdown = folder / "compare.md"
        write_whole(markdown, report(findings, markdown=True) + "\n")
        paths = [markdown, *write_plot(findings, folder)]
        parts.append(f"kept in {folder} ({', '.join(path.name for path in paths)})")
    return "\n\n".join(parts)


def findings_of(runs: Sequence[RunFolder], order: Order) -> Findings:
    """Compare ``runs`` as ``order`` asks."""
    metric = order.metric or _selected_on(runs)
    systems = group(runs)
    values = {system.name: values_of(system, metric) for system in systems}
    draws: Any = {"seed": order.seed, "samples": order.samples, "alpha": order.alpha}
    if len(values) == 1:
        (only,) = values.values()
        pairs = compare_seeds(only, margin=order.margin, **draws)
    else:
        baseline = None if order.baseline is None else _baseline(order.baseline, systems)
        pairs = compare_systems(values, margin=order.margin, baseline=baseline, **draws)
    repeats = sorted({run.repeat for run in runs if run.repeat})
    where = f" of {len(repeats)} folds" if len(repeats) > 1 else "".join(f", {r}" for r in repeats)
    aligned = align(values)
    dataset = runs[0].results["dataset"]
    return Findings(
        title=f"{metric} on {dataset}, test: {aligned.queries:,} queries{where}",
        made=_made(systems),
        convention=runs[0].convention,
        metric=metric,
        systems={name: interval_of(of, name=name, **draws) for name, of in values.items()},
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


def _baseline(given: str, systems: Sequence[System]) -> str:
    names = [system.name for system in systems]
    found = [name for name in names if name == given] or [name for name in names if given in name]
    if len(found) != 1:
        what = "no system" if not found else f"{len(found)} systems"
        raise ConfigError(
            f"baseline={given} is {what}: choose of {' | '.join(names)}, or a part that only one "
            "of them has"
        )
    return found[0]
