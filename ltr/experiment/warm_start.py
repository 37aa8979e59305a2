"""What a run takes from another: its weights (``init_from``), or its scores (``teacher``)."""

import logging
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from ltr.data.lists import Dataset, KnowsColumns, Lists
from ltr.errors import ConfigError, DataError
from ltr.scorers.ensemble import Ensemble
from ltr.scorers.scorer import Scorer, check_columns, load_model

log = logging.getLogger(__name__)

_SOURCE = ("_target_", "name", "folder", "path", "split")  # where the lists of a data set are


def warm_start(cfg: DictConfig, train: Lists, device: torch.device) -> Scorer:
    """The network ``cfg.init_from``, which reads features as those of ``train``.

    Raises:
        CheckpointError, ConfigError: see ``load_model``.
        DataError, ConfigError: see ``check_reads``.
        ConfigError: ``cfg.transform`` is another than that of the run.
    """
    scorer = load_model(cfg.init_from, device, cfg.trust)
    if isinstance(scorer.model, Ensemble):
        raise ConfigError(
            f"init_from={cfg.init_from} is an ensemble, whose weights no network has: give one of "
            "its members' runs"
        )
    check_reads(scorer, train, cfg, "init_from")
    ours, theirs = OmegaConf.to_container(cfg.transform, resolve=True), scorer.config["transform"]
    if ours != theirs:
        raise ConfigError(
            f"init_from={cfg.init_from} begins with that run's transform of features, {theirs}; "
            f"here it is {ours}: set transform=... as it was there"
        )
    return scorer


def take_weights(model: nn.Module, begun: nn.Module, path: str) -> None:
    """Give ``model`` the weights of ``begun``; ``ConfigError`` where names or shapes differ."""
    try:
        model.load_state_dict(begun.state_dict())
    except RuntimeError as error:
        text = " ".join(str(error).split()[:60])
        raise ConfigError(
            f"init_from={path}: {text}: give the model.* settings of that run, or leave it out"
        ) from None


def with_its_categories(cfg: DictConfig, dataset: Dataset, folder: Path) -> Dataset:
    """``dataset`` with the categories listed as for ``cfg.init_from``, whose codes have meanings.

    A run that is resumed in ``folder`` has them itself. Where its features have other names it
    stays as it is, and ``check_reads`` refuses it.
    """
    if cfg.init_from is None or not isinstance(dataset, KnowsColumns):
        return dataset
    file = cfg.init_from if cfg.resume is None else folder / "last.pt"
    ours, theirs = dataset.split("train").columns, load_model(file, trust=cfg.trust).columns
    if ours is None or theirs is None:
        return dataset
    alike = ours.names == theirs.names and ours.categories.keys() == theirs.categories.keys()
    return dataset.with_columns(theirs) if alike else dataset


def check_reads(scorer: Scorer, train: Lists, cfg: DictConfig, key: str) -> None:
    """Check that the run of ``key`` reads features as those of ``train``, and has not seen test.

    Where it was trained on lists of elsewhere, that is said in a line of the log.

    Args:
        scorer: of the run ``cfg[key]``.
        train: what ``cfg`` trains on.
        key: ``init_from`` or ``teacher``.

    Raises:
        DataError: ``train`` has other features.
        ConfigError: its fold, or its cut of the same lists, is another.
    """
    given = f"{key}={cfg[key]}"
    if scorer.transform.width != train.width:
        raise DataError(
            f"{given} was trained on {scorer.transform.width} features, train has {train.width}: "
            "give a run on lists with the same features, or leave it out"
        )
    try:
        check_columns(train, scorer.columns)
    except DataError as error:
        raise DataError(f"{given}: {error}") from None
    if scorer.data.get("train", "") == train.digest:
        return
    ours: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    theirs = scorer.config["dataset"]
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
