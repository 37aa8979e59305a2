"""The hooks of every run: log the model and data, write TensorBoard files, show the time left."""

import logging
from collections.abc import Mapping
from pathlib import Path

from ltr.boosting import RoundModel
from ltr.data.lists import Lists
from ltr.experiment.build import Experiment
from ltr.parts.scorer import Scorer
from ltr.training.device import describe_device
from ltr.training.hooks import Hook, TensorBoard, TimeLeft

log = logging.getLogger(__name__)


def training_hooks(folder: Path) -> list[Hook]:
    """Return the hooks that every run has."""
    return [Introduction(), TensorBoard(folder), TimeLeft()]


class Introduction(Hook):
    """Logs a line that names the model, the loss and the data of the run."""

    def start(self, experiment: Experiment, lists: Mapping[str, Lists], scorer: Scorer) -> None:
        choices = experiment.record.choices
        model = choices.get("model", "model")
        loss = choices.get("loss", "loss")
        size = f"{scorer.parameters:,} parameters"
        if isinstance(scorer.model, RoundModel):
            size = scorer.model.description
            if experiment.loss is None:
                loss = f"its own objective {scorer.model.own_objective()}"
        counts = ", ".join(f"{split} {len(split_lists):,}" for split, split_lists in lists.items())
        device = describe_device(experiment.device)
        data = describe_dataset(experiment)
        log.info("%s", f"{model} ({size}) with {loss} on {data}: lists {counts}; {device}")


def describe_dataset(experiment: Experiment) -> str:
    """Return the name of the data set and, if one is chosen, the fold."""
    fold = experiment.dataset.fold
    return experiment.dataset.name if fold is None else f"{experiment.dataset.name} fold {fold}"
