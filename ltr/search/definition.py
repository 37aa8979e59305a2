"""What is searched: the config of ``configs/search.yaml``, checked, and what it composes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.configs import CONFIGS, own_keys
from ltr.console.keys import Kind, flat, without
from ltr.console.values import flag, text, texts, whole
from ltr.errors import ConfigError, install
from ltr.experiment.identity import beginning_digest, teacher_digest, training_code
from ltr.experiment.parts import by_rounds
from ltr.search.space import Choice, Range, Space, chosen_space, is_no_knob

PRUNERS = ("median", "none")
SELECT_VALUES = ("crossfit", "best")
# Of vali, from which on a trial is worth its best epoch: at 2,000 that is too high by .001 to .002
# (docs/selection.md), no more than seeds differ by.
FEW_LISTS = 2000
# Of a network's training; to a model by rounds they do nothing, so trials would not differ.
_NOT_OF_ROUNDS = ("optimizer", "schedule", "batch_size", "list_size")
_SEVERAL = {"seed": "seeds", "dataset.fold": "folds"}  # a key of train.py -> our list of its values


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
class Search:
    """A search; what is not listed here is a key of ``configs/search.yaml``.

    Attributes:
        name: of the search.
        arguments: as they were typed.
        overrides: for ``train.py``, the same in every trial.
        config: composed from them; its own values are the first trial.
        choices: of the groups.
        space: what is varied.
        repeats: a trial's value is the mean over them.
        select_value: what a trial is worth; None: until the number of lists is known.
        prune_after: epochs that every training has before its trial may be pruned.
        folder: where the search is kept.
    """

    name: str
    arguments: tuple[str, ...]
    overrides: tuple[str, ...]
    config: DictConfig
    choices: Mapping[str, str]
    space: Space
    repeats: tuple[Repeat, ...]
    select_value: str | None
    prune_after: int
    folder: Path
    trials: int
    workers: int
    n_startup_trials: int
    pruner: str
    sampler_seed: int
    storage: str | None
    write: str | None
    dry_run: bool

    @property
    def metric(self) -> str:
        """What the best epoch is chosen by, on vali."""
        return str(self.config.select_on)

    @property
    def value_name(self) -> str:
        """What a trial is judged by, on vali, such as ``crossfit ndcg@5``."""
        return f"crossfit {self.metric}" if self.select_value == "crossfit" else self.metric

    def trial(self, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
        """The config of a trial that sets ``overrides``, and its choice of each group.

        Raises:
            ConfigError: one of them is wrong.
        """
        return run_config(merged(self.overrides, overrides))

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

    def code(self) -> str:
        """A hash of all code that trains the trials, whatever choice of a group they have."""
        options = [
            f"{key}={option}"
            for key, space in self.space.items()
            if key in self.choices and isinstance(space, Choice)
            for option in space.options
        ]
        return training_code(self.config, *(self.trial([one])[0] for one in options))

    def settings(self) -> dict[str, Any]:
        """What makes two searches the same but for data and code: ``{"epochs": 10, ...}``, flat.

        Raises:
            CheckpointError: a run that they begin with or learn from cannot be read.
        """
        whole: Any = OmegaConf.to_container(self.config, resolve=True)
        del whole["monitor"]  # it chooses nothing
        whole["init_from"] = beginning_digest(self.config.init_from)
        whole["teacher"] = teacher_digest(self.config.teacher)
        found = flat(without(whole, Kind.PLACE))
        for key, distribution in self.space.items():
            found.pop(key, None)
            found[f"space.{key}"] = str(distribution)
        repeats = [str(repeat) for repeat in self.repeats]
        return found | {"repeats": repeats, "select_value": self.select_value}


def need_optuna() -> None:
    """Raise ``ConfigError`` where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ConfigError(f"a search needs Optuna: {install('search')}")


def define_search(cfg: DictConfig) -> Search:
    """The search that the config of the command describes; nothing is built or read yet.

    Raises:
        ConfigError: a value, an override, a space, a fold or a seed is wrong.

    >>> from ltr.console.compose import typed
    >>> search = define_search(typed("search", ["space.optimizer.lr=[float,1e-4,0.1,log]"]))
    >>> search.name, str(search.space["optimizer.lr"])
    ('synthetic_transformer_neuralndcg', '[float,0.0001,0.1,log]')
    """
    overrides, changes = split_changes(texts(cfg, "train"))
    if cfg.pruner not in PRUNERS:
        raise ConfigError(f"pruner={cfg.pruner}: write {' or '.join(PRUNERS)}")
    if cfg.select_value not in (None, *SELECT_VALUES):
        raise ConfigError(
            f"select_value={cfg.select_value}: write {' or '.join(SELECT_VALUES)}, or null"
        )
    if cfg.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", str(cfg.name)):
        raise ConfigError(f"name={cfg.name}: write letters, digits, _, . and - only")
    counts = {key: whole(cfg, key, least=1) for key in ("trials", "workers", "n_startup_trials")}
    sampler_seed, dry_run = whole(cfg, "sampler_seed", least=0), flag(cfg, "dry_run")
    seeds: Sequence[int | None] = _wholes(cfg, "seeds", least=0) or [None]
    every_fold = texts(cfg, "folds") == ("all",)
    some_folds = () if every_fold else _wholes(cfg, "folds", least=1)
    prune_after = None if cfg.prune_after is None else whole(cfg, "prune_after", least=0)

    config, choices = run_config(overrides)
    if cfg.select_value == "crossfit" and config.select != "best":
        raise ConfigError(
            f"select_value=crossfit: select={config.select} chooses no epoch; leave one of them out"
        )
    fixed = [override.lstrip("+").partition("=")[0] for override in overrides]
    for key, several in _SEVERAL.items():
        if key in fixed and texts(cfg, several):
            raise ConfigError(f"{key} and {several} are both set: leave one of them out")
    space = chosen_space(choices, texts(cfg, "space"), changes, fixed)
    _check_read(space, config)
    folds: Sequence[int | None] = _folds(config, some_folds, every=every_fold) or [None]
    parts = [choices[group] for group in ("model", "loss") if group in choices]
    name = text(cfg, "name") or "_".join([str(config.dataset.name), *parts])
    return Search(
        name=name,
        arguments=_arguments(cfg),
        overrides=overrides,
        config=config,
        choices=choices,
        space=space,
        repeats=tuple(Repeat(fold, seed) for fold in folds for seed in seeds),
        select_value=text(cfg, "select_value"),
        prune_after=max(1, _most_epochs(space, config) // 5)
        if prune_after is None
        else prune_after,
        folder=Path(str(cfg.output_dir)) / "search" / name,
        pruner=str(cfg.pruner),
        sampler_seed=sampler_seed,
        storage=text(cfg, "storage"),
        write=text(cfg, "write"),
        dry_run=dry_run,
        **counts,
    )


def value_for(config: DictConfig, fewest: int) -> str:
    """What a trial is worth where the user does not say.

    Args:
        config: of every trial.
        fewest: lists of vali, of the fold that has fewest.
    """
    return "crossfit" if fewest < FEW_LISTS and config.select == "best" else "best"


def split_changes(given: Iterable[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The overrides for ``train.py``, and what the command line says of each ``space.KEY``."""
    overrides, changes = [], {}
    for override in given:
        key, _, value = override.partition("=")
        if key.startswith("space."):
            read = _override(f"KEY={value}")
            if read is None:
                raise ConfigError(
                    f"{override}: cannot be read; write it as [float,LOW,HIGH] or [choice,A,B], "
                    "quoted where the shell asks for it"
                )
            changes[key.removeprefix("space.")] = read.value()
        elif key in _SEVERAL and "," in value:
            raise ConfigError(
                f"{override}: for the mean over several write {_SEVERAL[key]}={value}"
            )
        elif key == "resume" or key.startswith("~"):
            raise ConfigError(f"{override}: a search does not support this; leave it out")
        elif (read := _override(override)) is not None and read.is_sweep_override():
            raise ConfigError(_one_each(override, key, value))
        else:  # what Hydra cannot read is said when composing
            overrides.append(override)
    return tuple(overrides), changes


def _override(argument: str) -> Override | None:
    """``argument`` as Hydra reads it on a command line; None where it cannot."""
    try:
        return OverridesParser.create().parse_override(argument)
    except HydraException:
        return None


def _one_each(argument: str, key: str, value: str) -> str:
    said = f"{argument}: a search has one value of a key: make one search for each"
    # a model and a loss have keys of their own: trials of one could not have those of another
    if is_no_knob(key) or key in ("model", "loss") or re.search(r"[()]", value):
        return said
    return f"{said}, or let the trials differ in it: 'space.{key}=[choice,{value}]'"


def _arguments(cfg: DictConfig) -> tuple[str, ...]:
    """What would be typed for ``cfg``: all that differs from the file."""
    usual: Any = OmegaConf.load(CONFIGS / "search.yaml")
    own = [key for key in own_keys("search") - {"train"} if cfg[key] != usual[key]]
    given = [f"{key}={','.join(texts(cfg, key))}" for key in sorted(own)]
    return (*texts(cfg, "train"), *given)


def _wholes(cfg: DictConfig, key: str, *, least: int) -> tuple[int, ...]:
    words = texts(cfg, key)
    for word in words:
        if not word.isdecimal() or int(word) < least:
            raise ConfigError(f"{key}={','.join(words)}: give whole numbers, such as {key}=1,2")
    return tuple(dict.fromkeys(int(word) for word in words))


def _folds(config: DictConfig, some: Sequence[int], *, every: bool) -> Sequence[int]:
    count = config.dataset.get("folds") or 0
    if every and not count:
        raise ConfigError(f"folds=all: {config.dataset.name} has no folds; leave it out")
    if some and "fold" not in config.dataset:
        raise ConfigError(f"folds: {config.dataset.name} has no folds; leave it out")
    return range(1, count + 1) if every else some


def _most_epochs(space: Space, config: DictConfig) -> int:
    searched = space.get("epochs")
    if searched is None:
        return int(config.epochs)
    if isinstance(searched, Range):
        return int(searched.high)
    # what is no number is named when it is tried
    return max((int(option) for option in searched.options if option.isdecimal()), default=1)


def _check_read(space: Space, config: DictConfig) -> None:
    if "model" in space or not by_rounds(config.model):
        return
    unread = [key for key in space if key.lstrip("+").split(".")[0] in _NOT_OF_ROUNDS]
    if unread:
        raise ConfigError(
            f"space: {', '.join(unread)} {'do' if len(unread) > 1 else 'does'} nothing to boosted "
            "trees: leave out; model.* are their settings"
        )
