"""Write the page that explains a list, and its numbers."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from ltr.analysis.report import Report, page, terminal
from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.configs import CONFIGS
from ltr.console.folders import register_resolvers, run_folder
from ltr.console.keys import whole
from ltr.errors import as_started
from ltr.experiment.run_folder import RunFolder
from ltr.inference.explain.effects import (
    Attributions,
    attributions_of,
    leave_one_out,
    permutation_importance,
)
from ltr.inference.explain.page import (
    effects_section,
    importance_section,
    list_section,
    parts_section,
)
from ltr.inference.explain.subject import Subject, subject_of
from ltr.training.evaluation import metrics_of_scores

_SHOWN = 15  # features of a table where ``features`` names columns
_PLACES = ("defaults", "hydra", "output", "output_dir", "cache_dir")  # the same from any of them


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
    run = run_folder(str(cfg.checkpoint))
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{run.name}-qid-{cfg.qid}")
    folder = Path(cfg.output or Path(cfg.output_dir, "explained", name))
    frames = {name: one.frame for name, one in sections.items() if one.frame is not None}
    report = Report(
        name=folder.name,
        title=f"list {cfg.qid} of {subject.name}",
        command=_command(cfg),
        facts=_facts(cfg, subject, parts, lists),
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


def _command(cfg: DictConfig) -> str:
    """The command that explains the same: the keys that are not as the config has them."""
    defaults: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "explain.yaml"))
    words = []
    for key in (key for key in defaults if key not in _PLACES and cfg[key] != defaults[key]):
        listed, value = OmegaConf.is_list(cfg[key]), cfg[key]
        words.append(f"{key}=[{','.join(map(str, value))}]" if listed else f"{key}={value}")
    return f"{as_started('explain')} {shlex.join(words)}"


def _facts(
    cfg: DictConfig, subject: Subject, parts: Attributions | None, lists: int
) -> list[tuple[str, str]]:
    run, model = RunFolder(run_folder(str(cfg.checkpoint))), subject.scorer.model
    chosen = run.results.get("choices", {}).get("model") if run.finished else None
    place = f"{subject.split or subject.name}, {len(subject.scores)} items"
    facts = {
        "run": str(cfg.checkpoint),
        "model": chosen or type(getattr(model, "model", model)).__name__,
        "list": f"qid {cfg.qid} of {place}",
    }
    if subject.split is not None:
        metric, convention = subject.metric, subject.convention
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
    return [*facts.items()]
