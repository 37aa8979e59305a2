"""The hooks of every run: log what is trained, check the search engine, write for TensorBoard."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.data.lists import Lists
from ltr.experiment.engines import check_engine
from ltr.models.rounds import RoundModel
from ltr.scorers.parts import Experiment, make_tracking
from ltr.scorers.scorer import Scorer
from ltr.training.device import describe_device
from ltr.training.distributed import is_main
from ltr.training.hooks import Hook, TensorBoard, TimeLeft

log = logging.getLogger(__name__)


def training_hooks(folder: Path, choices: Mapping[str, str]) -> list[Hook]:
    """Return the hooks of every training."""
    return [Introduction(choices), ExportTarget(), TensorBoard(folder), TimeLeft()]


def run_hooks(
    cfg: DictConfig, folder: Path, choices: Mapping[str, str], others: Sequence[Hook]
) -> list[Hook]:
    """Return the hooks of every run and, in the first process, the tracker's and ``others``."""
    hooks = training_hooks(folder, choices)
    return [*hooks, *make_tracking(cfg, folder, choices), *others] if is_main() else hooks


class Introduction(Hook):
    """Logs a line that says what is trained on which data."""

    def __init__(self, choices: Mapping[str, str]) -> None:
        """``choices`` maps each config group to its choice, such as ``{"loss": "listnet"}``."""
        self._choices = choices

    def start(
        self, cfg: Any, parts: Experiment, lists: Mapping[str, Lists], scorer: Scorer
    ) -> None:
        model, loss = (self._choices.get(group, group) for group in ("model", "loss"))
        about = f"{scorer.parameters:,} parameters"
        if isinstance(scorer.model, RoundModel):
            about = scorer.model.description
            if parts.loss is None:
                loss = f"its own objective {scorer.model.own_objective()}"
        fold = f" fold {parts.dataset.fold}" if parts.dataset.fold is not None else ""
        data = f"{parts.dataset.name}{fold}: lists " + ", ".join(
            f"{split} {len(part):,}" for split, part in lists.items()
        )
        where = describe_device(parts.device)
        log.info("%s", f"{model} ({about}) with {loss} on {data}; {where}")


class ExportTarget(Hook):
    """Ends a run before training if the engine ``cfg.for_engine`` cannot represent its model."""

    def start(
        self, cfg: Any, parts: Experiment, lists: Mapping[str, Lists], scorer: Scorer
    ) -> None:
        missing = sum(part.missing for part in lists.values())
        check_engine(cfg.for_engine, scorer.model, scorer.transform, missing)
