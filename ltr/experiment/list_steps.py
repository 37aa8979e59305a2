"""The list steps of a run: they change the lists on which it is trained, and no other lists.

First, ``teacher`` adds the scores of the model from which the run learns. Then ``bagging`` draws
lists at random. The transform, feature names, number of grades and digests of the run still come
from all training lists.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from ltr.arrays import Ints
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.labels import bag_size
from ltr.experiment.start import check_reads
from ltr.knobs import is_number
from ltr.losses.mix import reads_teacher
from ltr.scorers.scorer import load_model

log = logging.getLogger(__name__)


def check_bagging(value: Any) -> None:
    """Raise ``ConfigError`` unless ``value`` is None, ``bootstrap``, or between 0 and 1."""
    if value not in (None, "bootstrap") and not (is_number(value) and 0 < value < 1):
        raise ConfigError(
            f"bagging={value}: write bootstrap, a fraction of the lists between 0 and 1, such as "
            "0.7, or null for every list once"
        )


def check_teacher(teacher: str | None, loss: Any) -> None:
    """Raise ``ConfigError`` for a teacher without a loss that reads its scores, or vice versa."""
    reads = reads_teacher(loss)
    if teacher is not None and not reads:
        raise ConfigError(
            f"teacher={teacher}: the loss does not read a teacher's scores: set loss=distil, or "
            "loss=mix loss.parts.distil=1, or leave it out"
        )
    if teacher is None and reads:
        name = getattr(getattr(loss, "func", loss), "__name__", "the loss")
        raise ConfigError(
            f"loss: {name} reads the scores of another model (its argument teacher): set "
            "teacher=RUN, a run folder"
        )


def with_steps(cfg: DictConfig, train: Lists, device: torch.device) -> Lists:
    """Return ``train`` after the list steps that ``cfg`` asks for; ``device`` is the teacher's."""
    if cfg.teacher is not None:
        train = with_teacher_scores(cfg, train, device)
    if cfg.bagging is not None:
        which = draw_lists(len(train), cfg.bagging, cfg.seed)
        log.info("bagging=%s: %d of the %d lists of train", cfg.bagging, len({*which}), len(train))
        train = train.subset(which)
    return train


def draw_lists(count: int, bagging: float | str, seed: int) -> Ints:
    """Draw from ``count`` lists with ``seed``; return their numbers, ascending.

    ``bootstrap`` draws ``count`` lists with replacement (Breiman, 1996, "Bagging predictors"), so a
    list may occur several times. A fraction draws that part of the lists without replacement, at
    least one.

    >>> len({*draw_lists(10, 0.7, 1).tolist()}), len(draw_lists(6, "bootstrap", 1))
    (7, 6)
    """
    rng = np.random.default_rng([seed, *b"bagging"])
    if isinstance(bagging, str):
        return np.sort(rng.integers(0, count, count))
    return np.sort(rng.choice(count, bag_size(count, bagging), replace=False))


def with_teacher_scores(cfg: DictConfig, train: Lists, device: torch.device) -> Lists:
    """Return ``train`` with the scores that the run ``cfg.teacher`` gives its items.

    The scores are divided by their standard deviation within lists, pooled over all lists.
    ``CheckpointError``: the teacher cannot be loaded. ``ConfigError``: it names code that is not
    trusted, or may have seen test lists. ``DataError``: it reads other features than ``train`` has,
    or gives all items of each list the same score.
    """
    teacher = load_model(cfg.teacher, device, cfg.trust)
    check_reads(teacher, train, cfg, "teacher")
    scores = teacher.scores(train, items=cfg.evaluation_items).cpu().numpy()
    log.info("teacher %s scored %s items of train", cfg.teacher, f"{train.items:,}")
    lengths = train.lengths
    centred = scores - np.repeat(np.add.reduceat(scores, train.offsets[:-1]) / lengths, lengths)
    deviation = float(np.sqrt(np.mean(np.square(centred, dtype=np.float64))))
    if not deviation > 0:
        raise DataError(
            f"teacher={cfg.teacher} scores all items of a list of train the same, so that there is "
            "no order to learn: give a trained run"
        )
    return replace(train, teacher=(scores / deviation).astype(np.float32))
