"""The command list_losses: the files of ``configs/loss/``, the project's and the user's own.

Importing this is cheap: torch is imported where a loss is shown in full.
"""

import importlib
import inspect
import re
import shlex
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.console.configs import CONFIGS, files_of
from ltr.console.keys import flag
from ltr.errors import ConfigError, as_started

_KNOB = re.compile(r"\s*(?P<name>[a-z_0-9]+): *(?P<value>.*?)(?: +# *(?P<comment>.*))?")
_LABELS = "Labels: "  # so begins the comment that says what counts of them


class LossConfig(NamedTuple):
    """A file of ``configs/loss/``."""

    name: str  # as in ``loss=NAME``
    target: str  # the function, ``ltr.losses.neural_ndcg_loss``
    title: str  # the first comment, which names the paper
    knobs: dict[str, tuple[str, str]]  # default and comment, as the file has them
    values: dict[str, Any]  # of the knobs; levels are those of the public web data sets
    labels: str  # what counts of a label y, as its comment says


def loss_names() -> list[str]:
    """The names that ``loss=`` takes, sorted."""
    return list(files_of("loss"))


def loss_config(name: str) -> LossConfig:
    """The config of the loss ``name``; ``ConfigError`` if there is none."""
    if name not in loss_names():
        raise ConfigError(f"{name}: no such loss; there are {', '.join(loss_names())}")
    path = files_of("loss")[name]
    lines = path.read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ") and "@package" not in line]
    written = {match["name"]: match for match in map(_KNOB.fullmatch, lines) if match}
    config: Any = OmegaConf.load(path)
    node = config.get("loss", config)  # a file may set other parts of a config beside it
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{path} has no _target_: write _target_: module.function")
    root = OmegaConf.create({"suggested": _suggested(), "loss": node})
    values: Any = OmegaConf.to_container(root.loss, resolve=True)
    target = str(values["_target_"])
    values = {key: value for key, value in values.items() if not key.startswith("_")}
    knobs = {}
    for key, resolved in values.items():
        value, comment = written[key].group("value", "comment") if key in written else ("", "")
        if isinstance(resolved, dict):  # parts of weight 0 are names that may be set
            parts = ",".join(f"{part}:{weight}" for part, weight in resolved.items() if weight)
            value, comment = f"{{{parts}}}", comment or value.lstrip("# ")
        elif value.startswith("${suggested."):
            value = str(resolved)
            comment += "; the data set's own where it has another, else found in its labels"
        knobs[key] = (value or str(resolved), comment or "")
    labels = next((c[len(_LABELS) : -1] for c in comments if c.startswith(_LABELS)), "")
    return LossConfig(name, target, comments[0] if comments else "", knobs, values, labels)


@cache
def _suggested() -> Any:
    """``suggested`` of ``train.yaml``, with the grades of the public web data sets."""
    suggested = OmegaConf.load(CONFIGS / "train.yaml").suggested
    return OmegaConf.merge(suggested, {"levels": 5})


def import_function(name: str) -> Callable[..., Any]:
    """The function or class ``module.name``; ``ConfigError`` if it cannot be imported."""
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{name} cannot be imported ({type(error).__name__}: {text}): write module.function, "
            "and name the folder that holds the module by PYTHONPATH=FOLDER"
        ) from error
    if not callable(found):
        raise ConfigError(f"{name} is no function")
    return found


def list_losses(cfg: DictConfig) -> str:
    """The table of all losses, or one in full."""
    markdown = flag(cfg, "markdown")
    return all_losses(markdown=markdown) if cfg.name is None else details(str(cfg.name))


def all_losses(*, markdown: bool = False) -> str:
    """Every loss: its name, function, title with its paper, and its knobs with defaults."""
    rows = []
    for one in map(loss_config, loss_names()):
        knobs = " ".join(f"{key}={value}" for key, (value, _) in one.knobs.items())
        rows.append([one.name, one.target.removeprefix("ltr.losses."), one.title, knobs or "-"])
    headers = ["loss=", "function in ltr.losses", "what, and its paper", "loss.KNOB=default"]
    if markdown:
        rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        return tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    return tabulate(rows, headers, disable_numparse=True, maxcolwidths=[None, None, 50, 40])


def details(name: str) -> str:
    """One loss in full: formula, knobs with their comments, and a command that uses it."""
    config = loss_config(name)
    function = import_function(config.target)
    rows = [[f"loss.{knob}", *said] for knob, said in config.knobs.items()]
    knobs = tabulate(rows, tablefmt="plain", disable_numparse=True) or "none"
    first = [
        f"loss.{knob}={5 if knob == 'k' else value}" for knob, (value, _) in config.knobs.items()
    ]
    typed = shlex.join([*as_started("train").split(), f"loss={name}", *first[:1]])
    return f"""{name}: {config.title}

{config.target}({", ".join(inspect.signature(function).parameters)})

{inspect.getdoc(function) or "It has no docstring."}

Labels
{config.labels or "not said"} (docs/labels.md: a table of all losses)

Knobs and their defaults
{knobs}

For example
  {typed}"""
