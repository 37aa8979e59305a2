"""What a run takes from another (``init_from``, ``teacher``) must fit its features and its test."""

import logging
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.kept import KeptModel, check_columns

log = logging.getLogger(__name__)

_SOURCE = ("_target_", "name", "folder", "path", "split")  # where the lists of a data set are


def check_reads(kept: KeptModel, train: Lists, cfg: DictConfig, key: str) -> None:
    """Check that the run of ``key`` reads features as those of ``train``, and has not seen test.

    Where it was trained on lists of elsewhere, that is said in a line of the log.

    Args:
        kept: the model of the run ``cfg[key]``.
        train: what ``cfg`` trains on.
        key: ``init_from`` or ``teacher``.

    Raises:
        DataError: ``train`` has other features.
        ConfigError: its fold, or its cut of the same lists, is another.
    """
    given = f"{key}={cfg[key]}"
    if kept.transform.width != train.width:
        raise DataError(
            f"{given} was trained on {kept.transform.width} features, train has {train.width}: "
            "give a run on lists with the same features, or leave it out"
        )
    try:
        check_columns(train, kept.columns)
    except DataError as error:
        raise DataError(f"{given}: {error}") from None
    if kept.data.get("train", "") == train.digest:
        return
    ours: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    node = kept.config["dataset"]
    theirs = node if isinstance(node, dict) else {}
    cuts = ("fold", *(("seed", "fractions") if "fractions" in ours else ()))
    other = [name for name in cuts if theirs.get(name) != ours.get(name)]
    if other and all(theirs.get(name) == ours.get(name) for name in _SOURCE):
        name = f"dataset.{other[0]}"
        raise ConfigError(
            f"{given} was trained with {name}={theirs.get(other[0])}, here it is "
            f"{ours.get(other[0])}: it may have seen lists of this test: give a run with the same "
            f"{name}, or set {name} as it was there"
        )
    log.warning(
        "%s was trained on lists of %s, not on these of train: test must have none of them",
        given, theirs.get("name"),
    )  # fmt: skip
