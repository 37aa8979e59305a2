"""What is searched: the config of ``configs/search.yaml``, checked, and what it composes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.keys import Kind, flag, flat, text, texts, whole, without
from ltr.errors import ConfigError
from ltr.experiment.identity import run_digest
from ltr.knobs import check_choice
from ltr.search.space import Space, changed_space, named_space

Repeat = tuple[str, ...]  # the overrides of one training of a trial: its fold and its seed


def repeat_name(repeat: Repeat) -> str:
    """The name of its folder; empty where nothing is set.

    >>> repeat_name(("dataset.fold=2", "seed=1"))
    'fold2-seed1'
    """
    return "-".join(one.removeprefix("dataset.").replace("=", "") for one in repeat)


@dataclass(frozen=True)
class Search:
    """A search."""

    cfg: DictConfig  # of the command, checked
    name: str
    trials: int
    overrides: tuple[str, ...]  # for ``train.py``, the same in every trial
    config: DictConfig  # composed from them; its own values are the first trial
    choices: Mapping[str, str]  # of the groups
    space: Space  # what is varied
    repeats: tuple[Repeat, ...]  # a trial's value is the mean over them
    select_value: str | None  # what a trial is worth; None: until the number of lists is known
    folder: Path
    digests: Mapping[str, str] = field(default_factory=dict)  # of its lists, once they are read

    @property
    def metric(self) -> str:
        """What the best epoch is chosen by, on vali."""
        return str(self.config.select_on)

    @property
    def value_name(self) -> str:
        """What a trial is judged by, on vali, such as ``crossfit ndcg@5``."""
        return f"crossfit {self.metric}" if self.select_value == "crossfit" else self.metric

    @property
    def startup(self) -> int:
        """How many trials are drawn at random before the sampler learns."""
        return min(10, max(1, self.trials // 2))

    @property
    def data(self) -> str:
        """The data set, folds and seeds that a value is the mean of, in words."""
        return " ".join([str(self.config.dataset.name), *map(repeat_name, self.repeats)]).strip()

    def trial(self, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
        """The config of a trial that sets ``overrides``, and its choice of each group."""
        return run_config(merged(self.overrides, overrides))

    def default(self, key: str) -> Any:
        """What the config has for ``key``, which may be a group."""
        value = self.choices.get(key, OmegaConf.select(self.config, key))
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def settings(self) -> dict[str, Any]:
        """What makes two searches the same but for data and code: ``{"epochs": 10, ...}``, flat."""
        config: Any = OmegaConf.to_container(self.config, resolve=True)
        del config["monitor"]  # it chooses nothing
        config["init_from"] = run_digest(self.config.init_from)
        config["teacher"] = run_digest(self.config.teacher)
        settings = flat(without(config, Kind.PLACE))
        for key, distribution in self.space.items():
            settings.pop(key, None)
            settings[f"space.{key}"] = str(distribution)
        repeats = [*map(repeat_name, self.repeats)]
        return settings | {"repeats": repeats, "select_value": self.select_value}


def define_search(cfg: DictConfig) -> Search:
    """The search that the config of the command describes; nothing is built or read yet.

    Raises:
        ConfigError: a value, an override, a space, a fold or a seed is wrong.

    >>> from ltr.console.compose import typed
    >>> search = define_search(typed("search", ["space.optimizer.lr=[float,1e-4,0.1,log]"]))
    >>> search.name, str(search.space["optimizer.lr"])
    ('synthetic_transformer_neuralndcg', '[float,0.0001,0.1,log]')
    """
    check_choice("pruner", cfg.pruner, ("median", "none"))
    check_choice("select_value", cfg.select_value or "best", ("crossfit", "best"))
    flag(cfg, "dry_run")
    overrides, changes = split_changes(texts(cfg, "train"))
    config, choices = run_config(overrides)
    fixed = [override.lstrip("+").partition("=")[0] for override in overrides]
    if cfg.select_value == "crossfit" and config.select != "best":
        raise ConfigError(f"select_value=crossfit: select={config.select} chooses no epoch")
    space = named_space(choices, texts(cfg, "space"))
    space = {key: one for key, one in space.items() if key not in fixed}  # not what is set
    space = changed_space(space, changes, choices["model"])
    parts = [choices[group] for group in ("model", "loss") if group in choices]
    name = text(cfg, "name") or "_".join([str(config.dataset.name), *parts])
    return Search(
        cfg=cfg,
        name=name,
        trials=whole(cfg, "trials", least=1),
        overrides=overrides,
        config=config,
        choices=choices,
        space=space,
        repeats=_repeats(cfg, config),
        select_value=text(cfg, "select_value"),
        folder=Path(str(cfg.output_dir)) / "search" / name,
    )


def split_changes(given: Iterable[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The overrides for ``train.py``, and what the command line says of each ``space.KEY``."""
    overrides, changes = [], {}
    parser = OverridesParser.create()
    for override in given:
        key, _, value = override.partition("=")
        try:
            read = parser.parse_override(f"KEY={value}")
        except HydraException:
            read = None  # said when composing
        if key.startswith("space."):
            changes[key.removeprefix("space.")] = value if read is None else read.value()
        elif key == "resume":
            raise ConfigError(f"{override}: a search goes on by itself; leave it out")
        elif read is not None and read.is_sweep_override():
            raise ConfigError(
                f"{override}: give one value; 'space.{key}=[choice,{value}]' searches them, "
                "seeds=1,2 and folds=1,2 take the mean"
            )
        else:
            overrides.append(override)
    return tuple(overrides), changes


def _repeats(cfg: DictConfig, config: DictConfig) -> tuple[Repeat, ...]:
    """Each of ``folds`` with each of ``seeds``; one without overrides where neither is given."""
    folds, seeds = texts(cfg, "folds"), texts(cfg, "seeds")
    if folds == ("all",) and config.dataset.get("folds"):
        folds = tuple(map(str, range(1, config.dataset.folds + 1)))
    given = [("dataset.fold", folds), ("seed", seeds)]
    return tuple(product(*([f"{key}={x}" for x in dict.fromkeys(xs)] for key, xs in given if xs)))
