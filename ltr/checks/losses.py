"""The commands list_losses and check_loss: read ``configs/loss/``, import a loss, judge it.

Importing this is cheap: torch is imported where a loss is checked.
"""

import inspect
import re
import shlex
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.checks.functions import check_signature, imported, judged, read_knobs
from ltr.console.configs import CONFIGS, files_of, hint
from ltr.console.values import required, texts, whole
from ltr.errors import ConfigError, LTRError, as_started
from ltr.metrics.spec import METRICS

if TYPE_CHECKING:  # imports torch
    from ltr.battery import Subject

_KNOB = re.compile(r"\s*(?P<name>[a-z_0-9]+): *(?P<value>.*?)(?: +# *(?P<comment>.*))?")

_LABELS = "Labels: "  # so begins the comment that says what counts of them


@dataclass(frozen=True)
class Knob:
    """A knob: its name, its default and the comment beside it, as its file has them."""

    name: str
    value: str
    comment: str


@dataclass(frozen=True)
class LossConfig:
    """A file of ``configs/loss/``, the project's or the user's own."""

    name: str  # as in ``loss=NAME``
    target: str  # the function, ``ltr.losses.neural_ndcg_loss``
    title: str  # the first comment, which names the paper
    knobs: tuple[Knob, ...]  # in the order of the file
    labels: str = ""  # what counts of a label y, as its comment says

    def values(self) -> dict[str, Any]:
        """The knobs' values; the number of grades is that of the public web data sets."""
        root = OmegaConf.create({"suggested": _suggested(), "loss": _node(self.name)})
        values: Any = OmegaConf.to_container(root.loss, resolve=True)
        return {name: value for name, value in values.items() if not name.startswith("_")}


def loss_names() -> list[str]:
    """The names that ``loss=`` takes, sorted."""
    return list(files_of("loss"))


def loss_config(name: str) -> LossConfig:
    """The config of the loss ``name``.

    Raises:
        ConfigError: there is no such file; the message names those there are.
    """
    if name not in loss_names():
        raise ConfigError(
            f"{name}: no such loss; there are {', '.join(loss_names())}" + hint(name, loss_names())
        )
    node = _node(name)
    lines = files_of("loss")[name].read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ") and "@package" not in line]
    written = {match["name"]: match for match in map(_KNOB.fullmatch, lines) if match}
    plain: Any = OmegaConf.to_container(node)
    knobs = []
    for key in (key for key in plain if not key.startswith("_")):
        line = written.get(key)
        value, comment = line.group("value", "comment") if line else (str(plain[key]), None)
        if isinstance(plain[key], dict):  # weights of 0 are names that may be set
            parts = ",".join(f"{name}:{one}" for name, one in plain[key].items() if one)
            value, comment = f"{{{parts}}}", comment or value.lstrip("# ")
        knobs.append(_knob(key, value, comment or ""))
    return LossConfig(
        name=name,
        target=str(node["_target_"]),
        title=comments[0] if comments else "",
        knobs=tuple(knobs),
        labels=next((c[len(_LABELS) : -1] for c in comments if c.startswith(_LABELS)), ""),
    )


def _knob(name: str, value: str, comment: str) -> Knob:
    if value.startswith("${suggested."):
        value = str(_suggested()[value[len("${suggested.") : -1]])
        comment += "; the data set's own where it has another, else found in its labels"
    return Knob(name, value, comment)


@cache
def _suggested() -> Any:
    """``suggested`` of ``train.yaml``, with the grades of the public web data sets."""
    suggested = OmegaConf.load(CONFIGS / "train.yaml").suggested
    return OmegaConf.merge(suggested, {"levels": 5})


def _node(name: str) -> Any:
    """The part of a file that is the loss; a file may set other parts of a config beside it."""
    path = files_of("loss")[name]
    config: Any = OmegaConf.load(path)
    node = config.get("loss", config)
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{path} has no _target_: write _target_: module.function")
    return node


def all_losses(*, markdown: bool = False) -> str:
    """Every loss: its name, function, title with its paper, and its knobs with defaults."""
    rows = []
    for config in map(loss_config, loss_names()):
        knobs = [f"{knob.name}={knob.value}" for knob in config.knobs]
        function = config.target.removeprefix("ltr.losses.")
        rows.append([config.name, function, config.title, " ".join(knobs) or "-"])
    headers = ["loss=", "function in ltr.losses", "what, and its paper", "loss.KNOB=default"]
    if markdown:
        rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        return tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    return tabulate(
        rows, headers, disable_numparse=True, maxcolwidths=[None, None, 50, 40], tablefmt="simple"
    )


def details(name: str) -> str:
    """One loss in full: formula, knobs with their comments, and a command that uses it.

    Raises:
        ConfigError: there is no such loss.
    """
    config = loss_config(name)
    rows = [[f"loss.{knob.name}", knob.value, knob.comment] for knob in config.knobs]
    knobs = tabulate(rows, tablefmt="plain", disable_numparse=True) if rows else "none"
    function = imported(config.target)
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    plain = signature.replace(parameters=bare, return_annotation=signature.empty)
    example = f"{as_started('train')} loss={name}"
    if config.knobs:
        first = config.knobs[0]
        value = "5" if first.name == "k" else first.value
        example += f" {shlex.quote(f'loss.{first.name}={value}')}"
    parts = [
        f"{name}: {config.title}",
        f"{config.target}{plain}",
        inspect.getdoc(function) or "It has no docstring.",
        f"Labels\n{config.labels or 'not said'} (docs/labels.md: a table of all losses)",
        f"Knobs and their defaults\n{knobs}",
        f"For example\n  {example}",
    ]
    return "\n\n".join(parts)


def checked(cfg: DictConfig) -> tuple[str, bool]:
    """The verdicts on the loss of a config of ``configs/check_loss.yaml``, and whether none fails.

    Raises:
        ConfigError: there is no such loss, metric or knob, or fewer than two grades.
    """
    required(cfg, "name")
    if cfg.metric is not None and cfg.metric not in METRICS:
        raise ConfigError(f"metric={cfg.metric}: choose one of {', '.join(METRICS)}")
    from ltr.battery import LOSS_PROPERTIES

    subject = named_loss(str(cfg.name), read_knobs(texts(cfg, "knobs")))
    subject.metric = cfg.metric or subject.metric
    subject.grades = whole(cfg, "grades", least=2)
    return judged(LOSS_PROPERTIES, subject)


def named_loss(name: str, knobs: dict[str, Any]) -> "Subject":
    """The loss of a config, or the function ``module.function``, with ``knobs`` set.

    Raises:
        ConfigError: there is no such loss, module, function or knob, or a value is out of range.
    """
    values: dict[str, Any] = {}
    if "." in name:
        function = imported(name)
    elif name in loss_names():
        config = loss_config(name)
        function, values = imported(config.target), config.values()
    else:
        raise ConfigError(
            f"{name}: no such loss; write module.function, or one of {', '.join(loss_names())}"
            + hint(name, loss_names())
        )
    check_signature(name, function, knobs)

    import torch

    from ltr.battery import GOES_TO, Subject

    own = function.__module__.startswith("ltr.losses.")
    metric = GOES_TO.get(function.__name__) if own else None
    subject = Subject(partial(function, **{**values, **knobs}), metric=metric)
    scores, labels = torch.tensor([[0.3, -0.2]]), torch.tensor([[0.0, 1.0]])
    try:  # a knob that it refuses is a mistake of the user's, not a finding
        subject.loss(scores, labels, torch.ones(1, 2, dtype=torch.bool))
    except LTRError:
        raise
    except Exception:
        pass  # the battery reports it
    return subject
