"""The commands check_loss, check_metric and check_model, which test properties of a component."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from omegaconf import OmegaConf
from tabulate import tabulate

from ltr.boosting import RoundModel
from ltr.cli.compose import run_config, values_of
from ltr.cli.options import collected, option
from ltr.errors import ConfigError, LTRError
from ltr.experiment.build import build
from ltr.metrics.spec import METRICS
from ltr.parts.components import build_part, named_metrics, tiny_lists
from ltr.testing.list_losses import import_function, loss_config
from ltr.testing.loss_properties import LOSS_PROPERTIES, METRIC_PROPERTIES, SHARP_LIMIT_OF
from ltr.testing.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.testing.subject import DOES_NOT_APPLY, FAILS, HOLDS, Component, Property, Subject, judge

_SMALL = ("dataset=synthetic", "metrics=[ndcg@5]", "device=cpu")  # for a config with the model


@dataclass(frozen=True, kw_only=True)
class CheckLossOptions:
    """Test the properties that every loss should have. A loss is a function of scores, labels and
    mask that returns one value per list; its other arguments are called knobs.

      ltr check_loss my.module.my_loss          your own function
      ltr check_loss my.module.my_loss k=5 temperature=0.1
      ltr check_loss neuralndcg k=10            a loss from configs/loss

    Your own function must be in the current folder or in a folder on PYTHONPATH.
    The report says of each property that it holds, that it FAILS (with the values that show it), or
    that it does not apply (with the reason). The exit status is 0 if no property fails, 1 if one
    fails, and 2 if the command is wrong. Any other key is a knob of the loss. Knobs with these
    names have tests of their own: k, the cutoff rank (null = the whole list); temperature,
    cut_slope and beta, which control how closely a smooth loss follows its metric; and generator,
    the source of random numbers.
    """

    name: str = option(
        help="module.function, or a value of loss= in ltr train; the prefix name= is optional"
    )
    metric: str | None = option(
        None,
        help="the metric that the loss smooths, if any: ndcg, map, mrr, ... The loss should "
        "approach minus this metric",
    )
    grades: int = option(
        5, at_least=2, help="the number of grades; labels are from 0 to grades - 1"
    )
    knobs: tuple[str, ...] = collected("others")  # settings of the loss, as KNOB=VALUE


@dataclass(frozen=True, kw_only=True)
class CheckMetricOptions:
    """Test the properties that every metric should have. A metric is a function of scores, labels
    and mask that returns one value per list; its other arguments are called knobs.

      ltr check_metric my_metrics.hits@5        your own function
      ltr check_metric hits@5 weight=2          a file in your configs/metric
      ltr check_metric ndcg@10                  a built-in metric

    Your own function must be in the current folder or in a folder on PYTHONPATH.
    The report says of each property that it holds, that it FAILS (with the values that show it), or
    that it does not apply (with the reason). The exit status is 0 if no property fails, 1 if one
    fails, and 2 if the command is wrong. Any other key is a knob of the metric. The tests set the
    cutoff k and the keys of the convention (empty, gain, ties, ...), so you need not type these.
    """

    name: str = option(
        help="a metric, written as in metrics=[...] of ltr train; the prefix name= is optional"
    )
    grades: int = option(
        5, at_least=2, help="the number of grades; labels are from 0 to grades - 1"
    )
    least: float | None = option(
        0.0, help="the smallest value that the metric may have; null = no bound"
    )
    most: float | None = option(
        1.0, help="the largest value that the metric may have; null = no bound"
    )
    knobs: tuple[str, ...] = collected("others")  # settings of the metric, as KNOB=VALUE


@dataclass(frozen=True, kw_only=True)
class CheckModelOptions:
    """Test the properties that every network should have. A network is a function of features, mask
    and ranks that returns scores. The ranks, which most networks ignore, are the positions of the
    items in the data.

      ltr check_model deep hidden=64            a file in configs/model, built-in or your own
      ltr check_model my_models.Deep hidden=64  your own class

    Your own class must be in the current folder or in a folder on PYTHONPATH.
    The report says of each property that it holds, that it FAILS (with the values that show it), or
    that it does not apply (with the reason). For example, the property "an item is scored by its
    own features alone" does not apply to a model that looks at whole lists. The exit status is 0 if
    no property fails, 1 if one fails, and 2 if the command is wrong. Any other key is a setting of
    the model. The command refuses boosted trees and other models that are not networks.
    """

    name: str = option(
        help="a model, written as in model=... of ltr train, or module.Class; the prefix name= "
        "is optional"
    )
    width: int = option(6, at_least=1, help="the number of features of an item")
    knobs: tuple[str, ...] = collected("others")  # settings of the model, as KNOB=VALUE


def check_loss(options: CheckLossOptions) -> tuple[str, bool]:
    """Check the properties of a loss.

    Returns:
        The verdicts as text, and True if no property fails.

    Raises:
        ConfigError: the loss cannot be imported, or a knob is invalid.
    """
    if options.metric is not None and options.metric not in METRICS:
        raise ConfigError(f"metric={options.metric}: choose one of {', '.join(METRICS)}")
    target = options.name
    defaults = dict[str, Any]()
    if "." not in options.name:
        config = loss_config(options.name)
        target = config.target
        defaults = config.values
    function = import_function(target)
    knobs = values_of(options.knobs)
    loss = _with_knobs(options.name, partial(function, **defaults), knobs)
    try:  # If the loss refuses a knob, the user made a mistake, and the loss is not at fault.
        loss(*tiny_lists())
    except LTRError:
        raise
    except Exception:
        pass  # the properties below report it
    metric = options.metric
    if metric is None and function.__module__.startswith("ltr.losses."):
        metric = SHARP_LIMIT_OF.get(function.__name__)
    return _judge_all(LOSS_PROPERTIES, Subject(loss, metric, options.grades))


def check_metric(options: CheckMetricOptions) -> tuple[str, bool]:
    """Check the properties of a metric; the result and the errors are those of ``check_loss``."""
    (metric,) = named_metrics([options.name])
    if metric.is_own and metric.own is None:
        import_function(metric.name)
    knobs = values_of(options.knobs)
    if metric.k is not None and "k" not in inspect.signature(metric.function).parameters:
        raise ConfigError(
            f"{metric} has a cutoff, but its function has no parameter k: write {metric.name}"
        )
    subject = Subject.of_metric(
        metric,
        grades=options.grades,
        lower=-math.inf if options.least is None else options.least,
        upper=math.inf if options.most is None else options.most,
    )
    function = _with_knobs(metric.name, subject.function, knobs)
    return _judge_all(METRIC_PROPERTIES, replace(subject, function=function))


def check_model(options: CheckModelOptions) -> tuple[str, bool]:
    """Check the properties of a network; the result and the errors are those of ``check_loss``."""
    name = options.name
    if "." in name:
        import_function(name)
        config, _ = run_config(_SMALL)
        node = {"_target_": name, "_partial_": True, **values_of(options.knobs)}
        OmegaConf.update(config, "model", OmegaConf.create(node), merge=False)
    else:
        settings = [f"model.{setting}" for setting in options.knobs]
        config, _ = run_config([f"model={name}", *settings, *_SMALL])
    build(config)  # if a setting is wrong, the user made a mistake, and the model is not at fault
    model = build_part(config.model, "model")
    if isinstance(model(options.width), RoundModel):
        raise ConfigError(
            f"{name} is fitted in rounds, but these checks are for networks: name a network"
        )
    return _judge_all(MODEL_PROPERTIES, ModelSubject(model, options.width))


def _judge_all(properties: Sequence[Property], subject: Component) -> tuple[str, bool]:
    """Return a table of the verdicts on ``subject``, and True if no property fails."""
    verdicts = [judge(prop, subject) for prop in properties]
    rows = [[verdict.outcome, verdict.name, verdict.seen] for verdict in verdicts]
    text = tabulate(rows, tablefmt="plain", maxcolwidths=[None, 46, 68])
    outcomes = [verdict.outcome for verdict in verdicts]
    verbs = {HOLDS: "hold", FAILS: "fail", DOES_NOT_APPLY: "do not apply"}
    counts = ", ".join(f"{outcomes.count(outcome)} {verb}" for outcome, verb in verbs.items())
    return f"{text}\n\n{len(verdicts)} properties: {counts}", FAILS not in outcomes


def _with_knobs(
    name: str, function: Callable[..., Any], knobs: dict[str, Any]
) -> Callable[..., Any]:
    """Return ``function`` with ``knobs`` bound; raise ``ConfigError`` if it does not take them."""
    try:
        signature = inspect.signature(function)
        signature.bind(*tiny_lists(), **knobs)
    except (TypeError, ValueError) as error:
        names = ", ".join(list(signature.parameters)[3:]) or "none"
        raise ConfigError(
            f"{name}: {error}: expected a function (scores, labels, mask, *, knobs) that has the "
            f"knobs you set (knobs of {name}: {names})"
        ) from error
    return partial(function, **knobs)
