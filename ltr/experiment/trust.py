"""What a checkpoint's config may bring with it: values, this project's own parts, nothing else.

A config is kept with its values filled in. The only interpolations left in it are ``LINKS``, whole
values such as ``${epochs}`` that follow a key which may change when the run goes on; no resolver is
ever called for a config that comes from a file. Where files are written is the user's to say, so
that is not kept at all.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import ltr.losses
import ltr.models
import ltr.trees
from ltr.console.keys import Resumed, keys
from ltr.errors import CheckpointError, ConfigError
from ltr.experiment.own_code import own_metrics
from ltr.training.settings import Settings

_LINK = re.compile(r"\$\{(" + "|".join(keys(Resumed.TYPED, Resumed.OWN)) + r")\}")

# What is read of every kept config, and of what type; ``object``: its reader checks that.
_READ: dict[str, Any] = {
    **dict.fromkeys((*Settings.names(), "device", "dataset", "model"), object),
    "data_dir": str,
    "metrics": (list, str, type(None)),
    "monitor": (list, str, type(None)),
    "convention": dict,
}

# What each part of a checkpoint's config may be, and nothing that merely lives in the same module.
_OPTIMIZERS = [
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
]
TARGETS: dict[str, frozenset[str]] = {
    "model": frozenset(
        [f"ltr.models.{name}" for name in ltr.models.__all__]
        + [f"ltr.trees.{name}" for name in ("LightGBM", "XGBoost", "CatBoost")]
    ),
    "loss": frozenset(f"ltr.losses.{name}" for name in ltr.losses.__all__ if "_loss" in name),
    "optimizer": frozenset(f"torch.optim.{name}" for name in _OPTIMIZERS),
    "schedule": frozenset(
        f"ltr.training.schedules.{name}" for name in ("constant", "cosine", "step_decay")
    ),
    "transform": frozenset(
        f"ltr.data.transforms.{name}" for name in ("fit_transform", "no_transform")
    ),
    "dataset": frozenset(["ltr.data.files.LetorFiles", "ltr.data.synthetic.SyntheticLists"]),
}


def config_to_keep(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """The config of a run as its checkpoints hold it.

    ``data_dir`` holds from any working directory: one that is not absolute is kept as seen from the
    run folder.
    """
    text: Any = OmegaConf.to_container(cfg)
    kept: Any = _with_links(text, OmegaConf.to_container(cfg, resolve=True), text)
    of_user = keys(Resumed.OWN, Resumed.FOLDER)
    kept = {key: value for key, value in kept.items() if key not in of_user}
    if not Path(kept["data_dir"]).is_absolute():
        kept["data_dir"] = os.path.relpath(kept["data_dir"], folder)
    return kept


def _with_links(text: Any, value: Any, root: Mapping[str, Any]) -> Any:
    """``value``, with those of its ``text`` that are links to what is not itself one."""
    if isinstance(text, str):
        link = _LINK.fullmatch(text)
        return text if link and not _LINK.fullmatch(str(root.get(link[1]))) else value
    if isinstance(text, Mapping) and isinstance(value, Mapping):
        return {key: _with_links(text[key], one, root) for key, one in value.items()}
    if isinstance(text, list) and isinstance(value, list):
        return [_with_links(one, other, root) for one, other in zip(text, value, strict=True)]
    return value


def kept_config(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The config in a checkpoint of ``folder``, not yet trusted; its data lies where it says.

    Raises:
        CheckpointError: it lacks a key that every run has.
    """
    config = dict(content["config"])
    for key, kind in _READ.items():
        if key not in config or not isinstance(config[key], kind):
            raise CheckpointError(
                f"the config in the checkpoint of {folder} has no {key} as train.py writes it: use "
                "another checkpoint"
            )
    if not Path(config["data_dir"]).is_absolute():
        config["data_dir"] = os.path.relpath(folder / config["data_dir"])
    return config


def trusted(
    config: Mapping[str, Any], parts: Sequence[str], trust: Sequence[str] | str = ()
) -> DictConfig:
    """A checkpoint's config after a look at all its texts, and at the ``parts`` to be built.

    Args:
        config: As ``kept_config`` gives it, with what the user sets.
        parts: Which of model, loss, optimizer, schedule, transform and dataset will be built, and
            metrics, if those of the checkpoint will be computed.
        trust: Modules of the user that these may name, besides this project's own parts.

    Raises:
        ConfigError: naming the part and what it would have called.
    """
    try:
        _check_texts(config)
        resolved: Any = OmegaConf.create(dict(config))
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        raise ConfigError(
            f"the checkpoint's config is not one that train.py writes ({error}): use another"
        ) from error
    homes = homes_of(trust)
    for part in parts:
        if part == "metrics":
            for metric in own_metrics(config):
                if not _lives_in(metric, homes):
                    raise _refusal("metric", metric)
            continue
        node = config.get(part)
        if part == "loss" and node is None:
            continue  # boosted with an objective of the library
        target = str(node.get("_target_")) if isinstance(node, Mapping) else "unknown"
        known = target in TARGETS[part] or _lives_in(target, homes)
        if not known or any("_target_" in below for below in _mappings(node) if below is not node):
            raise _refusal(part, target)
        if part != "dataset":
            resolved[part]["_partial_"] = True
        elif "cache_dir" in resolved[part]:
            resolved[part]["cache_dir"] = "${cache_dir}"  # the user's
    return resolved


def _refusal(part: str, target: str) -> ConfigError:
    return ConfigError(
        f"the checkpoint's {part} is {target}, which is not a {part} of this project; if you know "
        "where the file comes from, allow it with trust=[MODULE]"
    )


def homes_of(trust: Sequence[str] | str) -> list[str]:
    """The modules of ``trust=``; one alone may be written without brackets."""
    return [trust] if isinstance(trust, str) else [str(home) for home in trust]


def trusts_trees(trust: Sequence[str] | str) -> bool:
    """Whether ``trust`` names ``ltr.trees``: the trees of a file are then not tried out first."""
    return "ltr.trees" in homes_of(trust)


def _check_texts(config: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where an interpolation is not a link to a plain value."""
    for value in _values(config):
        if isinstance(value, str) and "${" in value:
            link = _LINK.fullmatch(value)
            if link is None:
                raise ValueError(f"{value[:60]!r} in it")
            end = config.get(link[1])
            if isinstance(end, (Mapping, list, tuple)) or (isinstance(end, str) and "${" in end):
                raise ValueError(f"{value!r} in it leads on")


def _values(value: Any) -> Iterator[Any]:
    """All that is in ``value``, itself too."""
    stack = [value]
    while stack:
        value = stack.pop()
        yield value
        if isinstance(value, Mapping):
            stack.extend([*value.keys(), *value.values()])
        elif isinstance(value, (list, tuple)):
            stack.extend(value)


def _mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    return (one for one in _values(value) if isinstance(one, Mapping))


def _lives_in(target: str, homes: Sequence[str]) -> bool:
    """Whether ``target`` is named in, and was defined in, one of the modules ``homes``."""

    def inside(module: str) -> bool:
        return any(f"{module}.".startswith(home.rstrip(".") + ".") for home in homes)

    if not inside(target):
        return False
    try:
        thing = get_object(target)  # e.g. mine.os.system is found, but lives elsewhere
    except (ImportError, AttributeError, ValueError):
        return False
    return callable(thing) and inside(getattr(thing, "__module__", ""))
