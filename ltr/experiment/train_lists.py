"""Steps that change the training lists of a run, but not its other lists.

First, the scores of the ``teacher`` are added; then ``bagging`` draws lists at random. The
transform, feature names, number of grades and digests of the run still come from all training
lists.
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
    """Raise ``ConfigError`` unless ``value`` is None, ``bootstrap``, or a fraction below 1."""
    is_fraction = is_number(value) and 0 < value < 1
    if value not in (None, "bootstrap") and not is_fraction:
        raise ConfigError(
            f"bagging={value}: expected bootstrap, a fraction of the lists between 0 and 1 (such "
            "as 0.7), or null to use every list once"
        )


def check_teacher(teacher: str | None, loss: Any) -> None:
    """Raise ``ConfigError`` if there is a teacher, but no loss reads its scores, or vice versa."""
    needs_teacher = reads_teacher(loss)
    if teacher is not None and not needs_teacher:
        raise ConfigError(
            f"teacher={teacher}: this loss does not use the scores of a teacher: set loss=distil, "
            "or loss=mix loss.parts.distil=1, or leave out teacher"
        )
    if teacher is None and needs_teacher:
        name = getattr(getattr(loss, "func", loss), "__name__", "the loss")
        raise ConfigError(
            f"loss: {name} learns the scores of another model: set teacher=RUN to the run folder "
            "of that model"
        )


def draw_count(count: int, bagging: Any) -> int:
    """Return how many lists ``bagging`` draws from ``count``; a list drawn twice counts twice.

    >>> [draw_count(20, bagging) for bagging in (None, "bootstrap", 0.72, 0.01)]
    [20, 20, 14, 1]
    """
    return max(1, round(bagging * count)) if isinstance(bagging, float) else count


def draw_lists(count: int, bagging: float | str, seed: int) -> Ints:
    """Draw from ``count`` lists with ``seed``; return their indices in ascending order.

    With ``bootstrap``, ``count`` lists are drawn with replacement (Breiman, 1996, "Bagging
    predictors"); a list may occur several times. With a fraction, that share of the lists is drawn
    without replacement, but at least one list.

    >>> len({*draw_lists(10, 0.7, 1).tolist()}), len(draw_lists(6, "bootstrap", 1))
    (7, 6)
    """
    rng = np.random.default_rng([seed, *b"bagging"])
    if isinstance(bagging, str):
        return np.sort(rng.integers(0, count, count))
    return np.sort(rng.choice(count, draw_count(count, bagging), replace=False))


def bag(bagging: float | str, seed: int, train: Lists) -> Lists:
    """Return the random sample of ``train`` that ``draw_lists`` draws."""
    indices = draw_lists(len(train), bagging, seed)
    log.info("bagging=%s: drew %d of the %d training lists", bagging, len({*indices}), len(train))
    return train.subset(indices)


def add_teacher_scores(teacher: OtherRun, items: int, train: Lists) -> Lists:
    """Return ``train`` with the scores that the model of ``teacher`` gives its items.

    The scores are divided by their standard deviation within lists, pooled over all lists.
    ``items`` is the maximum number of items in a batch, padding included.

    Raises:
        CheckpointError: the teacher cannot be loaded.
        ConfigError: the config of the teacher names code that is not trusted, or the teacher may
            have been trained on vali or test lists.
        DataError: the teacher was not trained on the features of ``train``, or gives all items of
            each list the same score.
    """
    scorer = teacher.load()
    teacher.check(scorer, train)
    scores = scorer.scores(train, items=items).cpu().numpy()
    log.info("teacher %s scored %s training items", teacher.path, f"{train.items:,}")
    lengths = train.lengths
    means = np.add.reduceat(scores, train.offsets[:-1]) / lengths
    centred = scores - np.repeat(means, lengths)
    deviation = float(np.sqrt(np.mean(np.square(centred, dtype=np.float64))))
    if not deviation > 0:
        raise DataError(
            f"{teacher} gives all items of each training list the same score, so there is no order "
            "to learn: set teacher to a run whose scores differ"
        )
    return replace(train, teacher=(scores / deviation).astype(np.float32))
