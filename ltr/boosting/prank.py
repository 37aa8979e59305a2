"""PRank: a perceptron for grades."""

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from ltr.arrays import Doubles, Floats, Reals
from ltr.boosting.model import (
    Arrays,
    ArraysModel,
    FitData,
    Importances,
    Round,
    check_whole_labels,
    finite_features,
    scores_to_float32,
)
from ltr.errors import DataError

_MAX_GRADES = 1000


class PRank(ArraysModel):
    """PRank (Crammer and Singer, 2001): one direction w and thresholds b_1 <= ... <= b_{K-1}.

    A round goes through all items of train once, in random order. An item of grade y with b_y <=
    w.x < b_{y+1} (b_0 = -inf, b_K = inf) changes nothing. For any other item, the thresholds on the
    wrong side of w.x move one step towards w.x, and w moves along x, which brings w.x closer to
    the thresholds (figure 2 of the paper). The thresholds stay in order. The score is w.x. Only the
    grades of the items matter, not which lists they belong to.

    Args:
        average: use the mean of w and b over all steps so far (averaged perceptron). False: use
            their values after the last step, as in the paper.
    """

    title = "PRank"
    makes = "passes"

    def __init__(self, width: int, *, average: bool = True) -> None:
        super().__init__(width)
        self.average = average

    def rounds(self, data: FitData) -> Iterator[Round]:
        remedy = "convert the labels to grades, or train a network with a loss such as loss=rmse"
        check_whole_labels(data.train, "PRank", largest=_MAX_GRADES - 1, remedy=remedy)
        if data.weights is not None:
            raise DataError("PRank does not support weights of lists: leave out the weights")
        items = finite_features(data.train, "PRank").astype(np.float64)
        scored = {split: finite_features(lists, "PRank") for split, lists in data.scored.items()}
        grades = data.train.labels.cpu().numpy().astype(np.int64)
        ranks = np.arange(grades.max())
        # For the mean, the ``moves`` sum up each move times the number of steps before it.
        weights, weight_moves = np.zeros((2, self.width))
        thresholds, threshold_moves = np.zeros((2, len(ranks)))
        random = np.random.default_rng(data.settings.seed)
        steps = 0
        zeros = {split: np.zeros(len(rows), np.float32) for split, rows in scored.items()}
        yield Round(zeros, lambda: None, {self.makes: 0})
        for passes in itertools.count(1):
            changes = 0
            for item in random.permutation(len(items)):
                above = items[item] @ weights - thresholds
                better = grades[item] > ranks
                if ((above >= 0) != better).any():
                    changes += 1
                    tau = np.where(better, (above <= 0).astype(int), -(above >= 0).astype(int))
                    total = tau.sum()
                    thresholds -= tau
                    threshold_moves -= steps * tau
                    weights += total * items[item]
                    weight_moves += steps * total * items[item]
                steps += 1
            share = 1 / steps if self.average else 0.0
            content = {
                "weights": weights - share * weight_moves,
                "thresholds": thresholds - share * threshold_moves,
            }
            scores = {
                split: scores_to_float32(rows.astype(np.float64) @ content["weights"])
                for split, rows in scored.items()
            }
            yield Round(scores, partial(dict, content), {self.makes: passes, "changes": changes})

    def is_compatible(self, content: Arrays) -> bool:
        shapes = {name: array.shape for name, array in content.items()}
        return len(shapes.pop("thresholds", ())) == 1 and shapes == {"weights": (self.width,)}

    def score_items(self, items: Floats) -> Reals:
        return items.astype(np.float64) @ self.linear_weights()

    def linear_weights(self) -> Doubles:
        """Return the weight of each feature, ``[width]``."""
        return self.content["weights"]

    def importances(self) -> Importances:
        """Return |w| of each feature in the field ``gain``; the field ``splits`` is NaN."""
        return Importances(np.abs(self.linear_weights()), np.full(self.width, np.nan))
