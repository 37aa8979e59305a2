"""All that can be found wrong before the first trial: settings, the space, the data."""

from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf

from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.experiment.build import Experiment, build
from ltr.experiment.labels import settle
from ltr.search.plan import Plan

SPLITS_READ = ("train", "vali")  # a search never opens test


def check_space(plan: Plan) -> None:
    """Build what every trial has, and try the ends and options of each key of the space.

    Raises:
        ConfigError: naming the key; a combination of keys that fails is left to its trial.
    """
    build(plan.config)
    tried = {key: distribution.tried() for key, distribution in plan.space.items()}
    for turn in range(max(len(values) for values in tried.values())):
        overrides = [f"{key}={values[turn % len(values)]}" for key, values in tried.items()]
        try:
            _build(plan, overrides)
        except ConfigError:
            for override in overrides:  # which of them
                try:
                    _build(plan, [override])
                except ConfigError as error:
                    raise ConfigError(
                        f"space: {override} cannot be had: {error}{_added(plan, override)}"
                    ) from error


def _added(plan: Plan, override: str) -> str:
    """How a key is searched that the config has no value for, such as another of a library's."""
    key = override.partition("=")[0]
    parent, _, last = key.rpartition(".")
    above = OmegaConf.select(plan.config, parent) if parent else None
    if not isinstance(above, DictConfig) or last in above:
        return ""
    return f"; to search a key that the config does not have, write space.+{key}"


def _build(plan: Plan, overrides: Sequence[str]) -> None:
    config, _ = plan.trial(overrides)
    build(config)


def read_lists(experiment: Experiment) -> dict[str, Lists]:
    """The splits that a search reads."""
    return {split: experiment.dataset.split(split) for split in SPLITS_READ}


def digests(plan: Plan) -> dict[str, str]:
    """What identifies the lists of every fold of the search: ``{"fold 1 train": ..., ...}``.

    Raises:
        DataError: a file is not there or malformed.
        ConfigError: the loss or a metric cannot take a label.
    """
    found: dict[str, str] = {}
    for fold, repeat in {repeat.fold: repeat for repeat in plan.repeats}.items():
        config = repeat.set(plan.config)
        experiment = build(config)
        lists = read_lists(experiment)
        settle(config, experiment, lists)
        place = "" if fold is None else f"fold {fold} "
        found |= {f"{place}{split}": part.digest for split, part in lists.items()}
    return found
