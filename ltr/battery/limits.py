"""The limit of a relaxation: the exact metric."""

import inspect
from pkgutil import resolve_name

import torch

from ltr.battery.findings import DoesNotApply, expect_close
from ltr.battery.lists import ragged
from ltr.battery.subject import Subject
from ltr.errors import ConfigError
from ltr.metrics.spec import METRICS


def the_sharp_limit_is_minus_the_metric(loss: Subject) -> None:
    """Sharp and well separated, the loss is minus its metric at every k, with padding and without.

    An empty list is worth 0. Knobs that the metric has too, such as ``relevant``, go to both.
    """
    if loss.metric is None:
        raise DoesNotApply("no metric is named that it goes to")
    metric = resolve_name(METRICS[loss.metric][0])
    shared = set(inspect.signature(metric).parameters) & set(loss.knobs) - {"k"}
    knobs = {name: loss.knobs[name] for name in sorted(shared)} | {"empty": 0.0}
    scores, labels, mask = ragged()
    scores = 50 * scores.argsort(-1).to(scores.dtype)
    labels = labels * torch.tensor([[1.0], [1.0], [0.0]], dtype=labels.dtype)
    sharp = loss.sharp()
    for k in (None, 1, 2, 3, 4, 5, 6, 99) if "k" in loss.knobs else [None]:
        at = sharp.at(k) if "k" in loss.knobs else sharp
        for given in (mask, torch.ones_like(mask)):
            try:
                exact = metric(scores, labels, given, k=k, **knobs)
            except ConfigError as error:
                raise DoesNotApply(f"there is no exact metric: {error}") from error
            found = at.measure(scores, labels, given).value
            expect_close(found, -exact, "value", f"from minus {loss.metric} at k={k}",
                         tolerance=1e-9)  # fmt: skip
