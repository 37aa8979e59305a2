"""Build an experiment: a composed config becomes typed objects, checked before data are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig
from omegaconf.errors import InterpolationResolutionError
from torch import nn

from ltr.console.compose import explain
from ltr.console.keys import Kind, Resumed, as_list, flat, resolved, without
from ltr.data.lists import Dataset, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, LTRError
from ltr.experiment.train_lists import check_bagging, check_teacher, draw_count
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.models.rounds.learner import check_rounds
from ltr.scorers import parts
from ltr.scorers.scorer import Scorer, load_model
from ltr.scorers.trust import config_to_keep
from ltr.training.device import pick_device
from ltr.training.settings import Settings
from ltr.typing import Loss

LARGEST_BATCH = 64  # lists in a training step, unless the user asks for more


class Facts(NamedTuple):
    """What only the training lists tell, and a config may leave open."""

    levels: int  # number of grades: the largest label, plus 1
    lists: int


def facts_of(train: Lists) -> Facts:
    """Return the facts of the training lists."""
    return Facts(levels_for(float(train.labels.max())), len(train))


ASSUMED = Facts(levels=5, lists=1_000_000)  # while no data are read


@dataclass(frozen=True)
class Record:
    """The config of a run as its files keep it; nothing is built from it after ``build``."""

    config: Mapping[str, Any]  # every value resolved, for results.json and trackers
    kept_config: Mapping[str, Any]  # for checkpoints: links such as ``${epochs}`` stay
    choices: Mapping[str, str]  # the choice of each config group, such as {"loss": "listnet"}

    @property
    def parameters(self) -> dict[str, Any]:
        """The choices and the flat config, for a tracker."""
        return {**self.choices, **flat(without(self.config, Resumed.OWN, Kind.PROPOSAL))}


@dataclass(frozen=True)
class Experiment:
    """All that a run needs, without data."""

    dataset: Dataset
    fit_transform: Callable[[Lists], FeatureTransform]
    make_model: Callable[[int], nn.Module]  # takes the number of features
    loss: Loss | None  # None: the model's own objective
    make_optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Callable[[float, float], float]
    settings: Settings
    metrics: tuple[Metric, ...]
    convention: Convention
    device: torch.device
    bagging: float | str | None
    load_initial: Callable[[], Scorer] | None  # the trained model that ``init_from`` names
    load_teacher: Callable[[], Scorer] | None
    make_tracker: Callable[[], Any] | None
    is_resumed: bool  # the run continues from the checkpoint in its folder
    record: Record
    assumed: frozenset[str]  # settings that follow from facts: levels, batch_size
    build_with: Callable[[Facts], "Experiment"]

    def with_facts_of(self, train: Lists) -> "Experiment":
        """Return the experiment built again with the facts of the training lists."""
        return self.build_with(facts_of(train)) if self.assumed else self


def build(
    cfg: DictConfig,
    choices: Mapping[str, str] | None = None,
    dataset: Dataset | None = None,
    facts: Facts = ASSUMED,
) -> Experiment:
    """Build and try every part of ``cfg`` without reading data.

    Args:
        cfg: a config composed from ``configs/train.yaml``.
        choices: the choice of each config group, for the record.
        dataset: replaces the data set of ``cfg``.
        facts: of the training lists; assumed until ``Experiment.with_facts_of`` builds again.

    Raises:
        ConfigError: something is wrong; one line names all such errors.
    """
    errors: list[str] = []

    def attempt(build_part: Callable[..., Any], *args: Any) -> Any:
        try:
            return build_part(*args)
        except (LTRError, InterpolationResolutionError) as error:
            errors.append(explain(error))

    complete_cfg, assumed = with_facts(cfg, facts)
    dataset = dataset or attempt(parts.make_dataset, complete_cfg.dataset)
    device = attempt(pick_device, complete_cfg.device)
    load = partial(load_model, device=device, trust=tuple(as_list(complete_cfg.trust)))
    metrics = attempt(parts.make_metrics, complete_cfg)
    convention = attempt(parts.make_convention, complete_cfg)
    loss = attempt(parts.make, complete_cfg.get("loss"), "loss")
    experiment = Experiment(
        dataset=dataset,
        fit_transform=attempt(parts.bind, complete_cfg.transform, "transform"),
        make_model=attempt(parts.make, complete_cfg.model, "model"),
        loss=loss,
        make_optimizer=attempt(parts.make, complete_cfg.optimizer, "optimizer"),
        schedule=attempt(parts.make, complete_cfg.schedule, "schedule"),
        settings=attempt(parts.make_settings, complete_cfg),
        metrics=metrics,
        convention=convention,
        device=device,
        bagging=attempt(check_bagging, complete_cfg.bagging),
        load_initial=_bind_path(load, complete_cfg.init_from),
        load_teacher=_bind_path(load, complete_cfg.teacher),
        make_tracker=_bind_path(parts.make_tracker, complete_cfg.get("tracking")),
        is_resumed=complete_cfg.resume is not None,
        record=attempt(_record, complete_cfg, choices or {}),
        assumed=assumed,
        build_with=partial(build, cfg, choices, dataset),
    )
    if metrics and convention:
        for metric in metrics:  # a metric may not be defined under this convention
            attempt(metric, *parts.tiny_lists(), convention)
    if loss or complete_cfg.get("loss") is None:
        attempt(check_teacher, complete_cfg.teacher, loss)
    if not errors:
        attempt(_check_together, experiment)
    if errors:
        raise ConfigError("; ".join(dict.fromkeys(errors)))
    return experiment


def _bind_path(load: Callable[..., Any], value: Any) -> Callable[[], Any] | None:
    """Return a function that loads what the key ``value`` names; None if it is null."""
    return None if value is None else partial(load, value)


def with_facts(cfg: DictConfig, facts: Facts) -> tuple[DictConfig, frozenset[str]]:
    """Return ``cfg`` with the settings that follow from ``facts``, and the names of these."""
    complete_cfg = cfg.copy()
    assumed = set()
    if cfg.suggested.levels is None:
        complete_cfg.suggested.levels = facts.levels
        assumed.add("levels")
    if cfg.batch_size is None:
        lists = draw_count(facts.lists, cfg.bagging)
        batch_size = suggest_batch_size(lists, cfg.suggested.steps)
        complete_cfg.batch_size = max(batch_size, cfg.shards or 1)
        assumed.add("batch_size")
    return complete_cfg, frozenset(assumed)


def suggest_batch_size(lists: int, steps: int) -> int:
    """Return the suggested number of lists in a training step: the largest up to 64 with which an
    epoch has at least ``steps`` steps.

    >>> [suggest_batch_size(lists, 8) for lists in (5, 30, 63, 200, 471, 20_000)]
    [1, 4, 8, 28, 64, 64]
    """
    return min(LARGEST_BATCH, max(1, (lists - 1) // max(steps - 1, 1)))


def _record(cfg: DictConfig, choices: Mapping[str, str]) -> Record:
    return Record(resolved(cfg), config_to_keep(cfg), dict(choices))


def _check_together(experiment: Experiment) -> None:
    """Raise ``ConfigError`` if parts do not fit the model, as far as that shows without data."""
    config = experiment.record.config
    is_round_model = parts.by_rounds(experiment.make_model)
    if experiment.load_initial is not None and is_round_model:
        raise ConfigError(
            f"init_from={config['init_from']}: boosted trees begin anew, as AdaRank does: leave it "
            "out, or train a network"
        )
    # a model of the user's own may read missing values
    is_builtin = config["model"]["_target_"].startswith("ltr.models.")
    keeps_missing = config["transform"].get("missing") == "keep"
    if is_builtin and keeps_missing and not parts.boosts(experiment.make_model):
        raise ConfigError(
            "transform.missing=keep: this model takes no missing value; set transform.missing=mean "
            "or indicator, or model=lightgbm, xgboost or catboost"
        )
    if is_round_model:
        check_rounds(experiment.make_model(2), experiment.loss, experiment.settings)
    elif experiment.loss is None:
        raise ConfigError(
            "no loss is chosen: only boosted trees have an objective of their own, and AdaRank, "
            "PRank and RankBoost; set loss=..."
        )
