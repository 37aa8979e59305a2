"""Write the page that explains a list, and its numbers."""

import re
import shlex
from pathlib import Path

import numpy as np
from omegaconf import DictConfig, OmegaConf

from ltr.analysis.report import Report, page, terminal
from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.folders import register_resolvers
from ltr.console.values import whole
from ltr.errors import as_started
from ltr.inference.explain.attributions import Attributions, attributions_of
from ltr.inference.explain.effects import leave_one_out, permutation_importance
from ltr.inference.explain.page import (
    effects_section,
    importance_section,
    list_section,
    parts_section,
)
from ltr.inference.explain.subject import Subject, subject_of
from ltr.training.evaluation import metrics_of_scores

_SHOWN = 15  # features of a table
_DEFAULTS = {
    "split": "vali", "input": None, "regroup": False, "query": None, "id": None, "header": None,
    "names": None, "items": None, "top": 10, "features": _SHOWN, "lists": 100, "seed": 0,
}  # fmt: skip


def explain(cfg: DictConfig) -> str:
    """Explain the list ``cfg.qid`` (``configs/explain.yaml``); return the tables as text.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    shown = _SHOWN if OmegaConf.is_list(cfg.features) else whole(cfg, "features", least=1)
    lists = whole(cfg, "lists", least=0) if cfg.input is None else 0
    seed = whole(cfg, "seed", least=0)
    register_resolvers()  # the run's config needs them
    subject, items = subject_of(cfg), int(cfg.evaluation_items)
    parts = attributions_of(subject, items=items)
    sections = {"items": list_section(subject)}
    if parts is not None:
        sections["parts of scores"] = parts_section(subject, parts, shown)
    if not subject.pointwise:
        effects = leave_one_out(subject, items=items)
        sections["leave one out"] = effects_section(subject, effects)
    if lists:
        table = permutation_importance(subject, lists=lists, seed=seed, items=items)
        sections["permutation importance"] = importance_section(subject, table, shown)
    folder = _folder(cfg, subject)
    frames = {name: one.frame for name, one in sections.items() if one.frame is not None}
    report = Report(
        name=folder.name,
        title=f"list {subject.qid} of {subject.name}",
        command=_command(cfg),
        facts=_facts(subject, parts, lists),
        blocks=tuple(section.block for section in sections.values()),
        ours="one trained model",
        pictures=[one.picture for one in sections.values() if one.picture is not None],
        details=[*frames.items()],
    )
    make_folder("output", folder)
    atomic_write(folder / "page.html", page(report))
    files = ["page.html", *(f"{name.replace(' ', '_')}.csv" for name in frames)]
    for file, frame in zip(files[1:], frames.values(), strict=True):
        write_frame(folder / file, frame)
    return f"{terminal(report)}\nkept in {folder} ({', '.join(files)})"


def _folder(cfg: DictConfig, subject: Subject) -> Path:
    if cfg.output is not None:
        return Path(cfg.output)
    run = Path(subject.checkpoint)
    name = run.parent.name if run.suffix == ".pt" else run.name
    words = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{name}-qid-{subject.qid}")
    return Path(cfg.output_dir, "explained", words)


def _command(cfg: DictConfig) -> str:
    """The command that explains the same."""
    words = [f"checkpoint={cfg.checkpoint}", f"qid={cfg.qid}"]
    for key, default in _DEFAULTS.items():
        if (value := cfg[key]) != default:
            listed = OmegaConf.is_list(value)
            words.append(f"{key}=[{','.join(map(str, value))}]" if listed else f"{key}={value}")
    return f"{as_started('explain')} {shlex.join(words)}"


def _facts(subject: Subject, parts: Attributions | None, lists: int) -> tuple[tuple[str, str], ...]:
    metric, convention, place = subject.metric, subject.convention, subject.split or subject.name
    facts = {
        "run": subject.checkpoint,
        "model": subject.model_name,
        "list": f"qid {subject.qid} of {place}, {len(subject.scores)} items",
    }
    if subject.split is not None:
        values = metrics_of_scores(subject.data, subject.scores, [metric], convention)
        words = convention.describe(metric.parts)
        facts[str(metric)] = f"{values[str(metric)][0]:.4f} ({words})"
    if parts is None:
        facts["features"] = (
            "no parts of single scores: such a model has none; an ensemble's members can be "
            "explained one by one"
        )
    else:
        facts["features"] = parts.method
        facts["completeness"] = (
            f"baseline plus all parts miss the score by {parts.error:.2g} at most (largest score "
            f"{np.abs(parts.scores).max():.3g})"
        )
    facts["other items"] = "each left out of the list, one at a time"
    if subject.pointwise:
        facts["other items"] = "no effect: the model scores items one by one"
    if lists:
        count = min(lists, len(subject.lists))
        facts["permutation"] = f"each feature shuffled within the lists, {count} lists"
    return tuple(facts.items())
