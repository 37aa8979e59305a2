"""Define a search from the options of ``ltr search``, and check it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ltr.cli.arguments import merged, with_quotes
from ltr.cli.compose import run_config
from ltr.cli.folders import former_convention
from ltr.cli.keys import FORMER_CONVENTION, Kind, flat, without
from ltr.cli.options import collected, option
from ltr.errors import ConfigError
from ltr.experiment.origins import run_digest
from ltr.knobs import check_choice
from ltr.lab.search.space import Space, change_space, join_spaces

Repeat = tuple[str, ...]  # the overrides of one training run in a trial: its fold and its seed


def repeat_name(repeat: Repeat) -> str:
    """Return the name of the folder for ``repeat``; empty if it sets nothing.

    >>> repeat_name(("dataset.fold=2", "seed=1"))
    'fold2-seed1'
    """
    return "-".join(override.removeprefix("dataset.").replace("=", "") for override in repeat)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Search for the settings of a ranker that are best on the validation lists. The test lists are
    never read.

      ltr search model=mlp loss=neuralndcg dataset=mq2008 trials=50
      ltr search model=mlp 'space.optimizer.lr=[float,1e-5,1e-2,log]' dry_run=true
      ltr search model=linear folds=all seeds=1,2

    'space.KEY=[...]' searches for the best value of KEY, a key of ltr train. The list has the form
    [float,LOW,HIGH], [int,LOW,HIGH], [float,LOW,HIGH,log], [int,LOW,HIGH,log] or [choice,A,B].
    space.KEY=null leaves KEY out of the search. 'space.+KEY=[...]' adds a key that the config does
    not have. Any other key is passed to ltr train; it is the same in all trials and is not
    searched.
    If a search was stopped or killed, the same command continues it. If you also type the command
    in another terminal, or on another machine with the same storage, the two processes share the
    trials.
    """

    trials: int = option(
        50,
        at_least=1,
        help="the number of trials, each of which tries one combination of settings. It includes "
        "trials that fail or that the pruner stops early",
    )
    space: tuple[str, ...] = option(
        (),
        help="files in configs/search, such as mlp,loss/neuralndcg; [] = those of the model and "
        "of the loss",
    )
    name: str | None = option(
        None,
        help="the name of the search; null = the names of the data set, the model and the loss, "
        "joined by underscores",
    )
    folds: tuple[str, ...] = option(
        (),
        help="the folds over which the metric of a trial is averaged: a list such as 1,2, or the "
        "word all; [] = only the fold in the config",
    )
    seeds: tuple[str, ...] = option(
        (),
        help="the seeds over which the metric of a trial is averaged, such as 1,2; [] = only the "
        "seed in the config",
    )
    select_value: str | None = option(
        None,
        help="the number that the search maximises. best: the metric of a trial's best epoch on "
        "the validation lists (of the last epoch if select=last). crossfit: the best epoch is "
        "chosen on one half of these lists and measured on the other half. null = crossfit if "
        "there are fewer than 2,000 lists and select=best, otherwise best",
    )
    pruner: str = option(
        "median",
        help="median: after a fifth of the epochs, stop a trial that is worse than the median of "
        "the others | none: never stop a trial",
    )
    write: str | None = option(
        None,
        help="an extra file for the best settings (search/NAME/best.yaml is always written). If it "
        "is configs/experiment/FILE.yaml, ltr train experiment=FILE reads it. null = no extra file",
    )
    output_dir: str = option("outputs", help="the folder to which search/NAME is written")
    storage: str | None = option(
        None,
        help="a database that several machines share, such as "
        "postgresql+psycopg2://USER@HOST/NAME; null = the file search.db in search/NAME",
    )
    dry_run: bool = option(
        False, help="true = only print the space and the first trial, without training"
    )
    train: tuple[str, ...] = collected(
        "others"
    )  # overrides for ``ltr train``, and changes of the space


@dataclass(frozen=True)
class Search:
    """The definition of a search."""

    options: SearchOptions  # the options of the command
    name: str
    trials: int  # number of trials
    overrides: tuple[str, ...]  # for ``ltr train``, the same in every trial
    config: DictConfig  # composed from ``overrides``; its values are the first trial
    choices: Mapping[str, str]  # the choice of each group in ``config``
    space: Space  # the keys that vary, and what they are drawn from
    repeats: tuple[Repeat, ...]  # a trial is trained once per repeat; its value is the mean
    select_value: str | None  # value of a trial: "crossfit" or "best"; None: not yet decided
    folder: Path
    digests: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the lists, once read

    @property
    def metric(self) -> str:
        """The metric on vali by which the best epoch is chosen."""
        return str(self.config.select_on)

    @property
    def value_name(self) -> str:
        """The name of a trial's value on vali, such as ``crossfit ndcg@5``."""
        return f"crossfit {self.metric}" if self.select_value == "crossfit" else self.metric

    @property
    def startup(self) -> int:
        """Number of trials that are drawn at random before the sampler learns from them."""
        return min(10, max(1, self.trials // 2))

    @property
    def data(self) -> str:
        """The data set, folds and seeds of the search, in words."""
        return " ".join([str(self.config.dataset.name), *map(repeat_name, self.repeats)]).strip()

    def trial(self, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
        """Return the config of a trial that sets ``overrides``, and the choice of each group."""
        return run_config(merged(self.overrides, overrides))

    def default(self, key: str) -> Any:
        """Return the value of ``key`` in the config; for a group, its choice."""
        value = self.choices.get(key, OmegaConf.select(self.config, key))
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def settings(self) -> dict[str, Any]:
        """Return the settings with dotted keys; a search continues only with the same settings."""
        config: Any = OmegaConf.to_container(self.config, resolve=True)
        del config["monitor"]  # does not affect what is chosen
        config["init_from"] = run_digest(self.config.init_from)
        config["teacher"] = run_digest(self.config.teacher)
        config[FORMER_CONVENTION] = former_convention(self.choices)
        settings = flat(without(config, Kind.PLACE))
        for key, distribution in self.space.items():
            settings.pop(key, None)
            settings[f"space.{key}"] = str(distribution)
        repeats = [*map(repeat_name, self.repeats)]
        return settings | {"repeats": repeats, "select_value": self.select_value}


def define_search(options: SearchOptions) -> Search:
    """Define the search that the options of the command describe, without reading any data.

    Raises:
        ConfigError: a value, an override, a space, a fold or a seed is invalid.

    >>> from ltr.cli.compose import typed
    >>> from ltr.cli.options import parse_options
    >>> words = ["space.optimizer.lr=[float,1e-4,0.1,log]"]
    >>> search = define_search(parse_options(SearchOptions, typed("search", words)))
    >>> search.name, str(search.space["optimizer.lr"])
    ('synthetic_transformer_neuralndcg', '[float,0.0001,0.1,log]')
    """
    check_choice("pruner", options.pruner, ("median", "none"))
    check_choice("select_value", options.select_value or "best", ("crossfit", "best"))
    overrides, changes = split_changes(options.train)
    config, choices = run_config(overrides)
    fixed = [override.lstrip("+").partition("=")[0] for override in overrides]
    if options.select_value == "crossfit" and config.select != "best":
        raise ConfigError(
            f"select_value=crossfit: expected select=best, got select={config.select}, which "
            "ignores the validation metric"
        )
    default_space = join_spaces(choices, options.space)
    space = {key: values for key, values in default_space.items() if key not in fixed}
    space = change_space(space, changes, choices["model"])
    groups = [choices[group] for group in ("model", "loss") if group in choices]
    name = options.name or "_".join([str(config.dataset.name), *groups])
    return Search(
        options=options,
        name=name,
        trials=options.trials,
        overrides=overrides,
        config=config,
        choices=choices,
        space=space,
        repeats=_combine_repeats(options.folds, options.seeds, config.dataset.get("folds")),
        select_value=options.select_value,
        folder=Path(options.output_dir) / "search" / name,
    )


def split_changes(arguments: Iterable[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Split arguments into overrides for ``ltr train`` and changes of the space.

    The dict of changes maps KEY to VALUE for each ``space.KEY=VALUE``.

    Raises:
        ConfigError: an override sets ``resume``, or gives several values for a sweep.
    """
    overrides = []
    changes = {}
    parser = OverridesParser.create()
    for override in arguments:
        key, _, value = override.partition("=")
        try:
            parsed = parser.parse_override(f"KEY={with_quotes(override).partition('=')[2]}")
        except HydraException:
            parsed = None  # composing the config reports the error
        if key.startswith("space."):
            changes[key.removeprefix("space.")] = value if parsed is None else parsed.value()
        elif key == "resume":
            raise ConfigError(
                f"{override}: to continue a search, repeat its command; leave out resume"
            )
        elif parsed is not None and parsed.is_sweep_override():
            raise ConfigError(
                f"{override}: expected one value; 'space.{key}=[choice,{value}]' searches over "
                "several values, and seeds=1,2 and folds=1,2 take the mean over several runs"
            )
        else:
            overrides.append(override)
    return tuple(overrides), changes


def _combine_repeats(
    folds: Sequence[str], seeds: Sequence[str], fold_count: int | None
) -> tuple[Repeat, ...]:
    """Combine each of ``folds`` with each of ``seeds``; if both are empty, return ``((),)``."""
    if tuple(folds) == ("all",) and fold_count:
        folds = [str(fold) for fold in range(1, fold_count + 1)]
    fold_overrides = [f"dataset.fold={fold}" for fold in dict.fromkeys(folds)]
    seed_overrides = [f"seed={seed}" for seed in dict.fromkeys(seeds)]
    return tuple(product(*filter(None, [fold_overrides, seed_overrides])))
