"""Build an experiment from a composed config; every part is checked before data is read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from ltr.data.lists import Dataset, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, LTRError
from ltr.experiment.engines import check_engine
from ltr.experiment.parts import (
    bind,
    by_rounds,
    check_bagging,
    make_convention,
    make_dataset,
    make_loss,
    make_metrics,
    make_model,
    make_optimizer,
    make_schedule,
    make_settings,
    tiny_lists,
)
from ltr.losses.mix import reads_teacher
from ltr.metrics import Convention, Metric
from ltr.rounds import RoundModel
from ltr.rounds.fit import check_rounds
from ltr.training.device import pick_device
from ltr.training.network import Schedule
from ltr.training.settings import Settings
from ltr.typing import Loss

_TRIED_LEVELS = 5


@dataclass(frozen=True)
class Experiment:
    """The parts of an experiment, without data."""

    dataset: Dataset
    fit_transform: Callable[[Lists], FeatureTransform]
    model: Callable[[int], nn.Module]
    loss: Loss | None  # None: the model's own objective
    optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Schedule
    settings: Settings
    metrics: tuple[Metric, ...]
    convention: Convention
    device: torch.device


def build(cfg: DictConfig, dataset: Dataset | None = None) -> Experiment:
    """Build and try every part of ``cfg`` without reading data; ``dataset`` instead of its own.

    An unknown number of grades is assumed; ``ltr.experiment.labels`` finds it in the data and
    builds again what depends on it.

    Raises:
        ConfigError: one line that names everything found wrong.
    """
    wrong: list[str] = []
    if cfg.suggested.levels is None:
        cfg = cfg.copy()
        cfg.suggested.levels = _TRIED_LEVELS

    def attempt(make: Callable[..., Any], *args: Any) -> Any:
        try:
            return make(*args)
        except LTRError as error:
            wrong.append(str(error))

    parts = {
        "settings": attempt(make_settings, cfg),
        "metrics": attempt(make_metrics, cfg),
        "convention": attempt(make_convention, cfg),
        "device": attempt(pick_device, cfg.device),
        "dataset": dataset or attempt(make_dataset, cfg.dataset),
        "fit_transform": attempt(bind, cfg.transform, "transform"),
        "model": attempt(make_model, cfg.model),
        "loss": attempt(make_loss, cfg.get("loss")),
        "optimizer": attempt(make_optimizer, cfg.optimizer),
        "schedule": attempt(make_schedule, cfg.schedule),
    }
    attempt(check_bagging, cfg.bagging)
    if parts["metrics"] and parts["convention"]:
        for metric in parts["metrics"]:  # one may not be defined under this convention
            attempt(metric, *tiny_lists(), parts["convention"])
    if "loss" in parts and (parts["loss"] or cfg.get("loss") is None):
        attempt(_check_teacher, cfg.teacher, parts["loss"])
    if cfg.init_from is not None and parts["model"] and by_rounds(parts["model"]):
        wrong.append(
            f"init_from={cfg.init_from}: boosted trees begin anew, as AdaRank does, since "
            "a run counts, selects and keeps rounds from the first on: leave it out, or train a "
            "network"
        )
    if not wrong:
        attempt(_check_objective, parts["model"], parts["loss"], parts["settings"])
        attempt(_check_missing, parts["model"], parts["fit_transform"])
        attempt(_check_engine, cfg.get("for_engine"), parts["model"])
    if wrong:
        raise ConfigError("; ".join(dict.fromkeys(wrong)))
    return Experiment(**parts)


def _check_teacher(teacher: str | None, loss: Loss | None) -> None:
    """Raise ``ConfigError`` unless a teacher and a loss that learns from one come together."""
    reads = reads_teacher(loss)
    if teacher is not None and not reads:
        raise ConfigError(
            f"teacher={teacher}: the loss does not read a teacher's scores: set loss=distil, or "
            "loss=mix loss.parts.distil=1, or leave it out"
        )
    if teacher is None and reads:
        raise ConfigError("loss=distil learns from another model: set teacher=RUN, a run folder")


def _check_missing(model: Any, fit_transform: Any) -> None:
    """A network of this project reads no missing value; one of the user may."""
    home = f"{getattr(model, 'func', model).__module__}."
    if (
        home.startswith(("ltr.models.", "ltr.rounds."))
        and fit_transform.keywords.get("missing") == "keep"
    ):
        raise ConfigError(
            "transform.missing=keep: this model takes no missing value; set transform.missing=mean "
            "or indicator, or model=lightgbm, xgboost or catboost"
        )


def _check_engine(engine: str | None, model: Callable[[int], nn.Module]) -> None:
    """What needs no data of ``check_engine``."""
    if engine is not None:
        with torch.device("meta"):
            made = model(2)
        check_engine(engine, made)


def _check_objective(
    model: Callable[[int], nn.Module], loss: Loss | None, settings: Settings
) -> None:
    """Try a model by rounds with what it fits; other models need a loss."""
    if by_rounds(model):
        tried = model(2)
        assert isinstance(tried, RoundModel)
        check_rounds(tried, loss, settings)
    elif loss is None:
        raise ConfigError(
            "no loss is chosen: only boosted trees have an objective of their own, and AdaRank, "
            "PRank and RankBoost; set loss=..."
        )
