"""What every trial of a search starts from: the composed config, the space, folds and seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from ltr.console.compose import run_config
from ltr.console.keys import Kind, without
from ltr.errors import ConfigError
from ltr.search.order import Order
from ltr.search.space import Range, Space, chosen_space

# Of a network's training; to boosted trees they do nothing, so trials would not differ.
_NOT_OF_TREES = ("optimizer", "schedule", "batch_size", "list_size")


@dataclass(frozen=True)
class Repeat:
    """One training of a trial; None leaves the config's own."""

    fold: int | None
    seed: int | None

    def set(self, config: DictConfig) -> DictConfig:
        """A copy of ``config`` with this fold and seed."""
        config = config.copy()
        if self.fold is not None:
            config.dataset.fold = self.fold
        if self.seed is not None:
            config.seed = self.seed
        return config

    def __str__(self) -> str:
        """Such as ``fold2-seed1``; empty where nothing is set."""
        parts = [f"fold{self.fold}"] * (self.fold is not None)
        return "-".join(parts + [f"seed{self.seed}"] * (self.seed is not None))


@dataclass(frozen=True)
class Plan:
    """What a search is of.

    Attributes:
        name: of the search.
        overrides: for ``train.py``, the same in every trial.
        config: composed from them; its own values are the first trial.
        choices: of the groups.
        space: what is varied.
        repeats: a trial's value is the mean over them.
        prune_after: epochs that every training has before its trial may be pruned.
    """

    name: str
    overrides: tuple[str, ...]
    config: DictConfig
    choices: Mapping[str, str]
    space: Space
    repeats: tuple[Repeat, ...]
    prune_after: int

    def trial(self, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
        """The config of a trial that sets ``overrides``, and what it chose of the groups.

        Raises:
            ConfigError: one of them is wrong.
        """
        values = parsed(overrides)
        if any(OmegaConf.select(self.config, key) is None or key in self.choices for key in values):
            return run_config([*self.overrides, *overrides])
        config = self.config.copy()  # a tenth of a second sooner than composed anew
        for key, value in values.items():
            OmegaConf.update(config, key, value)  # as Hydra does
        return config, dict(self.choices)

    def default(self, key: str) -> Any:
        """What the config has for ``key``, which may be a group."""
        if key in self.choices:
            return self.choices[key]
        value = OmegaConf.select(self.config, key)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    @property
    def epochs(self) -> int:
        """The most epochs that a training of a trial has; the first trial's are the config's."""
        return max(_most_epochs(self.space, self.config), int(self.config.epochs))


def make_plan(order: Order) -> Plan:
    """The plan of ``order``; nothing is built or read yet.

    Raises:
        ConfigError: an override, a space, a fold or a seed is wrong.
    """
    config, choices = run_config(order.overrides)
    fixed = [override.lstrip("+").partition("=")[0] for override in order.overrides]
    space = chosen_space(choices, order.space, order.changes, fixed)
    _check_read(space, config)
    folds: Sequence[int | None] = _folds(order, config) or [None]
    seeds: Sequence[int | None] = order.seeds or [None]
    for key, several in (("dataset.fold", order.folds), ("seed", order.seeds)):
        if several and key in fixed:
            many = "folds" if key == "dataset.fold" else "seeds"
            raise ConfigError(f"{key} and {many} are both set: leave one of them out")
    parts = [choices[group] for group in ("model", "loss") if group in choices]
    name = order.name or "_".join([str(config.dataset.name), *parts])
    repeats = tuple(Repeat(fold, seed) for fold in folds for seed in seeds)
    fifth = max(1, _most_epochs(space, config) // 5)
    prune_after = fifth if order.prune_after is None else order.prune_after
    return Plan(name, order.overrides, config, choices, space, repeats, prune_after)


def _most_epochs(space: Space, config: DictConfig) -> int:
    searched = space.get("epochs")
    if searched is None:
        return int(config.epochs)
    if isinstance(searched, Range):
        return int(searched.high)
    # what is no number is named when it is tried
    return max((int(option) for option in searched.options if option.isdecimal()), default=1)


def _check_read(space: Space, config: DictConfig) -> None:
    if "model" in space or not str(config.model._target_).startswith("ltr.trees."):
        return
    unread = [key for key in space if key.lstrip("+").split(".")[0] in _NOT_OF_TREES]
    if unread:
        raise ConfigError(
            f"space: {', '.join(unread)} {'do' if len(unread) > 1 else 'does'} nothing to boosted "
            "trees: leave out; model.* are their settings"
        )


def settings_of(plan: Plan) -> dict[str, Any]:
    """What makes two searches the same but for data and code: ``{"epochs": 10, ...}``, flat."""
    whole: Any = OmegaConf.to_container(plan.config, resolve=True)
    del whole["monitor"]  # it chooses nothing
    flat = dict(_flat(without(whole, Kind.PLACE)))
    for key, distribution in plan.space.items():
        flat.pop(key, None)
        flat[f"space.{key}"] = str(distribution)
    return flat | {"repeats": [str(repeat) for repeat in plan.repeats]}


def _flat(node: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(node, dict):
        return [(prefix, node)]
    dot = "." if prefix else ""
    return [pair for key, value in node.items() for pair in _flat(value, f"{prefix}{dot}{key}")]


def parsed(overrides: Sequence[str]) -> dict[str, Any]:
    """Key and value of each override; a later one replaces an earlier one of the same key."""
    found = OverridesParser.create().parse_overrides(list(overrides))
    return {override.key_or_group: override.value() for override in found}


def _folds(order: Order, config: DictConfig) -> list[int | None]:
    count = config.dataset.get("folds") or 0
    if order.folds == "all":
        if not count:
            raise ConfigError(f"folds=all: {config.dataset.name} has no folds; leave it out")
        return list(range(1, count + 1))
    if order.folds and "fold" not in config.dataset:
        raise ConfigError(f"folds: {config.dataset.name} has no folds; leave it out")
    return [int(fold) for fold in order.folds]
