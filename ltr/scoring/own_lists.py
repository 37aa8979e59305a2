"""The lists of a data set as a kept model reads them."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.data.lists import Dataset, KnowsColumns, Lists
from ltr.experiment.kept import KeptModel, check_columns, trusted
from ltr.experiment.parts import make_dataset


def own_config(cfg: DictConfig, kept: KeptModel, used: list[str]) -> DictConfig:
    """The config of the run of ``kept``, with its ``used`` parts to be built.

    ``cfg`` says where the data is read, or else the run; a cache is the user's own.
    """
    places = {"data_dir": cfg.data_dir or kept.config["data_dir"], "cache_dir": cfg.cache_dir}
    return trusted(kept.config | places, used, cfg.trust)


def lists_for(kept: KeptModel, node: Any, split: str) -> tuple[Dataset, Lists]:
    """The data set of the config ``node``, and its ``split`` with the features of ``kept``.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    if "width" in node and node.width is None:
        OmegaConf.update(node, "width", kept.transform.width)
    dataset = make_dataset(node)
    if kept.columns is not None and isinstance(dataset, KnowsColumns):
        dataset = dataset.with_columns(kept.columns)
    lists = dataset.split(split)
    check_columns(lists, kept.columns)
    return dataset, lists
