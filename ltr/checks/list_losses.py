"""The command list_losses: the files of ``configs/loss/``, the project's and the user's own.

Importing this is cheap: torch is imported where a loss is shown in full.
"""

import importlib
import inspect
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.console.configs import files_of
from ltr.console.keys import flag
from ltr.errors import ConfigError


class LossConfig(NamedTuple):
    """A file of ``configs/loss/``."""

    name: str  # as in ``loss=NAME``
    target: str  # the function, ``ltr.losses.neural_ndcg_loss``
    title: str  # the first comment, which names the paper
    values: dict[str, Any]  # of the knobs; levels are those of the public web data sets
    text: str  # the file


def loss_names() -> list[str]:
    """The names that ``loss=`` takes, sorted."""
    return list(files_of("loss"))


def loss_config(name: str) -> LossConfig:
    """The config of the loss ``name``; ``ConfigError`` if there is none."""
    if name not in loss_names():
        raise ConfigError(f"{name}: no such loss; there are {', '.join(loss_names())}")
    path = files_of("loss")[name]
    text = path.read_text()
    comments = [line for line in text.splitlines() if line[:2] == "# " and "@package" not in line]
    config: Any = OmegaConf.create(text)
    node = config.get("loss", config)  # a file may set other parts of a config beside it
    if "_target_" not in node:
        raise ConfigError(f"{path} has no _target_: write _target_: module.function")
    root = OmegaConf.create({"suggested": {"levels": 5}, "loss": node})
    values: Any = OmegaConf.to_container(root.loss, resolve=True)
    target = str(values["_target_"])
    values = {key: value for key, value in values.items() if not key.startswith("_")}
    return LossConfig(name, target, "".join(comments[:1])[2:], values, text)


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
        knobs = " ".join(f"{key}={_written(value)}" for key, value in one.values.items())
        rows.append([one.name, one.target.removeprefix("ltr.losses."), one.title, knobs or "-"])
    headers = ["loss=", "function in ltr.losses", "what, and its paper", "loss.KNOB=default"]
    if markdown:
        rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        return tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    return tabulate(rows, headers, disable_numparse=True, maxcolwidths=[None, None, 50, 40])


def _written(value: Any) -> str:
    """A value as it is typed behind ``=``; parts of weight 0 are left out."""
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if each}
    return json.dumps(value, separators=(",", ":")).replace('"', "")


def details(name: str) -> str:
    """One loss in full: the file that ``loss=NAME`` reads, the function and its formula."""
    config = loss_config(name)
    function = import_function(config.target)
    parameters = ", ".join(inspect.signature(function).parameters)
    doc = inspect.getdoc(function) or "It has no docstring."
    return f"loss={name}\n\n{config.text}\n{config.target}({parameters})\n\n{doc}"
