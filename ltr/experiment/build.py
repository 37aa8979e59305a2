"""From a composed config to the objects of an experiment, all checked before data is read."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError
from torch import nn

from ltr.console.mistakes import user_error
from ltr.data.lists import Dataset, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, LTRError
from ltr.metrics import Convention, Metric, parse_metric
from ltr.training.device import pick_device
from ltr.training.settings import Settings
from ltr.training.trainer import Schedule
from ltr.trees import BoostedTrees
from ltr.trees.fit import check_trees
from ltr.typing import Loss

# The arguments that the framework passes to each part of a config.
PARTS: dict[str, tuple[str, ...]] = {
    "model": ("width",),
    "loss": ("scores", "labels", "mask"),
    "optimizer": ("parameters",),
    "schedule": ("epoch", "epochs"),
    "transform": ("lists",),
    "dataset": (),
}
_TRIED_LEVELS = 5


@dataclass(frozen=True)
class Experiment:
    """The parts of an experiment, still without data."""

    dataset: Dataset
    fit_transform: Callable[[Lists], FeatureTransform]
    model: Callable[[int], nn.Module]
    loss: Loss | None  # None: the objective of a tree library
    optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Schedule
    settings: Settings
    metrics: tuple[Metric, ...]
    convention: Convention
    device: torch.device


def build(cfg: DictConfig) -> Experiment:
    """Build and try out every part of ``cfg`` without reading data.

    Where the number of grades is not known yet some are assumed; ``ltr.experiment.labels`` finds
    it in the data and builds again what depends on it.

    Raises:
        ConfigError: one line that names everything found wrong.
    """
    wrong: list[str] = []
    if cfg.suggested.levels is None:
        cfg = cfg.copy()
        cfg.suggested.levels = _TRIED_LEVELS

    def attempt(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except LTRError as error:
            wrong.append(str(error))

    settings = attempt(lambda: make_settings(cfg))
    parts = {
        "metrics": attempt(lambda: make_metrics(cfg)),
        "convention": attempt(lambda: make_convention(cfg)),
        "device": attempt(lambda: pick_device(cfg.device)),
        "dataset": attempt(lambda: make_dataset(cfg.dataset)),
        "fit_transform": attempt(lambda: bind(cfg.transform, "transform")),
        "model": attempt(lambda: make_model(cfg.model)),
        "loss": attempt(lambda: make_loss(cfg.get("loss"))),
        "optimizer": attempt(
            lambda: _tried(
                bind(cfg.optimizer, "optimizer"), "optimizer", [nn.Parameter(torch.ones(1))]
            )
        ),
        "schedule": attempt(lambda: _tried(bind(cfg.schedule, "schedule"), "schedule", 0.5, 1)),
    }
    if parts["metrics"] and parts["convention"]:
        for metric in parts["metrics"]:  # one may not be defined under this convention
            attempt(functools.partial(metric, *_tiny_lists(), parts["convention"]))
    if not wrong:
        attempt(lambda: _check_objective(parts["model"], parts["loss"], settings))
    if wrong:
        raise ConfigError("; ".join(dict.fromkeys(wrong)))
    return Experiment(settings=settings, **parts)


def make_settings(cfg: DictConfig) -> Settings:
    """The training protocol of ``cfg``, checked."""
    values: dict[str, Any] = {
        name: OmegaConf.to_object(cfg[name]) if OmegaConf.is_config(cfg[name]) else cfg[name]
        for name in Settings.names()
    }
    values["monitor"] = tuple(as_list(values["monitor"]))
    return Settings(**values)


def as_list(value: Any) -> list[str]:
    """The texts of a setting that is a list; one alone may be written without brackets."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


def make_metrics(cfg: DictConfig) -> tuple[Metric, ...]:
    """The metrics of ``cfg``, ``select_on`` among them."""
    names = as_list(cfg.metrics)
    if str(cfg.select_on) not in names:
        names.append(str(cfg.select_on))
    metrics = [parse_metric(name) for name in names]
    return tuple(dict.fromkeys(metrics))


def make_convention(cfg: DictConfig) -> Convention:
    """The convention of ``cfg``, checked."""
    known = inspect.signature(Convention).parameters
    for name in cfg.convention:
        if name not in known:
            raise ConfigError(f"convention.{name}: no such key; convention has {', '.join(known)}")
    try:
        values: Any = OmegaConf.to_container(cfg.convention, resolve=True)
    except InterpolationResolutionError as error:
        raise user_error(error) or error from None
    return Convention(**values)


def make_dataset(node: DictConfig) -> Dataset:
    """The data set of a ``dataset`` node; nothing is read yet."""
    try:
        dataset: Dataset = instantiate(node, _convert_="all")
    except InstantiationException as error:
        raise _instantiation_error(node, "dataset", error) from error
    return dataset


def make_model(node: DictConfig) -> Callable[[int], nn.Module]:
    """The model of a ``model`` node, waiting for the number of features; its settings are tried."""
    model = bind(node, "model")
    with torch.device("meta"):  # checks the settings, costs no memory
        _tried(model, "model", 2)
    return model


def make_loss(node: DictConfig | None) -> Loss | None:
    """The loss of a ``loss`` node, tried; None where there is none."""
    return None if node is None else _tried(bind(node, "loss"), "loss", *_tiny_lists())


def _check_objective(
    model: Callable[[int], nn.Module], loss: Loss | None, settings: Settings
) -> None:
    """Boosted trees may do without a loss, and are tried with what they boost with."""
    made = getattr(model, "func", None)
    if isinstance(made, type) and issubclass(made, BoostedTrees):
        trees = model(2)
        assert isinstance(trees, BoostedTrees)
        check_trees(trees, loss, settings)
    elif loss is None:
        raise ConfigError(
            "no loss is chosen: only boosted trees have an objective of their own; set loss=..."
        )


def bind(node: DictConfig, part: str) -> functools.partial[Any]:
    """The function or class of ``node`` with its knobs bound and checked against its signature.

    Hydra's own partial checks its policy at every call; this one is plain.
    """
    try:
        lazy = instantiate(node, _convert_="all")
    except InstantiationException as error:
        raise _instantiation_error(node, part, error) from error
    function, knobs = lazy.func, dict(lazy.keywords)
    signature = inspect.signature(function)
    unknown = [k for k in knobs if k not in signature.parameters]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        given = PARTS[part]
        known = [name for name in list(signature.parameters)[len(given) :] if name != "self"]
        raise ConfigError(
            f"{part}.{unknown[0]}: {function.__name__} has no such parameter; it has "
            f"{', '.join(known) or 'none'}"
        )
    return functools.partial(function, **knobs)


def _instantiation_error(node: DictConfig, part: str, error: Exception) -> LTRError:
    cause = error.__cause__
    if isinstance(cause, LTRError):
        return cause
    text = " ".join(str(cause or error).split())
    return ConfigError(f"{part} ({node.get('_target_')}) cannot be built: {text}")


def _tried(function: functools.partial[Any], part: str, *args: Any) -> functools.partial[Any]:
    """Call ``function`` once on something tiny, so that a wrong knob shows before data is read."""
    try:
        function(*args)
    except LTRError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"{part}: {text}; check the {part}.* settings") from error
    return function


def _tiny_lists() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scores, labels = torch.tensor([[0.3, -0.2]]), torch.tensor([[0.0, 1.0]])
    return scores, labels, torch.ones(1, 2, dtype=torch.bool)
