"""A config of ``configs/prepare_data.yaml`` at work."""

from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.data.published.archives import SETS, published
from ltr.data.published.prepare import Report, own_lists, prepare
from ltr.errors import ConfigError


def prepared(cfg: DictConfig) -> Report:
    """Make the data set that ``cfg`` names ready, and count what it holds.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    if cfg.get("dataset") is None:
        raise ConfigError("give dataset=NAME, one of those that --help names")
    given = OmegaConf.to_container(cfg.dataset, resolve=True)
    assert isinstance(given, dict)
    folds: Any = OmegaConf.to_object(cfg.folds) if OmegaConf.is_list(cfg.folds) else cfg.folds
    own = given["name"] not in SETS and given.get("folder") is not None
    dataset = own_lists(given["folder"], data_dir=cfg.data_dir) if own else published(given["name"])
    how_read = ("folder", "width", "labels", "max_grade", "regroup")
    return prepare(
        replace(dataset, **{key: given[key] for key in how_read}),
        data_dir=cfg.data_dir,
        cache_dir=cfg.cache_dir,
        archive=cfg.archive,
        seed=cfg.seed,
        folds=folds,
    )
