"""The command check_metric: judge a metric by its name, as ``metrics=`` of train.py takes it."""

import inspect

from omegaconf import DictConfig

from ltr.battery import METRIC_PROPERTIES, MetricSubject
from ltr.checks.functions import check_signature, imported, judged, read_knobs
from ltr.console.values import number, required, texts, whole
from ltr.errors import ConfigError
from ltr.experiment.parts import named_metrics


def checked(cfg: DictConfig) -> tuple[str, bool]:
    """The verdicts on the metric of ``configs/check_metric.yaml``, and whether none fails.

    Raises:
        ConfigError: there is no such metric or knob, or fewer than two grades.
    """
    required(cfg, "name")
    (metric,) = named_metrics([str(cfg.name)])
    if metric.is_own and metric.own is None:
        imported(metric.name, "a metric is (scores, labels, mask) -> [batch]")
    knobs = read_knobs(texts(cfg, "knobs"))
    for knob in knobs:
        if knob in ("k", *metric.parts):
            raise ConfigError(
                f"{knob}: the battery tries values of its own; write a cutoff as {metric.name}@5"
            )
    check_signature(metric.name, metric.function, knobs, "metric")
    if metric.k is not None and "k" not in inspect.signature(metric.function).parameters:
        raise ConfigError(f"{metric}: the function takes no k: write {metric.name}")
    subject = MetricSubject(
        metric,
        grades=whole(cfg, "grades", least=2),
        least=None if cfg.least is None else number(cfg, "least"),
        most=None if cfg.most is None else number(cfg, "most"),
    )
    return judged(METRIC_PROPERTIES, subject.with_knobs(**knobs))
