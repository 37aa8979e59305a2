"""The commands check_loss, check_metric and check_model: judge a part, one's own too."""

import copy
import inspect
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate
from torch import Tensor, nn

from ltr.checks.list_losses import import_function, loss_config
from ltr.checks.loss_properties import GOES_TO, LOSS_PROPERTIES
from ltr.checks.metric_properties import METRIC_PROPERTIES, MetricSubject
from ltr.checks.model_properties import MODEL_PROPERTIES, ModelSubject
from ltr.checks.subject import DOES_NOT_APPLY, FAILS, HOLDS, Property, Subject, judge
from ltr.console.compose import run_config
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
    name, knobs = str(cfg.name), _read_knobs(cfg)
    if cfg.metric is not None and cfg.metric not in METRICS:
        raise ConfigError(f"metric={cfg.metric}: choose one of {', '.join(METRICS)}")
    if "." in name:
        loss = import_function(name)
    else:
        config = loss_config(name)
        loss = partial(import_function(config.target), **config.values)
    _check_knobs(name, loss, knobs)
    loss = partial(loss, **knobs)
    try:  # a knob that it refuses is a mistake of the user's, not a finding
        loss(*tiny_lists())
    except LTRError:
        raise
    except Exception:
        pass  # the battery reports it
    own = loss.func.__module__.startswith("ltr.losses.")
    metric = cfg.metric or (GOES_TO.get(loss.func.__name__) if own else None)
    subject = Subject(loss, metric=metric, grades=whole(cfg, "grades", least=2))
    return _judged(LOSS_PROPERTIES, subject)


def check_metric(cfg: DictConfig) -> tuple[str, bool]:
    """The verdicts on the metric of ``configs/check_metric.yaml``, and whether none fails."""
    required(cfg, "name")
    (metric,) = named_metrics([str(cfg.name)])
    if metric.is_own and metric.own is None:
        import_function(metric.name)
    knobs = _read_knobs(cfg)
    for knob in knobs.keys() & {"k", *metric.parts}:
        raise ConfigError(
            f"{knob}: the battery tries values of its own; write a cutoff as {metric.name}@5"
        )
    _check_knobs(metric.name, metric.function, knobs)
    if metric.k is not None and "k" not in inspect.signature(metric.function).parameters:
        raise ConfigError(f"{metric}: the function takes no k: write {metric.name}")
    subject = MetricSubject(
        metric,
        grades=whole(cfg, "grades", least=2),
        least=None if cfg.least is None else number(cfg, "least"),
        most=None if cfg.most is None else number(cfg, "most"),
    )
    return _judged(METRIC_PROPERTIES, subject.with_knobs(**knobs))


def check_model(cfg: DictConfig) -> tuple[str, bool]:
    """The verdicts on the model of ``configs/check_model.yaml``, and whether none fails."""
    required(cfg, "name")
    name, settings = str(cfg.name), texts(cfg, "knobs")
    if "." in name:
        import_function(name)
        config, _ = run_config(_SHORT)
        node = {"_target_": name, "_partial_": True, **_read_knobs(cfg)}
        OmegaConf.update(config, "model", OmegaConf.create(node), merge=False)
    else:
        config, _ = run_config([f"model={name}", *(f"model.{x}" for x in settings), *_SHORT])
    build(config)  # a wrong setting is a mistake of the user's, not a finding
    model, width = make(config.model, "model"), whole(cfg, "width", least=1)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        config.cache_dir = config.dataset.cache_dir = f"{folder}/cache"
        if isinstance(model(width), RoundModel):  # without rounds it scores nothing
            model, width = _after_three_rounds(config, Path(folder))
        subject = ModelSubject(
            model,
            width=width,
            list_aware=None if cfg.list_aware is None else flag(cfg, "list_aware"),
            trained=partial(_trained, config, Path(folder)),
        )
        return _judged(MODEL_PROPERTIES, subject)


def _judged(properties: Sequence[Property], subject: Any) -> tuple[str, bool]:
    """The verdicts as a table with how many of each there are, and whether none fails."""
    verdicts = [judge(prop, subject) for prop in properties]
    rows = [[verdict.outcome, verdict.name, verdict.seen] for verdict in verdicts]
    text = tabulate(rows, tablefmt="plain", maxcolwidths=[None, 46, 68])
    outcomes = [verdict.outcome for verdict in verdicts]
    words = {HOLDS: "hold", FAILS: "fail", DOES_NOT_APPLY: "do not apply"}
    counts = ", ".join(f"{outcomes.count(outcome)} {word}" for outcome, word in words.items())
    return f"{text}\n\n{len(verdicts)} properties: {counts}", FAILS not in outcomes


def _read_knobs(cfg: DictConfig) -> dict[str, Any]:
    """``knob=value`` as on the command line of ``train.py``, values in YAML."""
    knobs: dict[str, Any] = {}
    for argument in texts(cfg, "knobs"):
        name, _, value = argument.partition("=")
        try:
            node = OmegaConf.create(f"value: {value}")
        except yaml.YAMLError as error:
            raise ConfigError(f"{argument}: {value} is not a value in YAML") from error
        knobs |= {name: OmegaConf.to_container(node)["value"]}  # type: ignore[call-overload, index]
    return knobs


def _check_knobs(name: str, function: Callable[..., Any], knobs: dict[str, Any]) -> None:
    """Raise ``ConfigError`` unless it is called as (scores, labels, mask) with these knobs."""
    try:
        signature = inspect.signature(function)
        signature.bind(*tiny_lists(), **knobs)
    except (TypeError, ValueError) as error:
        known = ", ".join(list(signature.parameters)[3:]) or "none"
        raise ConfigError(
            f"{name}: {error}: write a function (scores, labels, mask, *, knobs), whose "
            f"knobs are now {known}"
        ) from error


def _trained(config: DictConfig, parent: Path, epochs: Sequence[int]) -> dict[str, Tensor]:
    """The weights after so many epochs, each time resumed in the run folder, and test scores.

    The bytes of boosted trees may hold the time of their training: their scores stand for them.
    """
    folder = Path(tempfile.mkdtemp(dir=parent))
    trust = str(config.model._target_).partition(".")[0]
    for times, until in enumerate(accumulate(epochs)):
        own = config.copy()
        own.epochs = until
        if times:
            own.resume, own.trust = str(folder), [trust]
            own, _ = resumed(own, [f"epochs={until}"])
        run(own, folder, {})
    weights: dict[str, Tensor] = load_checkpoint(folder / "last.pt")["model"]
    weights.pop("_extra_state", None)
    return {**weights, "the test scores": torch.tensor(RunFolder(folder).scores)}


def _after_three_rounds(config: DictConfig, parent: Path) -> tuple[Callable[[int], nn.Module], int]:
    """A model of three rounds, to be copied, and its number of features."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    own = config.copy()
    own.epochs = 3
    run(own, folder, {})
    kept = load_model(folder)
    return lambda width: copy.deepcopy(kept.model), kept.transform.width


@contextmanager
def _quiet() -> Iterator[None]:
    """Trainings inside say nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
