"""What changes the lists on which a run is trained, and no other lists.

First, the teacher's scores are added; then ``bagging`` draws lists at random. The transform,
feature names, number of grades and digests of the run still come from all training lists.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from ltr.arrays import Ints
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.other_run import OtherRun
from ltr.knobs import is_number
from ltr.losses.mix import reads_teacher

log = logging.getLogger(__name__)


def check_bagging(value: Any) -> None:
    """Raise ``ConfigError`` unless ``value`` is None, ``bootstrap``, or between 0 and 1."""
    is_fraction = is_number(value) and 0 < value < 1
    if value not in (None, "bootstrap") and not is_fraction:
        raise ConfigError(
            f"bagging={value}: write bootstrap, a fraction of the lists between 0 and 1, such as "
            "0.7, or null for every list once"
        )


def check_teacher(teacher: str | None, loss: Any) -> None:
    """Raise ``ConfigError`` for a teacher without a loss that reads its scores, or vice versa."""
    needs_teacher = reads_teacher(loss)
    if teacher is not None and not needs_teacher:
        raise ConfigError(
            f"teacher={teacher}: the loss does not read a teacher's scores: set loss=distil, or "
            "loss=mix loss.parts.distil=1, or leave it out"
        )
    if teacher is None and needs_teacher:
        name = getattr(getattr(loss, "func", loss), "__name__", "the loss")
        raise ConfigError(
            f"loss: {name} reads the scores of another model (its argument teacher): set "
            "teacher=RUN, a run folder"
        )


def draw_count(count: int, bagging: Any) -> int:
    """Return how many of ``count`` lists ``bagging`` draws, repeated ones included.

    >>> [draw_count(20, bagging) for bagging in (None, "bootstrap", 0.72, 0.01)]
    [20, 20, 14, 1]
    """
    return max(1, round(bagging * count)) if isinstance(bagging, float) else count


def draw_lists(count: int, bagging: float | str, seed: int) -> Ints:
    """Draw from ``count`` lists with ``seed``; return their indices, ascending.

    ``bootstrap`` draws ``count`` lists with replacement (Breiman, 1996, "Bagging predictors"), so a
    list may occur several times. A fraction draws that part of the lists without replacement, at
    least one.

    >>> len({*draw_lists(10, 0.7, 1).tolist()}), len(draw_lists(6, "bootstrap", 1))
    (7, 6)
    """
    rng = np.random.default_rng([seed, *b"bagging"])
    if isinstance(bagging, str):
        return np.sort(rng.integers(0, count, count))
    return np.sort(rng.choice(count, draw_count(count, bagging), replace=False))


def bag(bagging: float | str, seed: int, train: Lists) -> Lists:
    """Return the lists of ``train`` that ``bagging`` draws."""
    indices = draw_lists(len(train), bagging, seed)
    log.info("bagging=%s: %d of the %d lists of train", bagging, len({*indices}), len(train))
    return train.subset(indices)


def add_teacher_scores(teacher: OtherRun, items: int, train: Lists) -> Lists:
    """Return ``train`` with the scores that the model of ``teacher`` gives its items.

    The scores are divided by their standard deviation within lists, pooled over all lists.
    ``items`` is the largest number of padded items in a batch.

    Raises:
        CheckpointError: the teacher cannot be loaded.
        ConfigError: it names code that is not trusted, or may have seen test lists.
        DataError: it reads other features than ``train`` has, or gives all items of each list the
            same score.
    """
    scorer = teacher.load()
    teacher.check(scorer, train)
    scores = scorer.scores(train, items=items).cpu().numpy()
    log.info("teacher %s scored %s items of train", teacher.path, f"{train.items:,}")
    lengths = train.lengths
    means = np.add.reduceat(scores, train.offsets[:-1]) / lengths
    centred = scores - np.repeat(means, lengths)
    deviation = float(np.sqrt(np.mean(np.square(centred, dtype=np.float64))))
    if not deviation > 0:
        raise DataError(
            f"{teacher} scores all items of a list of train the same, so that there is "
            "no order to learn: give a trained run"
        )
    return replace(train, teacher=(scores / deviation).astype(np.float32))
