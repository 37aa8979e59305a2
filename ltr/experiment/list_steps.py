"""List steps: what is done to the lists that a run is trained on, and to no others.

Transform, names, grades and digests are those of all of train. First come the scores of the model
that the run learns from (``teacher``), then bagging.
"""

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from ltr.data.lists import Ints, Lists
from ltr.errors import CheckpointError, ConfigError, DataError, OutputError
from ltr.experiment.identity import training_code
from ltr.experiment.start import check_reads
from ltr.losses.mix import reads_teacher
from ltr.scorers.scorer import scorer_of
from ltr.training.checkpoint import (
    load_checkpoint,
    members_of,
    save_checkpoint,
    scoring_digest,
    selected_checkpoint,
)
from ltr.training.distributed import broadcast, is_main

log = logging.getLogger(__name__)


def check_bagging(value: Any) -> None:
    """Raise ``ConfigError`` unless ``value`` is a fraction, ``bootstrap`` or None: every list."""
    fraction = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1
    if not (value is None or value == "bootstrap" or fraction):
        raise ConfigError(
            f"bagging={value}: write bootstrap, a fraction of the lists between 0 and 1, such as "
            "0.7, or null for every list once"
        )


def check_teacher(teacher: str | None, loss: Any) -> None:
    """Raise ``ConfigError`` unless a teacher and a loss that learns from one come together."""
    reads = reads_teacher(loss)
    if teacher is not None and not reads:
        raise ConfigError(
            f"teacher={teacher}: the loss does not read a teacher's scores: set loss=distil, or "
            "loss=mix loss.parts.distil=1, or leave it out"
        )
    if teacher is None and reads:
        raise ConfigError("loss=distil learns from another model: set teacher=RUN, a run folder")


def with_steps(cfg: DictConfig, train: Lists, device: torch.device) -> Lists:
    """``train`` after the list steps of ``cfg``."""
    if cfg.teacher is not None:
        train = with_teacher_scores(cfg, train, device)
    if cfg.bagging is not None:
        which = draw_lists(len(train), cfg.bagging, cfg.seed)
        counts = len(which), len({*which.tolist()}), len(train)
        text = "bagging=%s: %s lists drawn, %s of the %s of train"
        log.info(text, cfg.bagging, *map("{:,}".format, counts))
        train = train.subset(which)
    return train


def draw_lists(count: int, bagging: float | str, seed: int) -> Ints:
    """Which of ``count`` lists are in the bag of ``seed``, ascending.

    ``bootstrap`` draws ``count`` lists with replacement (Breiman, 1996, "Bagging predictors"), so
    that a list may come several times; a fraction draws so many without replacement, at least one.

    >>> len({*draw_lists(10, 0.7, 1).tolist()}), len(draw_lists(6, "bootstrap", 1))
    (7, 6)
    """
    rng = np.random.default_rng([seed, *b"bagging"])
    if isinstance(bagging, str):
        return np.sort(rng.integers(0, count, count))
    return np.sort(rng.choice(count, max(1, round(bagging * count)), replace=False))


def with_teacher_scores(cfg: DictConfig, train: Lists, device: torch.device) -> Lists:
    """``train`` with the scores of the run ``cfg.teacher``.

    The scores are in units of their standard deviation within lists, pooled over the lists. A file
    in ``cfg.cache_dir`` keeps them for other runs with the same teacher, lists and code.

    Raises:
        CheckpointError, ConfigError: see ``load_model``.
        DataError, ConfigError: see ``check_reads``.
        DataError: the teacher scores all items of each list the same.
    """
    file, content = selected_checkpoint(Path(cfg.teacher))
    teacher = scorer_of(file, content, device, cfg.trust)
    check_reads(teacher, train, cfg, "teacher")
    known = f"{scoring_digest(content)} {training_code(*_configs(content))} {train.digest}"
    key = hashlib.sha256(known.encode()).hexdigest()
    path = Path(str(cfg.cache_dir), f"teacher-{key[:32]}.pt")
    scores, keeps = None, bool(train.digest) and is_main()
    if keeps:
        with suppress(CheckpointError, LookupError):
            scores = load_checkpoint(path)["scores"].numpy()
    scores = broadcast(scores)  # one process may have the file and another not: all score, or none
    if scores is None:
        scores = teacher.scores(train, items=cfg.evaluation_items).cpu().numpy()
        log.info("teacher %s scored %s items of train", cfg.teacher, f"{train.items:,}")
        with suppress(OSError, OutputError):  # then they are made again
            if keeps:
                path.parent.mkdir(parents=True, exist_ok=True)
                save_checkpoint(path, {"scores": torch.from_numpy(scores)})
    lengths = train.lengths
    centred = scores - np.repeat(np.add.reduceat(scores, train.offsets[:-1]) / lengths, lengths)
    deviation = float(np.sqrt(np.mean(np.square(centred, dtype=np.float64))))
    if not deviation > 0:
        raise DataError(
            f"teacher={cfg.teacher} scores all items of a list of train the same, so that there is "
            "no order to learn: give a trained run"
        )
    return replace(train, teacher=(scores / deviation).astype(np.float32))


def _configs(content: Mapping[str, Any]) -> list[DictConfig]:
    """What names the code of the models in a checkpoint, which ``scorer_of`` has read."""
    members = [member for _, member in members_of(content)]
    if members:
        return [config for member in members for config in _configs(member)]
    config = content["config"]
    plain = {key: one for key, one in config.items() if not isinstance(one, (dict, list))}
    return [OmegaConf.create({**plain, "model": config["model"]})]
