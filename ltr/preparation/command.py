"""Prepare the data set that a config of ``configs/prepare_data.yaml`` names."""

from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.values import required
from ltr.data.archives import SETS, published
from ltr.data.lists import SPLITS, Columns, Lists
from ltr.errors import ConfigError
from ltr.experiment.parts import make_dataset
from ltr.preparation.prepare import Report, own_lists, prepare
from ltr.preparation.summary import summarise, table


def prepared(cfg: DictConfig) -> Report:
    """Check and unpack the data set ``cfg.dataset``, fill its cache and count its contents.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    required(cfg, "dataset")
    given: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    target = str(given.get("_target_"))
    if target == "ltr.tabular.files.TableFiles" or not target.startswith("ltr."):
        return _counted(cfg)
    folds: Any = OmegaConf.to_object(cfg.folds) if OmegaConf.is_list(cfg.folds) else cfg.folds
    own = given["name"] not in SETS and given.get("folder") is not None
    dataset = own_lists(given["folder"], data_dir=cfg.data_dir) if own else published(given["name"])
    how_read = {"folder", "width", "labels", "max_grade", "regroup", "vali_share", "seed"}
    return prepare(
        replace(dataset, **{key: given[key] for key in how_read & given.keys()}),
        data_dir=cfg.data_dir,
        cache_dir=cfg.cache_dir,
        archive=cfg.archive,
        folds=folds,
    )


def _counted(cfg: DictConfig) -> Report:
    """What tables, or a data set of one's own class, hold; nothing to unpack or compare with."""
    if cfg.archive is not None or cfg.folds != "all":
        raise ConfigError("this data set has neither archive nor folds: leave both out")
    dataset = make_dataset(cfg.dataset)
    dataset.check()
    lists = {split: dataset.split(split) for split in SPLITS}
    counts = table({(dataset.fold, split): summarise(part) for split, part in lists.items()}, ())
    features = "" if lists["train"].columns is None else f"\n\n{_features(lists['train'])}"
    return Report(f"{counts}{features}", [], "")


def _features(lists: Lists) -> str:
    """The features in a line, each category with the number of its values."""
    columns = lists.columns or Columns(())
    coded = [
        f"{name} (hashed to {values:,})" if isinstance(values, int) else f"{name} ({len(values):,})"
        for name, values in columns.categories.items()
    ]
    of_them = f", categories {', '.join(coded)}" if coded else ""
    return f"{lists.width:,} features: numbers {lists.width - len(coded):,}{of_them}"
