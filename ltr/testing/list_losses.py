"""The command list_losses: show the losses in ``configs/loss/``, including the user's own.

Importing this module is cheap: torch is only imported to show a loss in full.
"""

import importlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from tabulate import tabulate

from ltr.cli.configs import files_of
from ltr.cli.options import option
from ltr.errors import ConfigError


class LossConfig(NamedTuple):
    """A file of ``configs/loss/``."""

    name: str  # the name in ``loss=NAME``
    target: str  # the function, such as ``ltr.losses.neural_ndcg_loss``
    title: str  # the first comment in the file, which names the paper
    values: dict[str, Any]  # the knobs with their defaults; ``levels`` is 5, as in web data sets
    text: str  # the content of the file


def loss_names() -> list[str]:
    """Return the names that ``loss=`` accepts, sorted."""
    return list(files_of("loss"))


def loss_config(name: str) -> LossConfig:
    """Read the config of the loss ``name``; raise ``ConfigError`` if there is none."""
    if name not in loss_names():
        raise ConfigError(f"{name}: no such loss: choose one of {', '.join(loss_names())}")
    path = files_of("loss")[name]
    text = path.read_text()
    comments = [line for line in text.splitlines() if line[:2] == "# " and "@package" not in line]
    config: Any = OmegaConf.create(text)
    node = config.get("loss", config)  # a file may set other parts of the config too
    if "_target_" not in node:
        raise ConfigError(f"{path} has no _target_: add the line _target_: module.function")
    suggested = {"levels": 5, "gain": "exp2", "pair_weight": None}
    root = OmegaConf.create({"suggested": suggested, "loss": node})
    values: Any = OmegaConf.to_container(root.loss, resolve=True)
    target = str(values["_target_"])
    values = {key: value for key, value in values.items() if not key.startswith("_")}
    return LossConfig(name, target, "".join(comments[:1])[2:], values, text)


def import_function(name: str) -> Callable[..., Any]:
    """Import the function or class ``module.name``; raise ``ConfigError`` if this fails."""
    module, _, attribute = name.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{name} cannot be imported ({type(error).__name__}: {text}): write module.function, "
            "and set PYTHONPATH to the folder that holds the module"
        ) from error
    if not callable(function):
        raise ConfigError(
            f"{name}: expected a function or a class, got a value of the type "
            f"{type(function).__name__}: write module.function"
        )
    return function


@dataclass(frozen=True, kw_only=True)
class ListLossesOptions:
    """List all losses with their papers and settings (knobs), or show the config file, the
    arguments and the formula of one loss.

      ltr list_losses
      ltr list_losses lambdarank

    The page docs/reference/losses.md describes all losses.
    """

    name: str | None = option(
        None, help="the loss to show; null = list all losses; the prefix name= is optional"
    )


def list_losses(options: ListLossesOptions) -> str:
    """Return a table of all losses, or the details of the loss ``options.name``."""
    return all_losses() if options.name is None else details(options.name)


def all_losses() -> str:
    """Return a table of all losses: name, function, title, paper, and knobs with defaults."""
    rows = []
    for config in map(loss_config, loss_names()):
        knobs = " ".join(f"{key}={_knob_text(value)}" for key, value in config.values.items())
        function = config.target.removeprefix("ltr.losses.")
        rows.append([config.name, function, config.title, knobs or "-"])
    headers = ["loss=", "function in ltr.losses", "title and paper", "loss.KNOB=default"]
    return tabulate(rows, headers, disable_numparse=True, maxcolwidths=[None, None, 50, 40])


def _knob_text(value: Any) -> str:
    """Format a value as it is typed after ``=``; zeros in a dictionary are left out."""
    if isinstance(value, dict):
        value = {key: number for key, number in value.items() if number}
    return json.dumps(value, separators=(",", ":")).replace('"', "")


def details(name: str) -> str:
    """Return the details of a loss: its config file, its function and the function's docstring."""
    config = loss_config(name)
    function = import_function(config.target)
    parameters = ", ".join(inspect.signature(function).parameters)
    doc = inspect.getdoc(function) or "It has no docstring."
    return f"loss={name}\n\n{config.text}\n{config.target}({parameters})\n\n{doc}"
