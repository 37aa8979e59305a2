"""Draw the lists that a member of a bag of models is trained on."""

from typing import Any

import numpy as np

from ltr.data.lists import Ints, Lists
from ltr.errors import ConfigError

Bagging = float | str | None  # the setting: a fraction, "bootstrap", or None: every list once


def check_bagging(value: Any) -> Bagging:
    """The setting ``value``.

    Raises:
        ConfigError: it is none of the three.
    """
    fraction = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1
    if value is None or value == "bootstrap" or fraction:
        return value
    raise ConfigError(
        f"bagging={value}: write bootstrap, a fraction of the lists between 0 and 1, such as 0.7, "
        "or null for every list once"
    )


def drawn(count: int, bagging: float | str, seed: int) -> Ints:
    """Which of ``count`` lists are in the bag of ``seed``, ascending.

    ``bootstrap`` draws ``count`` lists with replacement (Breiman, 1996, "Bagging predictors"), so
    that a list may come several times; a fraction draws so many without replacement, at least one.

    >>> drawn(6, "bootstrap", 1).tolist() == drawn(6, "bootstrap", 1).tolist()
    True
    >>> len(drawn(10, 0.7, 1)), len({*drawn(10, 0.7, 1).tolist()})
    (7, 7)
    """
    rng = np.random.default_rng([seed, *b"bagging"])
    if isinstance(bagging, str):
        return np.sort(rng.integers(0, count, count))
    return np.sort(rng.choice(count, max(1, round(bagging * count)), replace=False))


def taken(lists: Lists, which: Ints) -> Lists:
    """The lists of the numbers ``which``, ``[n]``, in that order, in memory; one may come again."""
    lengths = lists.lengths[which]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    items = np.repeat(lists.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
    features = lists.features[items]
    return Lists(
        features=features,
        labels=lists.labels[items],
        offsets=offsets,
        qids=lists.qids[which],
        digest=lists.digest,
        missing=int(np.isnan(features).sum()) if lists.missing else 0,
        columns=lists.columns,
        weights=None if lists.weights is None else lists.weights[which],
        rows=items if lists.rows is None else lists.rows[items],
        teacher=None if lists.teacher is None else lists.teacher[items],
    )
