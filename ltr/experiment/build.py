"""Build an experiment from a composed config, and check every part before data are read."""

from collections.abc import Callable
from typing import Any

import torch
from omegaconf import DictConfig
from omegaconf.errors import InterpolationResolutionError

from ltr.console.compose import explain
from ltr.data.lists import Dataset
from ltr.errors import ConfigError, LTRError
from ltr.experiment.engines import check_engine
from ltr.experiment.labels import BATCH_SIZE
from ltr.experiment.list_steps import check_bagging, check_teacher
from ltr.models.rounds.learner import check_rounds
from ltr.scorers import parts
from ltr.training.device import pick_device

_TRIED_LEVELS = 5  # number of grades that is assumed while it is unknown


def build(cfg: DictConfig, dataset: Dataset | None = None) -> parts.Experiment:
    """Build and try every part of ``cfg`` without reading data; ``dataset`` replaces that of
    ``cfg``.

    If the number of grades or the batch size is unknown, one is assumed, and ``resolve_labels``
    later builds again what depends on it. ``ConfigError``: something is wrong; one line names all
    such errors.
    """
    wrong: list[str] = []
    cfg = cfg.copy()
    if cfg.suggested.levels is None:
        cfg.suggested.levels = _TRIED_LEVELS
    if cfg.batch_size is None:
        cfg.batch_size = BATCH_SIZE

    def attempt(make: Callable[..., Any], *args: Any) -> Any:
        try:
            return make(*args)
        except (LTRError, InterpolationResolutionError) as error:
            wrong.append(explain(error))

    made = {
        "settings": attempt(parts.make_settings, cfg),
        "metrics": attempt(parts.make_metrics, cfg),
        "convention": attempt(parts.make_convention, cfg),
        "device": attempt(pick_device, cfg.device),
        "dataset": dataset or attempt(parts.make_dataset, cfg.dataset),
        "fit_transform": attempt(parts.bind, cfg.transform, "transform"),
        "model": attempt(parts.make, cfg.model, "model"),
        "loss": attempt(parts.make, cfg.get("loss"), "loss"),
        "optimizer": attempt(parts.make, cfg.optimizer, "optimizer"),
        "schedule": attempt(parts.make, cfg.schedule, "schedule"),
    }
    attempt(check_bagging, cfg.bagging)
    if made["metrics"] and made["convention"]:
        for metric in made["metrics"]:  # a metric may not be defined under this convention
            attempt(metric, *parts.tiny_lists(), made["convention"])
    if made["loss"] or cfg.get("loss") is None:
        attempt(check_teacher, cfg.teacher, made["loss"])
    if not wrong:
        attempt(_check_together, cfg, parts.Experiment(**made))
    if wrong:
        raise ConfigError("; ".join(dict.fromkeys(wrong)))
    return parts.Experiment(**made)


def _check_together(cfg: DictConfig, experiment: parts.Experiment) -> None:
    """Raise ``ConfigError`` if parts do not fit the model, as far as that shows without data."""
    model, loss = experiment.model, experiment.loss
    if cfg.init_from is not None and parts.by_rounds(model):
        raise ConfigError(
            f"init_from={cfg.init_from}: boosted trees begin anew, as AdaRank does: leave it out, "
            "or train a network"
        )
    ours = cfg.model["_target_"].startswith("ltr.models.")  # the user's own may read missing values
    if ours and cfg.transform.get("missing") == "keep" and not parts.boosts(model):
        raise ConfigError(
            "transform.missing=keep: this model takes no missing value; set transform.missing=mean "
            "or indicator, or model=lightgbm, xgboost or catboost"
        )
    if cfg.get("for_engine") is not None:
        with torch.device("meta"):
            check_engine(cfg.for_engine, model(2))
    if parts.by_rounds(model):
        check_rounds(model(2), loss, experiment.settings)
    elif loss is None:
        raise ConfigError(
            "no loss is chosen: only boosted trees have an objective of their own, and AdaRank, "
            "PRank and RankBoost; set loss=..."
        )
