"""Build an experiment: turn a config into typed objects, and check these before data are read."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError
from torch import nn

from ltr.boosting.learner import check_rounds
from ltr.cli.compose import explain_error
from ltr.cli.keys import Kind, Resumed, as_list, flat, resolved, without
from ltr.cli.process import processes
from ltr.data.batches import ItemTensors
from ltr.data.lists import Dataset, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, LTRError
from ltr.experiment.data_checks import check_labels
from ltr.experiment.measure import SplitMeasurement, measure
from ltr.experiment.origins import digest_origins
from ltr.experiment.other_run import OtherRun
from ltr.experiment.train_lists import (
    add_teacher_scores,
    bag,
    check_bagging,
    check_teacher,
    draw_count,
)
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.parts import components
from ltr.parts.scorer import Scorer, load_model
from ltr.parts.trust import config_for_checkpoint, relocate_paths
from ltr.training.device import deterministic, pick_device
from ltr.training.hooks import Hook
from ltr.training.settings import Settings
from ltr.typing import Loss

LARGEST_BATCH = 64  # lists in a training step, unless the user asks for more


class Facts(NamedTuple):
    """What is known about the training lists; it determines settings that are null in a config."""

    levels: int  # number of grades: the largest label, plus 1
    lists: int


ASSUMED = Facts(levels=5, lists=1_000_000)  # before data are read


def facts_of(train: Lists) -> Facts:
    """Return the ``Facts`` about the training lists."""
    return Facts(levels_for(float(train.labels.max())), len(train))


@dataclass(frozen=True)
class Record:
    """The config of a run in the form in which its files record it."""

    config: Mapping[str, Any]  # every value resolved, for results.json and trackers
    kept_config: Mapping[str, Any]  # for checkpoints; it contains links such as ``${epochs}``
    choices: Mapping[str, str]  # the choice of each config group, such as {"loss": "listnet"}

    @property
    def parameters(self) -> dict[str, Any]:
        """The choice of each config group, and the config with dotted keys, for a tracker."""
        return {**self.choices, **flat(without(self.config, Resumed.OWN, Kind.PROPOSAL))}


@dataclass(frozen=True)
class Experiment:
    """Everything that a run needs, except its lists."""

    dataset: Dataset
    fit_transform: Callable[[Lists], FeatureTransform]
    make_model: Callable[[int], nn.Module]  # takes the number of features
    make_model_for: Callable[[FeatureTransform], nn.Module]  # the same, for transformed features
    is_boosted: bool  # the model is boosted trees
    is_round_model: bool  # the model is fitted in rounds: boosted trees, AdaRank, ...
    loss: Loss | None  # None: the model's own objective
    make_optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Callable[[float, float], float]
    settings: Settings
    metrics: tuple[Metric, ...]
    convention: Convention
    device: torch.device
    deterministic: Callable[[], AbstractContextManager[None]]  # context of the whole run
    initial: OtherRun | None  # the run that ``init_from`` names
    list_transforms: tuple[Callable[[Lists], Lists], ...]  # change the lists that are trained on
    check_labels: Callable[[Mapping[str, Lists]], None]  # whether loss and metrics can use them
    measure: Callable[[Scorer, Mapping[str, Lists | ItemTensors]], dict[str, SplitMeasurement]]
    digest_origins: Callable[[], dict[str, str | None]]  # digests of files other than the lists
    make_tracking: Callable[[Path], Hook] | None  # takes the run folder
    is_resumed: bool  # the run continues from the checkpoint in its folder
    record: Record
    record_for: Callable[[Path], dict[str, Any]]  # the record in the checkpoints of a run folder
    suggestions: tuple[str, ...]  # sentences, to be logged, on settings that follow from ``Facts``
    build_with: Callable[[Facts], "Experiment"]

    def with_facts_of(self, train: Lists) -> "Experiment":
        """Return the experiment rebuilt with what is now known about the training lists."""
        if not self.suggestions:
            return self
        complete = self.build_with(facts_of(train))
        return replace(complete, is_resumed=self.is_resumed)  # a sweep resumes without cfg.resume


def build(
    cfg: DictConfig,
    choices: Mapping[str, str] | None = None,
    dataset: Dataset | None = None,
    facts: Facts = ASSUMED,
) -> Experiment:
    """Build and check every part of ``cfg``, without reading data.

    Args:
        cfg: a config composed from ``configs/train.yaml``.
        choices: the choice of each config group, for the record.
        dataset: a data set that replaces that of ``cfg``.
        facts: what is known about the training lists. At first it is assumed; after the data are
            read, ``Experiment.with_facts_of`` builds the experiment again.

    Returns:
        The experiment.

    Raises:
        ConfigError: settings are invalid; the message names all of them.
    """
    complete, suggestions = with_facts(cfg, facts)
    attempts = _Attempts()
    attempt = attempts.attempt
    dataset = dataset or attempt(components.build_dataset, complete.dataset)
    device = attempt(pick_device, complete.device)
    make_model = attempt(components.build_part, complete.model, "model")
    loss = attempt(components.build_part, complete.get("loss"), "loss")
    settings = attempt(components.build_settings, complete)
    metrics = attempt(components.build_metrics, complete)
    convention = attempt(components.build_convention, complete)
    record = attempt(_make_record, complete, choices or {})
    experiment = Experiment(
        dataset=dataset,
        fit_transform=attempt(components.bind_part, complete.transform, "transform"),
        make_model=make_model,
        make_model_for=partial(components.build_model, make_model),
        is_boosted=components.is_boosted(make_model),
        is_round_model=components.is_round_model(make_model),
        loss=loss,
        make_optimizer=attempt(components.build_part, complete.optimizer, "optimizer"),
        schedule=attempt(components.build_part, complete.schedule, "schedule"),
        settings=settings,
        metrics=metrics,
        convention=convention,
        device=device,
        deterministic=partial(deterministic, _needs_exact_gpu(settings, device)),
        initial=attempt(_other_run, complete, "init_from", device),
        list_transforms=attempt(_list_transforms, complete, device),
        check_labels=partial(check_labels, loss, metrics, convention, settings),
        measure=partial(measure, metrics, convention, complete.evaluation_items),
        digest_origins=partial(digest_origins, record.config if record else {}),
        make_tracking=_tracking(complete.get("tracking")),
        is_resumed=complete.resume is not None,
        record=record,
        record_for=partial(_record_for, record),
        suggestions=suggestions,
        build_with=partial(build, cfg, choices, dataset),
    )
    if metrics and convention:
        for metric in metrics:  # a metric might be undefined under this convention
            attempt(metric, *components.tiny_lists(), convention)
    if loss or complete.get("loss") is None:
        attempt(check_teacher, complete.teacher, loss)
    if not attempts.errors:
        attempt(_check_together, experiment)
    attempts.raise_errors()
    return experiment


class _Attempts:
    """Collects the errors of parts that cannot be built, to report all of them at once."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def attempt(self, build_part: Callable[..., Any], *args: Any) -> Any:
        """Return the result of ``build_part``; if it raises an error, keep that and return None."""
        try:
            return build_part(*args)
        except (LTRError, InterpolationResolutionError) as error:
            self.errors.append(explain_error(error))

    def raise_errors(self) -> None:
        """Raise one ``ConfigError`` with all errors, if there are any."""
        if self.errors:
            raise ConfigError("; ".join(dict.fromkeys(self.errors)))


def with_facts(cfg: DictConfig, facts: Facts) -> tuple[DictConfig, tuple[str, ...]]:
    """Return ``cfg`` with settings that follow from ``facts``, and a sentence on each of these."""
    complete = cfg.copy()
    suggestions = []
    if cfg.suggested.levels is None:
        complete.suggested.levels = facts.levels
        suggestions.append(f"{facts.levels} grades (levels): the largest training label plus 1")
    if cfg.batch_size is None:
        lists = draw_count(facts.lists, cfg.bagging)
        batch_size = max(suggest_batch_size(lists, cfg.suggested.steps), processes())
        complete.batch_size = batch_size
        steps = math.ceil(lists / batch_size)  # fewer than suggested with many processes
        sentence = ""
        if batch_size < LARGEST_BATCH and not components.is_round_model(cfg.model):
            steps = min(cfg.suggested.steps, steps)
            sentence = (
                f"batch_size {batch_size}: small, because an epoch should have at least {steps} "
                "steps, and there are few training lists"
            )
        suggestions.append(sentence)
    return complete, tuple(suggestions)


def suggest_batch_size(lists: int, steps: int) -> int:
    """Return the suggested number of lists in a training step.

    This is the largest number up to 64 for which an epoch has at least ``steps`` steps.

    >>> [suggest_batch_size(lists, 8) for lists in (5, 30, 63, 200, 471, 20_000)]
    [1, 4, 8, 28, 64, 64]
    """
    return min(LARGEST_BATCH, max(1, (lists - 1) // max(steps - 1, 1)))


def _needs_exact_gpu(settings: Settings | None, device: torch.device | None) -> bool:
    """Return whether a GPU must compute the same bits in every run; a CPU always does."""
    if settings is None or device is None:  # one of them cannot be built
        return False
    return settings.deterministic and device.type != "cpu"


def _other_run(config: Mapping[str, Any], key: str, device: torch.device) -> OtherRun | None:
    """Return the run that the setting ``key`` names; None if it is null."""
    if config[key] is None:
        return None
    path = str(config[key])
    load = partial(load_model, path, device, tuple(as_list(config["trust"])))
    return OtherRun(key, path, load, resolved(config["dataset"]))


def _list_transforms(
    config: Mapping[str, Any], device: torch.device
) -> tuple[Callable[[Lists], Lists], ...]:
    """Return the functions that change the training lists.

    The first function adds the scores of ``teacher``, and the second draws the sample of
    ``bagging``. If one of these settings is null, its function is left out.
    """
    check_bagging(config["bagging"])
    transforms: list[Callable[[Lists], Lists]] = []
    teacher = _other_run(config, "teacher", device)
    if teacher is not None:
        transforms.append(partial(add_teacher_scores, teacher, config["evaluation_items"]))
    if config["bagging"] is not None:
        transforms.append(partial(bag, config["bagging"], config["seed"]))
    return tuple(transforms)


def _tracking(node: DictConfig | None) -> Callable[[Path], Hook] | None:
    """Return a function that makes the hook of the chosen tracker; None if no tracker is chosen."""
    return None if node is None else partial(components.build_tracking, node)


def _record_for(record: Record, folder: Path) -> dict[str, Any]:
    """Return the entries of ``record`` in a checkpoint, with paths relative to ``folder``."""
    return {"config": relocate_paths(record.kept_config, folder), "choices": dict(record.choices)}


def _make_record(config: Mapping[str, Any], choices: Mapping[str, str]) -> Record:
    """Return the record of a run with ``config``, which may contain interpolations."""
    resolved_config = resolved(config)
    linked_config: Any = OmegaConf.to_container(config)
    return Record(
        resolved_config, config_for_checkpoint(linked_config, resolved_config), dict(choices)
    )


def _check_together(experiment: Experiment) -> None:
    """Raise ``ConfigError`` if parts do not fit the model; without data, not all can be checked."""
    config = experiment.record.config
    if experiment.initial is not None and experiment.is_round_model:
        raise ConfigError(
            f"{experiment.initial}: boosted trees, AdaRank, PRank and RankBoost cannot start from "
            f"the weights of a run: leave out {experiment.initial.key}, or train a network"
        )
    # a model of the user's own may read missing values
    is_builtin = config["model"]["_target_"].startswith(("ltr.models.", "ltr.boosting."))
    keeps_missing = config["transform"].get("missing") == "keep"
    if is_builtin and keeps_missing and not experiment.is_boosted:
        raise ConfigError(
            "transform.missing=keep: this model cannot use missing values; set "
            "transform.missing=mean or transform.missing=indicator, or model=lightgbm, xgboost or "
            "catboost"
        )
    if experiment.is_round_model and processes() > 1:
        target = config["model"]["_target_"]
        raise ConfigError(f"{target} trains in one process: start ltr train without torchrun")
    if experiment.is_round_model:
        check_rounds(experiment.make_model(2), experiment.loss, experiment.settings)
    elif experiment.loss is None:
        raise ConfigError(
            "no loss is chosen, and only boosted trees, AdaRank, PRank and RankBoost have an "
            "objective of their own: set loss=NAME"
        )
