"""Prepare the data set that a config of ``configs/prepare_data.yaml`` names."""

from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.values import required
from ltr.data.lists import SPLITS, Dataset
from ltr.data.published.archives import SETS, published
from ltr.data.published.prepare import Report, own_lists, prepare
from ltr.data.published.summary import summarise, table
from ltr.experiment.parts import make_dataset


def prepared(cfg: DictConfig) -> Report:
    """Check and unpack the data set ``cfg.dataset``, fill its cache and count its contents.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    required(cfg, "dataset")
    given: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    if not str(given.get("_target_")).startswith("ltr."):
        return _counted(make_dataset(cfg.dataset))
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


def _counted(dataset: Dataset) -> Report:
    """What a data set of one's own class holds; there is nothing to unpack or to compare with."""
    dataset.check()
    summaries = {(dataset.fold, split): summarise(dataset.split(split)) for split in SPLITS}
    return Report(table(summaries, ()), [], "")
