"""Commands that test the properties of a part: check_loss, check_metric and check_model."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.checks.list_losses import import_function, loss_config
from ltr.checks.loss_properties import GOES_TO, LOSS_PROPERTIES, METRIC_PROPERTIES
from ltr.checks.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.checks.subject import DOES_NOT_APPLY, FAILS, HOLDS, Part, Property, Subject, judge
from ltr.console.compose import run_config, values_of
from ltr.console.keys import number, required, texts, whole
from ltr.errors import ConfigError, LTRError
from ltr.experiment.build import build
from ltr.metrics.spec import METRICS
from ltr.models.rounds import RoundModel
from ltr.scorers.parts import make, named_metrics, tiny_lists

_SMALL = ("dataset=synthetic", "metrics=[ndcg@5]", "device=cpu")  # for a config with the model


def check_loss(cfg: DictConfig) -> tuple[str, bool]:
    """Check the loss ``cfg.name``; return the verdicts as text, and whether no property fails."""
    required(cfg, "name")
    name, values = str(cfg.name), {}
    if cfg.metric is not None and cfg.metric not in METRICS:
        raise ConfigError(f"metric={cfg.metric}: choose one of {', '.join(METRICS)}")
    target = name
    if "." not in name:
        config = loss_config(name)
        target, values = config.target, config.values
    function = import_function(target)
    loss = _with_knobs(name, partial(function, **values), values_of(texts(cfg, "knobs")))
    try:  # if the loss refuses a knob, the user made a mistake, and the loss is not at fault
        loss(*tiny_lists())
    except LTRError:
        raise
    except Exception:
        pass  # the properties below report it
    own = function.__module__.startswith("ltr.losses.")
    metric = cfg.metric or (GOES_TO.get(function.__name__) if own else None)
    return _judged(LOSS_PROPERTIES, Subject(loss, metric, whole(cfg, "grades", least=2)))


def check_metric(cfg: DictConfig) -> tuple[str, bool]:
    """Check the metric ``cfg.name``; return the verdicts as text, and whether no property fails."""
    required(cfg, "name")
    (metric,) = named_metrics([str(cfg.name)])
    if metric.is_own and metric.own is None:
        import_function(metric.name)
    knobs = values_of(texts(cfg, "knobs"))
    if metric.k is not None and "k" not in inspect.signature(metric.function).parameters:
        raise ConfigError(f"{metric}: the function takes no k: write {metric.name}")
    subject = Subject.of_metric(
        metric,
        grades=whole(cfg, "grades", least=2),
        least=-math.inf if cfg.least is None else number(cfg, "least"),
        most=math.inf if cfg.most is None else number(cfg, "most"),
    )
    function = _with_knobs(metric.name, subject.function, knobs)
    return _judged(METRIC_PROPERTIES, replace(subject, function=function))


def check_model(cfg: DictConfig) -> tuple[str, bool]:
    """Check the model ``cfg.name``; return the verdicts as text, and whether no property fails."""
    required(cfg, "name")
    name, settings = str(cfg.name), texts(cfg, "knobs")
    if "." in name:
        import_function(name)
        config, _ = run_config(_SMALL)
        node = {"_target_": name, "_partial_": True, **values_of(settings)}
        OmegaConf.update(config, "model", OmegaConf.create(node), merge=False)
    else:
        config, _ = run_config([f"model={name}", *(f"model.{x}" for x in settings), *_SMALL])
    build(config)  # if a setting is wrong, the user made a mistake, and the model is not at fault
    model, width = make(config.model, "model"), whole(cfg, "width", least=1)
    if isinstance(model(width), RoundModel):
        raise ConfigError(f"{name} is fitted by rounds: the battery tries networks")
    return _judged(MODEL_PROPERTIES, ModelSubject(model, width))


def _judged(properties: Sequence[Property], subject: Part) -> tuple[str, bool]:
    """Return a table of the verdicts on ``subject``, and whether no property fails."""
    verdicts = [judge(prop, subject) for prop in properties]
    rows = [[verdict.outcome, verdict.name, verdict.seen] for verdict in verdicts]
    text = tabulate(rows, tablefmt="plain", maxcolwidths=[None, 46, 68])
    outcomes = [verdict.outcome for verdict in verdicts]
    words = {HOLDS: "hold", FAILS: "fail", DOES_NOT_APPLY: "do not apply"}
    counts = ", ".join(f"{outcomes.count(outcome)} {word}" for outcome, word in words.items())
    return f"{text}\n\n{len(verdicts)} properties: {counts}", FAILS not in outcomes


def _with_knobs(
    name: str, function: Callable[..., Any], knobs: dict[str, Any]
) -> Callable[..., Any]:
    """Bind ``knobs``; ``ConfigError`` unless the function takes them and (scores, labels, mask)."""
    try:
        signature = inspect.signature(function)
        signature.bind(*tiny_lists(), **knobs)
    except (TypeError, ValueError) as error:
        known = ", ".join(list(signature.parameters)[3:]) or "none"
        raise ConfigError(
            f"{name}: {error}: write a function (scores, labels, mask, *, knobs), whose "
            f"knobs are now {known}"
        ) from error
    return partial(function, **knobs)
