"""The command check_model: judge a model by its config, or its class by its dotted name."""

import copy
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from ltr.battery import MODEL_PROPERTIES, ModelSubject
from ltr.checks.functions import imported, judged, read_knobs
from ltr.console.compose import run_config
from ltr.console.values import flag, required, texts, whole
from ltr.experiment.build import build
from ltr.experiment.job import resumed
from ltr.experiment.kept import load_kept
from ltr.experiment.parts import make_model
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder
from ltr.rounds import RoundModel
from ltr.training.checkpoint import load_checkpoint

# of the trainings that are compared: short, and all that is drawn and scheduled is in them
_SHORT = (
    "dataset=synthetic", "dataset.queries=12", "list_size=20", "batch_size=3", "schedule=constant",
    "metrics=[ndcg@5]", "select=last", "device=cpu", "patience=null",
)  # fmt: skip


def checked(cfg: DictConfig) -> tuple[str, bool]:
    """The verdicts on the model of ``configs/check_model.yaml``, and whether none fails.

    Raises:
        ConfigError: there is no such model or setting.
    """
    required(cfg, "name")
    config = config_of(str(cfg.name), texts(cfg, "knobs"))
    build(config)  # a wrong setting is a mistake of the user's, not a finding
    make, width = make_model(config.model), whole(cfg, "width", least=1)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        config.cache_dir = config.dataset.cache_dir = f"{folder}/cache"
        if isinstance(make(width), RoundModel):  # without rounds it scores nothing
            make, width = _grown(config, Path(folder))
        subject = ModelSubject(
            make,
            width=width,
            list_aware=None if cfg.list_aware is None else flag(cfg, "list_aware"),
            trained=partial(_trained, config, Path(folder)),
        )
        return judged(MODEL_PROPERTIES, subject)


def config_of(name: str, knobs: Sequence[str]) -> DictConfig:
    """The config of a short training of the model ``name``.

    Args:
        name: as ``model=`` of train.py takes it, or ``module.Class``.
        knobs: settings of the model, ``hidden=64``.

    Raises:
        ConfigError: there is no such model or setting.
    """
    if "." not in name:
        return run_config([f"model={name}", *(f"model.{knob}" for knob in knobs), *_SHORT])[0]
    imported(name, "a model is a class of torch.nn.Module, and its first argument is width")
    config, _ = run_config(_SHORT)
    node = {"_target_": name, "_partial_": True, **read_knobs(knobs)}
    OmegaConf.update(config, "model", OmegaConf.create(node), merge=False)
    return config


def _trained(config: DictConfig, parent: Path, epochs: Sequence[int]) -> dict[str, Tensor]:
    """The weights after so many epochs, each time resumed in the run folder, and test scores.

    The bytes of boosted trees may hold the time of their training: their scores stand for them.
    """
    folder = Path(tempfile.mkdtemp(dir=parent))
    trust = str(config.model._target_).partition(".")[0]
    for number, until in enumerate(accumulate(epochs)):
        own = config.copy()
        own.epochs = until
        if number:
            own.resume, own.trust = str(folder), [trust]
            own, _ = resumed(own, [f"epochs={until}"])
        run(own, folder, {})
    weights: dict[str, Tensor] = load_checkpoint(folder / "last.pt")["model"]
    weights.pop("_extra_state", None)
    return {**weights, "the test scores": torch.tensor(RunFolder(folder).scores)}


def _grown(config: DictConfig, parent: Path) -> tuple[Callable[[int], nn.Module], int]:
    """A model of three rounds, to be copied, and its number of features."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    own = config.copy()
    own.epochs = 3
    run(own, folder, {})
    kept = load_kept(str(folder), torch.device("cpu"), trust=["ltr.trees"])
    return lambda width: copy.deepcopy(kept.model), kept.transform.width


@contextmanager
def _quiet() -> Iterator[None]:
    """Trainings inside say nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
