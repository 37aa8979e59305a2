"""What is searched: the config of ``configs/search.yaml``, checked, and what it composes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.configs import CONFIGS, own_keys
from ltr.console.keys import Kind, flat, without
from ltr.console.values import flag, text, texts, whole
from ltr.errors import ConfigError, install
from ltr.experiment.identity import beginning_digest, teacher_digest, training_code
from ltr.scorers.parts import by_rounds
from ltr.search.space import Choice, Space, chosen_space

# Of vali, from which on a trial is worth its best epoch: at 2,000 that is too high by .001 to .002
# (docs/selection.md), no more than seeds differ by.
FEW_LISTS = 2000
# Of a network's training; to a model by rounds they do nothing, so trials would not differ.
_NOT_OF_ROUNDS = ("optimizer", "schedule", "batch_size", "list_size")
_SEVERAL = {"seed": "seeds", "dataset.fold": "folds"}  # a key of train.py -> our list of its values
_STARTUP = 10  # trials drawn at random


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
        arguments: as they were typed.
        overrides: for ``train.py``, the same in every trial.
        config: composed from them; its own values are the first trial.
        choices: of the groups.
        space: what is varied.
        repeats: a trial's value is the mean over them.
        select_value: what a trial is worth; None: until the number of lists is known.
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
    prune_after: int | None
    folder: Path
    trials: int
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
        """The config of a trial that sets ``overrides``, and its choice of each group."""
        return run_config(merged(self.overrides, overrides))

    def default(self, key: str) -> Any:
        """What the config has for ``key``, which may be a group."""
        if key in self.choices:
            return self.choices[key]
        value = OmegaConf.select(self.config, key)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def code(self) -> str:
        """A hash of all code that trains the trials, whatever choice of a group they have."""
        groups = {key: space for key, space in self.space.items() if key in self.choices}
        options = [
            f"{key}={option}"
            for key, space in groups.items()
            if isinstance(space, Choice)
            for option in space.options
        ]
        return training_code(self.config, *(self.trial([one])[0] for one in options))

    def settings(self) -> dict[str, Any]:
        """What makes two searches the same but for data and code: ``{"epochs": 10, ...}``, flat."""
        config: Any = OmegaConf.to_container(self.config, resolve=True)
        del config["monitor"]  # it chooses nothing
        config["init_from"] = beginning_digest(self.config.init_from)
        config["teacher"] = teacher_digest(self.config.teacher)
        settings = flat(without(config, Kind.PLACE))
        for key, distribution in self.space.items():
            settings.pop(key, None)
            settings[f"space.{key}"] = str(distribution)
        repeats = [str(repeat) for repeat in self.repeats]
        return settings | {"repeats": repeats, "select_value": self.select_value}


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
    for key, known in (
        ("pruner", ("median", "none")),
        ("select_value", ("crossfit", "best", None)),
    ):
        if cfg[key] not in known:
            raise ConfigError(f"{key}={cfg[key]}: write {known[0]} or {known[1]}")
    if cfg.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", str(cfg.name)):
        raise ConfigError(f"name={cfg.name}: write letters, digits, _, . and - only")
    counts = {
        key: None if cfg[key] is None else whole(cfg, key, least=least)
        for key, least in (("n_startup_trials", 1), ("prune_after", 0))
    }
    trials = whole(cfg, "trials", least=1)
    overrides, changes = split_changes(texts(cfg, "train"))
    config, choices = run_config(overrides)
    fixed = [override.lstrip("+").partition("=")[0] for override in overrides]
    for key, several in _SEVERAL.items():
        if key in fixed and texts(cfg, several):
            raise ConfigError(f"{key} and {several} are both set: leave one of them out")
    if cfg.select_value == "crossfit" and config.select != "best":
        raise ConfigError(f"select_value=crossfit: select={config.select} chooses no epoch")
    space = chosen_space(choices, texts(cfg, "space"), changes, fixed)
    unread = [key for key in space if key.lstrip("+").split(".")[0] in _NOT_OF_ROUNDS]
    if unread and "model" not in space and by_rounds(config.model):
        raise ConfigError(
            f"space: boosted trees do not read {', '.join(unread)}: leave out; model.* are their "
            "settings"
        )
    parts = [choices[group] for group in ("model", "loss") if group in choices]
    name = text(cfg, "name") or "_".join([str(config.dataset.name), *parts])
    return Search(
        name=name,
        arguments=_arguments(cfg),
        overrides=overrides,
        config=config,
        choices=choices,
        space=space,
        repeats=tuple(
            Repeat(fold, seed)
            for fold in _folds(cfg, config) or (None,)
            for seed in _wholes(cfg, "seeds") or (None,)
        ),
        select_value=text(cfg, "select_value"),
        prune_after=counts["prune_after"],
        folder=Path(str(cfg.output_dir)) / "search" / name,
        trials=trials,
        n_startup_trials=counts["n_startup_trials"] or min(_STARTUP, max(1, trials // 2)),
        pruner=str(cfg.pruner),
        sampler_seed=whole(cfg, "sampler_seed", least=0),
        storage=text(cfg, "storage"),
        write=text(cfg, "write"),
        dry_run=flag(cfg, "dry_run"),
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
    parser = OverridesParser.create()
    for override in given:
        key, _, value = override.partition("=")
        of_space = key.startswith("space.")
        try:
            read = parser.parse_override(f"KEY={value}" if of_space else override)
        except HydraException:
            if of_space:
                raise ConfigError(f"{override}: cannot be read; write [float,LOW,HIGH]") from None
            read = None  # said when composing
        if of_space and read is not None:
            changes[key.removeprefix("space.")] = read.value()
        elif key == "resume" or key.startswith("~"):
            raise ConfigError(f"{override}: a search does not support this; leave it out")
        elif key in _SEVERAL and "," in value:
            raise ConfigError(
                f"{override}: for the mean over several write {_SEVERAL[key]}={value}"
            )
        elif read is not None and read.is_sweep_override():
            raise ConfigError(
                f"{override}: one value of a key is searched with: make a search for each, or "
                f"let the trials differ in it: 'space.{key}=[choice,{value}]'"
            )
        else:
            overrides.append(override)
    return tuple(overrides), changes


def _arguments(cfg: DictConfig) -> tuple[str, ...]:
    """What would be typed for ``cfg``: all that differs from the file."""
    usual: Any = OmegaConf.load(CONFIGS / "search.yaml")
    own = [key for key in own_keys("search") - {"train"} if cfg[key] != usual[key]]
    given = [f"{key}={','.join(texts(cfg, key))}" for key in sorted(own)]
    return (*texts(cfg, "train"), *given)


def _wholes(cfg: DictConfig, key: str) -> list[int]:
    words = texts(cfg, key)
    if not all(word.isdecimal() for word in words):
        raise ConfigError(f"{key}={','.join(words)}: give whole numbers, such as {key}=1,2")
    return [int(word) for word in dict.fromkeys(words)]


def _folds(cfg: DictConfig, config: DictConfig) -> Sequence[int]:
    every = texts(cfg, "folds") == ("all",)
    folds = range(1, (config.dataset.get("folds") or 0) + 1) if every else _wholes(cfg, "folds")
    if (every and not folds) or (folds and "fold" not in config.dataset):
        raise ConfigError(f"folds: {config.dataset.name} has no folds; leave it out")
    return folds
