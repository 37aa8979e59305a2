"""The commands list_losses and check_loss: read ``configs/loss/``, import a loss, judge it.

Importing this is cheap: torch is imported where a loss is checked.
"""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tabulate import tabulate

from ltr.console.configs import CONFIGS, hint
from ltr.console.values import required, texts, whole
from ltr.errors import ConfigError, LTRError
from ltr.metrics.spec import METRICS

if TYPE_CHECKING:  # both import torch
    from ltr.battery import Subject, Verdict

_KNOB = re.compile(r"\s*(?P<name>[a-z_0-9]+): *(?P<value>.*?)(?: +# *(?P<comment>.*))?")


@dataclass(frozen=True)
class Knob:
    """A knob: its name, its default and the comment beside it, as its file has them."""

    name: str
    value: str
    comment: str


@dataclass(frozen=True)
class LossConfig:
    """A file of ``configs/loss/``."""

    name: str  # as in ``loss=NAME``
    target: str  # the function, ``ltr.losses.neural_ndcg_loss``
    title: str  # the first comment, which names the paper
    knobs: tuple[Knob, ...]  # in the order of the file

    def values(self) -> dict[str, Any]:
        """The knobs' values; the number of grades is that of the public web data sets."""
        root = OmegaConf.create({"suggested": _suggested(), "loss": _node(self.name)})
        values: Any = OmegaConf.to_container(root.loss, resolve=True)
        return {name: value for name, value in values.items() if not name.startswith("_")}


def loss_names() -> list[str]:
    """The names that ``loss=`` takes, sorted."""
    return sorted(path.stem for path in (CONFIGS / "loss").glob("*.yaml"))


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
    lines = (CONFIGS / "loss" / f"{name}.yaml").read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ") and "@package" not in line]
    written = {match["name"]: match for match in map(_KNOB.fullmatch, lines) if match}
    knobs = [written[str(key)] for key in node if not str(key).startswith("_")]
    return LossConfig(
        name=name,
        target=str(node["_target_"]),
        title=comments[0] if comments else "",
        knobs=tuple(_knob(knob["name"], knob["value"], knob["comment"] or "") for knob in knobs),
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
    config: Any = OmegaConf.load(CONFIGS / "loss" / f"{name}.yaml")
    return config.get("loss", config)


def all_losses(*, markdown: bool = False) -> str:
    """Every loss: its name, function, title with its paper, and its knobs with defaults."""
    rows = []
    for config in map(loss_config, loss_names()):
        knobs = [f"{knob.name}={knob.value}" for knob in config.knobs]
        function = config.target.rpartition(".")[2]
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
    example = f"python train.py loss={name}"
    if config.knobs:
        first = config.knobs[0]
        example += f" loss.{first.name}={'5' if first.name == 'k' else first.value}"
    parts = [
        f"{name}: {config.title}",
        f"{config.target}{plain}",
        inspect.getdoc(function) or "It has no docstring.",
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
    from ltr.battery import FAILS, PROPERTIES, judge

    subject = named_loss(str(cfg.name), read_knobs(texts(cfg, "knobs")))
    subject.metric = cfg.metric or subject.metric
    subject.grades = whole(cfg, "grades", least=2)
    verdicts = [judge(prop, subject) for prop in PROPERTIES]
    return report(verdicts), all(verdict.outcome != FAILS for verdict in verdicts)


def report(verdicts: Sequence["Verdict"]) -> str:
    """The verdicts as a table, and how many of each there are."""
    rows = [[verdict.outcome, verdict.name, verdict.seen] for verdict in verdicts]
    text = tabulate(rows, tablefmt="plain", maxcolwidths=[None, 46, 68])
    outcomes = [verdict.outcome for verdict in verdicts]
    words = {"holds": "hold", "FAILS": "fail", "does not apply": "do not apply"}
    counts = [f"{outcomes.count(outcome)} {word}" for outcome, word in words.items()]
    return f"{text}\n\n{len(verdicts)} properties: {', '.join(counts)}"


def read_knobs(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse ``knob=value`` as on the command line of ``train.py``, values in YAML.

    Raises:
        ConfigError: an argument is not of this form.

    >>> read_knobs(["k=5", "tol=1e-3", "pairs=both", "temperature=null"])
    {'k': 5, 'tol': 0.001, 'pairs': 'both', 'temperature': None}
    """
    knobs: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        try:
            read: Any = OmegaConf.to_container(OmegaConf.create(f"value: {value}"), resolve=True)
        except (OmegaConfBaseException, ValueError) as error:
            raise ConfigError(f"{argument}: write knob=value, such as k=5") from error
        except Exception as error:  # a YAML error, whose class is of a library we do not name
            raise ConfigError(f"{argument}: {value} is not a value in YAML") from error
        if not equals or not name:
            raise ConfigError(f"{argument}: write knob=value, such as k=5")
        knobs[name] = read["value"]
    return knobs


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
    _check_signature(name, function, knobs)

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


def imported(name: str) -> Callable[..., Any]:
    """The function ``module.function``.

    Raises:
        ConfigError: it cannot be imported.
    """
    module_name, _, function_name = name.rpartition(".")
    if not module_name.strip(".") or not function_name:
        raise ConfigError(f"{name}: write module.function, such as my.module.my_loss")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if f"{module_name}.".startswith(f"{missing}."):
            raise ConfigError(
                f"{name}: there is no module {missing}; start in the folder that holds it, or name "
                "that folder with PYTHONPATH=FOLDER"
            ) from error
        raise ConfigError(f"{module_name} needs {missing}, which is not installed") from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{module_name} cannot be imported, mend it first: {type(error).__name__}: {text}"
        ) from error
    function = getattr(module, function_name, None)
    if function is None:
        functions = [key for key, value in vars(module).items() if callable(value)]
        functions = [key for key in functions if not key.startswith("_")]
        close = difflib.get_close_matches(function_name, functions, n=3, cutoff=0.5)
        there = ", ".join(close or functions[:20]) or "no function"
        raise ConfigError(f"{module_name} has no {function_name}; it has {there}")
    if not callable(function):
        raise ConfigError(f"{name} is no function: a loss is (scores, labels, mask) -> [batch]")
    return function


def _check_signature(name: str, function: Callable[..., Any], knobs: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise ConfigError(f"{name} has no signature: write a function in Python") from error
    parameters = list(signature.parameters.values())
    data = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:3]
    if len(data) < 3:
        raise ConfigError(
            f"{name}{signature}: a loss takes (scores, labels, mask, *, knobs) and returns one "
            "value per list; wrap yours in such a function"
        )
    known = [p.name for p in parameters[3:] if p.kind is not p.VAR_KEYWORD]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for knob in knobs:
        if knob not in known and not takes_any:
            raise ConfigError(
                f"{knob}: {name} has no such knob; it has {', '.join(known) or 'none'}"
                + hint(knob, known)
            )
    for p in parameters[3:]:
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in knobs:
            raise ConfigError(f"{name} needs a value of {p.name}: add {p.name}=VALUE")
