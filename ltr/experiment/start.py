"""Begin a run: open its lists, and make a scorer that is new, warm-started or resumed."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from ltr.console.folders import run_folder
from ltr.console.keys import Resumed, keys
from ltr.data.batches import ItemTensors
from ltr.data.lists import SPLITS, Dataset, Lists, splits_of
from ltr.data.public_sets import public_sets
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError, DataError
from ltr.experiment.identity import origins_of
from ltr.experiment.labels import resolve_labels
from ltr.experiment.leaks import warn_of_leaks
from ltr.models.embeddings import fit_embedding
from ltr.models.rounds import RoundLearner, RoundModel
from ltr.scorers.parts import PARTS, Experiment, boosts, by_rounds, model_for
from ltr.scorers.scorer import Scorer, check_columns, check_size, load_model
from ltr.scorers.trust import config_of, config_to_keep, trusted
from ltr.training.checkpoint import (
    RUN,
    check_same_run,
    features_of,
    fitting,
    load_checkpoint,
)
from ltr.training.hooks import Hook
from ltr.training.monitor import Monitor
from ltr.training.network import NetworkLearner

log = logging.getLogger(__name__)

_SOURCE = ("_target_", "name", "folder", "path", "split")  # keys that identify a data set


@dataclass(frozen=True)
class Inputs:
    """What a run is made from."""

    cfg: DictConfig
    parts: Experiment  # built from ``cfg``
    lists: Mapping[str, Lists]  # the lists of each split
    folder: Path  # the run folder
    choices: Mapping[str, str]  # the choice of each config group, for the record


@dataclass(frozen=True)
class Training:
    """A training that is ready to begin, or to be resumed."""

    scorer: Scorer
    data: dict[str, ItemTensors]  # train and vali, transformed for the scorer
    learner: NetworkLearner | RoundLearner
    monitor: Monitor

    def select(self) -> None:
        """Load the weights that the setting ``select`` asks for: of the best or the last epoch."""
        best = self.monitor.settings.select == "best"
        file = self.monitor.best if best else self.monitor.last
        self.scorer.model.load_state_dict(load_checkpoint(file, self.scorer.device)["model"])


def resumed(cfg: DictConfig, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Return the config and the choices of the run ``cfg.resume``, which is to be resumed, with
    those keys of ``overrides`` (the command line) that may change. ``CheckpointError``: there is no
    readable ``last.pt``. ``ConfigError``: another key was given, or the config names code that is
    not trusted.
    """
    file = run_folder(cfg.resume) / "last.pt"
    content = load_checkpoint(file)
    typed = [override.lstrip("+~").split("=")[0] for override in overrides]
    may = keys(Resumed.TYPED, Resumed.OWN)
    if other := [key for key in typed if key not in may]:
        raise ConfigError(
            f"{other[0]} cannot change when a run is resumed, only {', '.join(may)} may: leave it "
            "out, or start a new run"
        )
    given: Any = OmegaConf.to_container(cfg, resolve=True)
    with fitting(file):
        choices = {str(group): str(choice) for group, choice in content["choices"].items()}
    own = (*keys(Resumed.OWN, Resumed.FOLDER), *typed)
    config = config_of(content, file) | {key: given[key] for key in own if key in given}
    return trusted(config, [*PARTS, "metrics"], cfg.trust), choices


def with_shards(cfg: DictConfig, processes: int) -> DictConfig:
    """Return ``cfg`` for so many processes of torchrun; if ``cfg.shards`` is null, each gets one
    shard.

    ``ConfigError``: the model trains in one process only, the run to be resumed began without
    shards, or there are fewer shards than processes.
    """
    if by_rounds(cfg.model):
        raise ConfigError(f"{cfg.model._target_} trains in one process: start it without torchrun")
    if cfg.shards is None and cfg.resume is not None:
        raise ConfigError(
            f"resume={cfg.resume}: begun with shards=null, which several processes cannot go on "
            "with to the same numbers: resume it without torchrun"
        )
    cfg = cfg.copy()
    cfg.shards = processes if cfg.shards is None else cfg.shards
    if cfg.shards < processes:
        raise ConfigError(
            f"shards={cfg.shards} gives {processes} processes no work: set --nproc-per-node lower"
        )
    return cfg


def open_lists(
    cfg: DictConfig, parts: Experiment, folder: Path, choices: Mapping[str, str]
) -> Inputs:
    """Open the lists of every split; return them with config and parts that fit their labels. Test
    lists are opened before training too, so that a bad file is not found hours later.
    """
    parts.dataset.check()
    # The codes of categories must mean the same as for the model that the run begins with.
    if cfg.init_from is not None and hasattr(parts.dataset, "with_columns"):
        source = cfg.init_from if cfg.resume is None else folder / "last.pt"
        if (columns := load_model(source, trust=cfg.trust).columns) is not None:
            parts = replace(parts, dataset=parts.dataset.with_columns(columns))
    lists = {split: parts.dataset.split(split) for split in splits_of(parts.dataset)}
    if "test" not in lists:
        log.info("%s", _without_test(parts.dataset))
    warn_of_leaks(lists)
    return Inputs(*resolve_labels(cfg, parts, lists), lists, folder, choices)


def _without_test(dataset: Dataset) -> str:
    """Return a line that says that nothing is tested."""
    fold = "" if dataset.fold is None else f" fold {dataset.fold}"
    public = ", though it is published with one" if dataset.name in public_sets() else ""
    return f"{dataset.name}{fold} has no test split{public}: vali alone is measured"


def begin(inputs: Inputs, train: Lists, hooks: Sequence[Hook]) -> Training:
    """Prepare a new or resumed training on ``train``, the training lists after the list steps."""
    cfg, parts, folder = inputs.cfg, inputs.parts, inputs.folder
    settings, device, file = parts.settings, parts.device, folder / "last.pt"
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    last = None if cfg.resume is None else load_checkpoint(file, device)
    best = folder / "best.pt"
    if last is not None and best.is_file():
        check_same_run(best, load_checkpoint(best, device), last)
    scorer = _scorer(inputs, file, last)
    state = scorer.state() | {
        "config": config_to_keep(cfg, folder),
        "choices": dict(inputs.choices),
        RUN: secrets.token_hex(16) if last is None else last.get(RUN),
    }
    monitor = Monitor(
        settings, metrics=parts.metrics, convention=parts.convention, folder=folder,
        state=state, hooks=hooks,
    )  # fmt: skip
    data = {"train": scorer.open(train), "vali": scorer.open(inputs.lists["vali"])}
    if last is None and cfg.init_from is None:
        fit_embedding(scorer.model, lambda: data["train"].features)
    learner: NetworkLearner | RoundLearner
    if isinstance(scorer.model, RoundModel):
        learner = RoundLearner(scorer.model, parts.loss, monitor)
    else:
        assert parts.loss is not None
        optimizer = parts.optimizer(scorer.model.parameters())
        learner = NetworkLearner(scorer.model, parts.loss, optimizer, parts.schedule, monitor)
    if last is not None:
        learner.resume(last)
        done = monitor.progress
        log.info("resumed at epoch %d, step %d", done.epoch + 1, done.step)
    return Training(scorer, data, learner, monitor)


def _scorer(inputs: Inputs, file: Path, last: Mapping[str, Any] | None) -> Scorer:
    """Return the scorer with which training begins, with random weights or those of ``init_from``.
    For a resumed run, ``last`` is the content of ``file``; the learner loads its weights later.
    """
    cfg, parts, lists, warm = inputs.cfg, inputs.parts, inputs.lists, None
    train = lists["train"]
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    origins = {split: part.digest for split, part in lists.items()} | origins_of(cfg)
    if last is not None:
        with fitting(file):
            transform, columns = features_of(last)
            before = last["data"]
            now = dict.fromkeys(before.keys() & {*SPLITS}) | origins  # test may be gone
            changed = [name for name, one in now.items() if before.get(name) != one]
        if changed:
            raise DataError(
                f"{', '.join(changed)} changed since the run began: restore it, or start anew"
            )
        check_size(parts.model, transform, file)
    elif cfg.init_from is not None:
        warm = load_model(cfg.init_from, parts.device, cfg.trust)
        check_reads(warm, train, cfg, "init_from")
        transform, columns = warm.transform, warm.columns
    else:
        transform, columns = parts.fit_transform(train), train.columns
        if not isinstance(transform, FeatureTransform):
            raise ConfigError(
                f"transform ({cfg.transform['_target_']}) returns {type(transform).__name__}: "
                "return what fit_transform or no_transform of ltr.data.transforms returns, a "
                "FeatureTransform"
            )
        if boosts(parts.model):
            transform = transform.keeping_missing()
    for part in lists.values():
        check_columns(part, columns)
    torch.manual_seed(parts.settings.seed)
    model = model_for(parts.model, transform).to(parts.device)
    if warm is not None:
        try:
            if warm.config["transform"] != config["transform"]:
                raise RuntimeError("it has another transform")
            model.load_state_dict(warm.model.state_dict())
        except RuntimeError as error:
            text = " ".join(str(error).split()[:60])
            raise ConfigError(
                f"init_from={cfg.init_from}: {text}: give the model and transform settings of that "
                "run"
            ) from None
    return Scorer(model, transform, columns, config, origins, parts.device)


def check_reads(scorer: Scorer, train: Lists, cfg: DictConfig, key: str) -> None:
    """Check that ``scorer`` reads the features of ``train``, and saw no lists of vali or test.

    ``key`` is the setting that names the run of ``scorer``: either ``init_from`` or ``teacher``. If
    that run was trained on other lists, a warning is logged. ``DataError``: ``train`` has other
    features. ``ConfigError``: the run was trained on another fold, or another division, of the same
    data set.
    """
    given = f"{key}={cfg[key]}"
    if scorer.transform.width != train.width:
        raise DataError(
            f"{given} was trained on {scorer.transform.width} features, train has {train.width}: "
            "give a run on lists with the same features"
        )
    check_columns(train, scorer.columns)
    if scorer.data.get("train") == train.digest:
        return
    ours: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    theirs = scorer.config["dataset"]
    cut = ("fold", "seed", "fractions") if "fractions" in ours else ("fold",)
    other = [name for name in (*_SOURCE, *cut) if theirs.get(name) != ours.get(name)]
    if other and not {*other} & {*_SOURCE}:
        raise ConfigError(
            f"{given} may have seen lists of this vali or test: set dataset.{other[0]} as it was "
            f"there, {theirs.get(other[0])}"
        )
    log.warning("%s was trained on other lists: vali and test must have none of them", given)
