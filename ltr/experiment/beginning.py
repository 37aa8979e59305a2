"""Begin a network with the weights of another run (``init_from``)."""

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from ltr.data.lists import Dataset, KnowsColumns, Lists
from ltr.errors import ConfigError
from ltr.experiment.ensemble import Ensemble
from ltr.experiment.kept import KeptModel, load_kept
from ltr.experiment.other_run import check_reads
from ltr.training.checkpoint import columns_of, fitting, load_checkpoint


def with_its_categories(cfg: DictConfig, dataset: Dataset, folder: Path) -> Dataset:
    """``dataset`` with the categories listed as for ``cfg.init_from``, whose codes have meanings.

    Where its features have other names it stays as it is, and ``begun_from`` refuses it.

    Args:
        cfg: of a run.
        dataset: its data set.
        folder: of a resumed run, which holds the categories itself.

    Raises:
        CheckpointError, ConfigError: see ``load_kept``.
    """
    if cfg.init_from is None or not isinstance(dataset, KnowsColumns):
        return dataset
    if cfg.resume is not None:
        with fitting(folder / "last.pt"):
            theirs = columns_of(load_checkpoint(folder / "last.pt"))
    else:
        theirs = load_kept(cfg.init_from, torch.device("cpu"), cfg.trust).columns
    ours = dataset.split("train").columns
    if ours is None or theirs is None:
        return dataset
    alike = ours.names == theirs.names and ours.categories.keys() == theirs.categories.keys()
    return dataset.with_columns(theirs) if alike else dataset


def begun_from(cfg: DictConfig, train: Lists, device: torch.device) -> KeptModel:
    """The network ``cfg.init_from``, which reads features as those of ``train``.

    Raises:
        CheckpointError, ConfigError: see ``load_kept``.
        DataError, ConfigError: see ``check_reads``.
        ConfigError: ``cfg.transform`` is another than that of the run.
    """
    kept = load_kept(cfg.init_from, device, cfg.trust)
    if isinstance(kept.model, Ensemble):
        raise ConfigError(
            f"init_from={cfg.init_from} is an ensemble, whose weights no network has: give one of "
            "its members' runs"
        )
    check_reads(kept, train, cfg, "init_from")
    ours = OmegaConf.to_container(cfg.transform, resolve=True)
    if ours != kept.config.get("transform"):
        raise ConfigError(
            f"init_from={cfg.init_from} begins with that run's transform of features, which is "
            f"{_settings(kept.config.get('transform'))}; here transform is {_settings(ours)}: set "
            "transform=... as it was there"
        )
    return kept


def _settings(node: Any) -> str:
    """A node of a config in short."""
    plain = {key: one for key, one in dict(node or {}).items() if key != "_partial_"}
    name = str(plain.pop("_target_", "unknown")).rpartition(".")[2]
    return f"{name}({', '.join(f'{key}={one}' for key, one in plain.items())})"


def take_weights(model: nn.Module, begun: nn.Module, path: str) -> None:
    """Give ``model`` the weights of ``begun``.

    Raises:
        ConfigError: they have other names or shapes.
    """
    ours, theirs = (
        {name: tuple(weights.shape) for name, weights in one.state_dict().items()}
        for one in (model, begun)
    )
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            raise ConfigError(
                f"init_from={path}: {name} is {theirs.get(name, 'not there')} in it, here "
                f"{ours.get(name, 'not there')}: give the model.* settings of that run, or leave "
                "it out"
            )
    model.load_state_dict(begun.state_dict())
