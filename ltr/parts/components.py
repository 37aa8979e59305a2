"""Build and check each part of an experiment, such as its loss, from its node in the config.

This is done before data are read.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

from ltr.boosting import BoostedTrees, RoundModel
from ltr.cli.folders import metric_configs
from ltr.cli.keys import FORMER_CONVENTION, as_list
from ltr.data.lists import Dataset
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, LTRError
from ltr.metrics import Convention, Metric, parse_metric
from ltr.metrics.per_list import check_values
from ltr.models.embeddings import WithEmbeddings
from ltr.tracking import Tracking
from ltr.training.settings import Settings

PARTS = ("model", "loss", "optimizer", "schedule", "transform", "dataset")


def build_settings(values: Mapping[str, Any]) -> Settings:
    """Return the training settings in the config ``values``, after checking them."""
    fields: dict[str, Any] = {}
    for name in Settings.names():
        value = values[name]
        fields[name] = OmegaConf.to_object(value) if OmegaConf.is_config(value) else value
    fields["monitor"] = tuple(as_list(fields["monitor"]))
    return Settings(**fields)


def build_metrics(values: Mapping[str, Any]) -> tuple[Metric, ...]:
    """Return the metrics that ``metrics`` and ``select_on`` name in the config ``values``."""
    user_metrics = values.get("own_metrics") or {}
    metrics: list[Metric] = []
    for key in ("metrics", "select_on"):
        try:
            metrics += named_metrics(as_list(values[key]), user_metrics)
        except LTRError as error:
            raise type(error)(f"{key}: {error}") from error
    return tuple(dict.fromkeys(metrics))


def named_metrics(
    names: Sequence[str], nodes: Mapping[str, Any] | None = None
) -> tuple[Metric, ...]:
    """Return the metrics with these names, without duplicates.

    Args:
        names: the names of the metrics, such as ``ndcg@5``.
        nodes: maps the user's own metrics to their configs; None: read the configs from
            ``configs/metric``.
    """
    nodes = metric_configs(*names) if nodes is None else nodes
    user_metrics = {
        name: bind_part(OmegaConf.create({**node, "_partial_": True}), "metric")
        for name, node in nodes.items()
    }
    return tuple(dict.fromkeys(parse_metric(name, user_metrics) for name in names))


def user_metrics(config: Mapping[str, Any]) -> list[str]:
    """Return the user's own metrics, which are the names with a dot, without their cutoffs.

    >>> user_metrics({"metrics": ["ndcg@5", "mine.hits@5"], "select_on": "mine.hits"})
    ['mine.hits']
    """
    texts = [*as_list(config.get("metrics")), str(config.get("select_on"))]
    return sorted({name for name in (text.partition("@")[0] for text in texts) if "." in name})


def build_convention(values: Mapping[str, Any]) -> Convention:
    """Return the convention in the config ``values``, after checking it."""
    if values.get(FORMER_CONVENTION):
        raise ConfigError(
            f"{FORMER_CONVENTION} is now called convention: move your file from "
            f"configs/{FORMER_CONVENTION} to configs/convention, and delete its line @package"
        )
    node = values["convention"]
    keys: Any = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    try:
        return Convention(**keys)
    except LTRError as error:
        raise _with_key(error, "convention", keys) from error
    except TypeError as error:  # an unknown key
        raise ConfigError(f"convention: {error}; see configs/train.yaml") from error


def build_dataset(node: DictConfig) -> Dataset:
    """Return the data set that a ``dataset`` node describes; no data are read yet."""
    dataset: Dataset = _instantiate(node, "dataset")
    return dataset


def model_class(model: Callable[[int], nn.Module] | Mapping[str, Any]) -> type:
    """Return the class of the models that ``model`` builds, or ``object`` if the class is unknown.

    ``model`` is a class with bound settings (a ``functools.partial``), or a ``model`` node.
    """
    model_class = getattr(model, "func", None)
    if isinstance(model, Mapping):
        with suppress(
            ImportError, AttributeError, ValueError
        ):  # the error is raised when the model is built
            model_class = get_object(str(model.get("_target_")))
    return model_class if isinstance(model_class, type) else object


def is_boosted(build_part: Callable[[int], nn.Module]) -> bool:
    """Return whether ``build_part`` (see ``model_class``) builds boosted trees."""
    return issubclass(model_class(build_part), BoostedTrees)


def is_round_model(model: Callable[[int], nn.Module] | Mapping[str, Any]) -> bool:
    """Return whether ``model`` (see ``model_class``) is fitted in rounds, like boosted trees."""
    return issubclass(model_class(model), RoundModel)


def build_model(build_part: Callable[[int], nn.Module], transform: FeatureTransform) -> nn.Module:
    """Return the model that ``build_part`` builds for features to which ``transform`` was applied.

    Boosted trees split on categories directly; a network gets a learned vector for each category.
    """
    if not transform.codes.any():
        return build_part(transform.outputs)
    if not is_round_model(build_part):
        indicators = transform.outputs - transform.width
        return WithEmbeddings(build_part, transform.codes.tolist(), numbers=indicators)
    trees = build_part(transform.outputs)
    if not isinstance(trees, BoostedTrees):
        raise ConfigError(
            "a feature is a category, but this model takes only numbers: leave the feature out, "
            "or choose model=lightgbm, xgboost or catboost"
        )
    trees.categories = np.flatnonzero(transform.codes).tolist()
    return trees


def build_tracking(node: DictConfig, folder: Path) -> Tracking:
    """Return the hook that sends the run in ``folder`` to an experiment tracker.

    ``node`` is a ``tracking`` node; it names the tracker's class, such as ``ltr.tracking.MLflow``.
    """
    return Tracking(_instantiate(node, "tracking"), folder)


def tiny_lists() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores, labels and mask, each ``[2, 2]``, for a trial call of a loss or metric."""
    scores = torch.tensor([[0.3, -0.2]] * 2)
    labels = torch.tensor([[0.0, 1.0]] * 2)
    mask = torch.ones(2, 2, dtype=torch.bool)
    return scores, labels, mask


def _instantiate(node: DictConfig, name: str) -> Any:
    """Return the part ``name`` that ``node`` describes; each error says what to change."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(
            f"{name}: its config file has no _target_: add a line _target_: module.function (or "
            "module.Class), and a line KEY: VALUE for each setting"
        )
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, LTRError):  # ``from error`` would make each the cause of the other
            raise _with_key(cause, name, node) from None
        text = " ".join(str(cause or error).split())
        raise ConfigError(f"{name} ({node.get('_target_')}) cannot be built: {text}") from error


def _with_key(error: LTRError, name: str, settings: Mapping[Any, Any]) -> LTRError:
    """Return ``error``, which is about a setting of ``name``, with its full key, such as loss.k."""
    text = str(error)
    if f"{name}." in text or text.startswith(f"{name}:"):
        return error
    key = re.split(r"[=\[]", text, maxsplit=1)[0]
    for setting, value in settings.items():
        if isinstance(value, str) and text.startswith(repr(value)):
            return type(error)(f"{name}.{setting}: {text}")
    return type(error)(f"{name}.{text}" if key in settings else f"{name}: {text}")


def bind_part(node: DictConfig, name: str) -> functools.partial[Any]:
    """Return the function or class of ``node``, with its settings bound.

    The result is a plain ``functools.partial``, because Hydra's own partial checks Hydra's policy
    at every call.

    Args:
        node: the node in the config.
        name: the name of the part, for error messages.

    Raises:
        ConfigError: the node names no function, or a setting does not fit the signature.
    """
    lazy = _instantiate(node, name)
    if not isinstance(lazy, functools.partial):
        raise ConfigError(
            f"{name} ({node['_target_']}): its config file lacks the line '_partial_: true': add it"
        )
    function = lazy.func
    settings = dict(lazy.keywords)
    signature = inspect.signature(function)
    try:
        signature.bind_partial(**settings)
    except TypeError as error:
        parameters = ", ".join(signature.parameters)
        raise ConfigError(f"{name}: {function.__name__} {error}; it takes {parameters}") from error
    return functools.partial(function, **settings)


def build_part(node: DictConfig | None, name: str) -> Any:
    """Return a part of an experiment as a function with its settings bound.

    The function of a model takes the number of features. Each function is called once on a tiny
    input, so a wrong setting raises an error before data are read.

    Args:
        node: the node in the config; None: return None.
        name: ``"model"``, ``"loss"``, ``"optimizer"`` or ``"schedule"``.

    Raises:
        ConfigError: a setting is invalid.
    """
    if node is None:
        return None
    function = bind_part(node, name)
    trial_arguments: dict[str, tuple[Any, ...]] = {
        "model": (2,),
        "loss": tiny_lists(),
        "optimizer": ([nn.Parameter(torch.ones(1))],),
        "schedule": (0.5, 1),
    }
    try:
        with (
            torch.random.fork_rng(devices=[]),  # a loss may draw random numbers
            torch.device("meta" if name == "model" else "cpu"),  # costs no memory
        ):
            trial = function(*trial_arguments[name])
        if name == "loss":
            mask = trial_arguments[name][-1]
            check_values(trial, mask, whose="the loss")
    except LTRError as error:
        raise _with_key(error, name, node) from error
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        text = " ".join(str(error).split())
        settings = [f"{name}.{key}={value}" for key, value in function.keywords.items()]
        raise ConfigError(f"{name}: {text}; check {', '.join(settings) or 'its code'}") from error
    return function
