"""RankBoost: boosting of thresholds on the pairwise exponential loss, as its paper has it."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ltr.errors import DataError
from ltr.knobs import positive_int
from ltr.models.rounds.arrays import ChosenFeatures
from ltr.models.rounds.model import FitData, Round

_MOST_SCORE = 300.0  # exp(300)^2 is still a float64
_MOST_R = 1 - 1e-6  # a threshold that orders every pair has a finite weight


class RankBoost(ChosenFeatures):
    """RankBoost (Freund et al., 2003, section 3): f = sum_t alpha_t [x_{k_t} > theta_t].

    With D_t(i, j) proportional to exp(f(j) - f(i)) over all pairs y_i > y_j of items of one list,
    the sum over pairs and lists 1,

        r(k, theta) = sum_ij D_t(i, j) ([x_ik > theta] - [x_jk > theta])

    a round takes the k, theta of the largest |r| and alpha_t = 1/2 ln((1 + r) / (1 - r)) (the third
    method of section 3.2). ``model=stumps`` boosts the same loss by Newton steps of LightGBM.

    Args:
        width: number of features of an item.
        thresholds: of a feature, at most: all gaps between values of train, or where there are more
            values, so many quantiles.
    """

    title = "RankBoost"
    names = ("features", "thresholds", "alphas")

    def __init__(self, width: int, *, thresholds: int = 255) -> None:
        super().__init__(width)
        self.thresholds = positive_int("model.thresholds", thresholds)

    def rounds(self, data: FitData) -> Iterator[Round]:
        items, scores = self.start(data)
        pairs = _Pairs(data)
        if not pairs.potential(scores["train"]).any():
            raise DataError("RankBoost: no list of train has two labels: give graded lists")
        columns = items["train"].T
        cuts = [_cuts(column, self.thresholds) for column in columns]
        # how many cuts are below each value
        bins = [np.searchsorted(*both) for both in zip(cuts, columns, strict=True)]
        chosen: list[tuple[float, ...]] = []
        while True:
            yield self.round(data, chosen, scores)
            potential, best = pairs.potential(scores["train"]), (0.0, 0, 0)
            for feature, (known, places) in enumerate(zip(cuts, bins, strict=True)):
                if not len(known):
                    continue
                sums = np.bincount(places, potential, len(known) + 1)
                r = np.cumsum(sums[::-1])[::-1][1:]  # of the values above each cut
                cut = int(np.abs(r).argmax())
                if abs(r[cut]) > abs(best[0]):
                    best = (float(r[cut]), feature, cut)
            r_best, feature, cut = best
            if r_best == 0:
                continue
            r_best = min(max(r_best, -_MOST_R), _MOST_R)
            alpha = 0.5 * np.log((1 + r_best) / (1 - r_best))
            threshold = float(cuts[feature][cut])
            chosen.append((feature, threshold, float(alpha)))
            for split, rows in items.items():
                scores[split] += alpha * (rows[:, feature] > threshold)

    def score_items(self, items: NDArray[np.float32]) -> NDArray[np.floating]:
        scores = np.zeros(len(items))
        for feature, threshold, alpha in zip(*(self.content[n] for n in self.names), strict=True):
            scores += alpha * (items[:, int(feature)] > threshold)
        return scores


class _Pairs:
    """The pairs of items of train with two labels, for the sums over them."""

    def __init__(self, data: FitData) -> None:
        train = data.train
        self._list = np.repeat(np.arange(len(train)), train.lengths)
        self._grade = _places(train.labels.cpu().numpy(), self._list)
        self._shape = (len(train), 1 + self._grade.max(initial=0))
        weights = np.ones(len(train)) if data.weights is None else data.weights
        self._own = weights.astype(np.float64)[self._list]

    def potential(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over pairs of D as the better item, less that as the worse, ``[items]``."""
        scores = scores.clip(-_MOST_SCORE, _MOST_SCORE)
        place = self._list, self._grade
        better, worse = np.exp(-scores), np.exp(scores)
        of_worse, of_better = np.zeros(self._shape), np.zeros(self._shape)
        np.add.at(of_worse, place, worse)
        np.add.at(of_better, place, better)
        below = np.cumsum(of_worse, axis=1) - of_worse
        above = np.cumsum(of_better[:, ::-1], axis=1)[:, ::-1] - of_better
        won = self._own * better * below[place]
        lost = self._own * worse * above[place]
        return (won - lost) / max(won.sum(), np.finfo(float).tiny)


def _places(labels: NDArray[np.float32], of_list: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each label among those of its list, the least 0, equal ones the same."""
    order = np.lexsort((labels, of_list))
    ordered = labels[order]
    steps = np.concatenate(([0], np.cumsum(ordered[1:] != ordered[:-1])))
    places = np.empty_like(order)
    places[order] = steps - steps[np.searchsorted(of_list, of_list)]  # the first of each list
    return places


def _cuts(column: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """Values of ``column`` at which it is cut, above or not: at most ``most``, ascending."""
    values = np.unique(column)[:-1]
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(int)]
