"""The command prepare_data: check, unpack and count a data set."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.prepare import Report, prepare, prepare_other
from ltr.console.values import required
from ltr.errors import ConfigError
from ltr.scorers.parts import make_dataset


def prepare_data(cfg: DictConfig) -> None:
    """Prepare the data set that ``cfg`` names and print what it holds."""
    report = prepared(cfg)
    print(report.table)
    report.check()


def prepared(cfg: DictConfig) -> Report:
    """Check and unpack the data set ``cfg.dataset``, fill its cache and count its contents.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    required(cfg, "dataset")
    given: Any = OmegaConf.to_container(cfg, resolve=True)
    target = str(given["dataset"].get("_target_"))
    if target != "ltr.data.table_files.TableFiles" and target.startswith("ltr."):
        places = {key: given[key] for key in ("data_dir", "cache_dir", "archive", "folds")}
        return prepare(given["dataset"], **places)
    if cfg.archive is not None or cfg.folds != "all":
        raise ConfigError("this data set has neither archive nor folds: leave both out")
    return prepare_other(make_dataset(cfg.dataset))
