"""The commands check_loss, check_metric and check_model: judge a part, one's own too."""

import copy
import inspect
import logging
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate
from torch import Tensor

from ltr.checks.list_losses import import_function, loss_config
from ltr.checks.loss_properties import GOES_TO, LOSS_PROPERTIES, METRIC_PROPERTIES
from ltr.checks.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.checks.subject import DOES_NOT_APPLY, FAILS, HOLDS, Part, Property, Subject, judge
from ltr.console.compose import run_config, values_of
from ltr.console.keys import flag, number, required, texts, whole
from ltr.errors import ConfigError, LTRError
from ltr.experiment.build import build
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.start import resumed
from ltr.metrics.spec import METRICS
from ltr.models.rounds import RoundModel
from ltr.scorers.parts import make, named_metrics, tiny_lists
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import load_checkpoint

# of the trainings that are compared: short, and all that is drawn and scheduled is in them
_SHORT = (
    "dataset=synthetic", "dataset.queries=12", "list_size=20", "batch_size=3", "schedule=constant",
    "metrics=[ndcg@5]", "select=last", "device=cpu", "patience=null",
)  # fmt: skip


def check_loss(cfg: DictConfig) -> tuple[str, bool]:
    """The verdicts on the loss of ``configs/check_loss.yaml``, and whether none fails."""
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
    try:  # a knob that it refuses is a mistake of the user's, not a finding
        loss(*tiny_lists())
    except LTRError:
        raise
    except Exception:
        pass  # the battery reports it
    own = function.__module__.startswith("ltr.losses.")
    metric = cfg.metric or (GOES_TO.get(function.__name__) if own else None)
    return _judged(LOSS_PROPERTIES, Subject(loss, metric, whole(cfg, "grades", least=2)))


def check_metric(cfg: DictConfig) -> tuple[str, bool]:
    """The verdicts on the metric of ``configs/check_metric.yaml``, and whether none fails."""
    required(cfg, "name")
    (metric,) = named_metrics([str(cfg.name)])
    if metric.is_own and metric.own is None:
        import_function(metric.name)
    knobs = values_of(texts(cfg, "knobs"))
    for knob in knobs.keys() & {"k", *metric.parts}:
        raise ConfigError(
            f"{knob}: the battery tries values of its own; write a cutoff as {metric.name}@5"
        )
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
    """The verdicts on the model of ``configs/check_model.yaml``, and whether none fails."""
    required(cfg, "name")
    name, settings = str(cfg.name), texts(cfg, "knobs")
    if "." in name:
        import_function(name)
        config, _ = run_config(_SHORT)
        node = {"_target_": name, "_partial_": True, **values_of(settings)}
        OmegaConf.update(config, "model", OmegaConf.create(node), merge=False)
    else:
        config, _ = run_config([f"model={name}", *(f"model.{x}" for x in settings), *_SHORT])
    build(config)  # a wrong setting is a mistake of the user's, not a finding
    model, width = make(config.model, "model"), whole(cfg, "width", least=1)
    aware = None if cfg.list_aware is None else flag(cfg, "list_aware")
    quiet = logging.root.manager.disable
    logging.disable(logging.INFO)  # trainings inside say nothing
    try:
        with tempfile.TemporaryDirectory() as folder:
            config.cache_dir = config.dataset.cache_dir = f"{folder}/cache"
            if isinstance(model(width), RoundModel):  # without rounds it scores nothing
                _train(config, Path(folder), 3)
                kept = load_model(Path(folder))
                model, width = lambda _: copy.deepcopy(kept.model), kept.transform.width
            trained = partial(_weights_after, config, Path(folder))
            return _judged(MODEL_PROPERTIES, ModelSubject(model, width, aware, trained))
    finally:
        logging.disable(quiet)


def _judged(properties: Sequence[Property], subject: Part) -> tuple[str, bool]:
    """The verdicts as a table with how many of each there are, and whether none fails."""
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
    """``function`` with ``knobs``; ``ConfigError`` unless it takes (scores, labels, mask) too."""
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


def _train(config: DictConfig, folder: Path, epochs: int) -> None:
    """Train, or resume what is in ``folder``, until so many epochs are done."""
    own = config.copy()
    own.epochs = epochs
    if (folder / "last.pt").is_file():
        own.resume, own.trust = str(folder), [str(config.model._target_).partition(".")[0]]
        own, _ = resumed(own, [f"epochs={epochs}"])
    run(own, folder, {})


def _weights_after(config: DictConfig, parent: Path, epochs: Sequence[int]) -> dict[str, Tensor]:
    """The weights after so many epochs, each time resumed in the run folder, and test scores.

    The bytes of boosted trees may hold the time of their training: their scores stand for them.
    """
    folder = Path(tempfile.mkdtemp(dir=parent))
    for until in accumulate(epochs):
        _train(config, folder, until)
    weights: dict[str, Tensor] = load_checkpoint(folder / "last.pt")["model"]
    weights.pop("_extra_state", None)
    return {**weights, "the test scores": torch.tensor(RunFolder(folder).scores)}
