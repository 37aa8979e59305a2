"""AdaRank and RankBoost: boosting of single features, as their papers have it."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd

from ltr.arrays import Doubles, Floats, Reals
from ltr.errors import ConfigError, DataError
from ltr.knobs import check_positive, positive_int
from ltr.metrics import parse_metric
from ltr.models.rounds.model import (
    FitData,
    Importances,
    Numbers,
    NumbersModel,
    Round,
    finite_features,
    single,
)
from ltr.training.evaluation import metrics_of_scores

_LEAST = 1e-6  # of sum P (1 - E): a feature that ranks every list perfectly has a finite weight
_MOST_SCORE = 300.0  # exp(300)^2 is still a float64
_MOST_R = 1 - 1e-6  # a threshold that orders every pair has a finite weight

Ranker = tuple[float, ...]  # its number in each array of the content
# The next ranker by the scores of train, ``[items]``, and those before it; None: there is none.
Choose = Callable[[Doubles, Sequence[Ranker]], Ranker | None]


class ChosenFeatures(NumbersModel):
    """A sum of weak rankers, each of one feature: arrays ``names``, ``[rankers]`` each.

    The first is ``features``, 0-based, the last ``alphas``, the weights.
    """

    makes = "rankers"
    names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def chooser(self, data: FitData, items: Floats) -> Choose:
        """What chooses the rankers; ``items`` are the features of train, ``[items, width]``."""

    @abstractmethod
    def part(self, ranker: Ranker, items: Floats) -> Doubles:
        """What ``ranker`` adds to the scores of ``items``, ``[items]``."""

    def rounds(self, data: FitData) -> Iterator[Round]:
        splits = {**data.scored, "train": data.train}
        items = {split: finite_features(part, self.title) for split, part in splits.items()}
        scores = {split: np.zeros(len(rows)) for split, rows in items.items()}
        choose, chosen = self.chooser(data, items["train"]), list[Ranker]()
        while True:
            now = {split: single(scores[split]) for split in data.scored}
            yield Round(now, partial(self._state, [*chosen]), {self.makes: len(chosen)})
            ranker = choose(scores["train"], chosen)
            if ranker is not None:
                chosen.append(ranker)
                for split, rows in items.items():
                    scores[split] += self.part(ranker, rows)

    def _state(self, chosen: Sequence[Ranker]) -> Numbers | None:
        arrays = np.array(chosen, np.float64).T
        return dict(zip(self.names, arrays.copy(), strict=True)) if chosen else None

    def score_items(self, items: Floats) -> Reals:
        rankers = zip(*(self.content[name] for name in self.names), strict=True)
        return sum((self.part(ranker, items) for ranker in rankers), np.zeros(len(items)))

    def fits(self, content: Numbers) -> bool:
        features = content.get("features", np.zeros(()))
        return (
            set(content) == set(self.names)
            and features.ndim == 1
            and all(array.shape == features.shape for array in content.values())
            and bool(np.isin(features, np.arange(self.width)).all())
        )

    def sums(self, values: Doubles) -> Doubles:
        """The sum over rankers of ``values`` for each feature, ``[width]``."""
        features = self.content["features"].astype(int)
        return np.bincount(features, values, self.width).astype(np.float64)

    def importances(self) -> Importances:
        """The sum of |alpha| of each feature, and how often it was chosen."""
        alphas = np.abs(self.content["alphas"])
        return Importances(self.sums(alphas), self.sums(np.ones_like(alphas)))


class AdaRank(ChosenFeatures):
    """AdaRank (Xu and Li, 2007, figure 1): f = sum_t alpha_t x_{k_t}, one feature a round.

    With E(f, i) the metric of list i when it is ranked by f, and P_1 the same for all lists,

        k_t = argmax_k sum_i P_t(i) E(x_k, i)
        alpha_t = 1/2 ln(sum_i P_t(i) (1 + E(x_{k_t}, i)) / sum_i P_t(i) (1 - E(x_{k_t}, i)))
        P_{t+1}(i) proportional to exp(-sharpness E(f_t, i)).

    The convention of E is that of the run; a list that it skips has no weight. Features are ranked
    by as the transform leaves them, larger first. Where one feature is best under every P that
    these weights reach, the paper's rounds choose it again and again and f never changes its order:
    ``repeat=False`` and a larger ``sharpness`` are remedies. The paper ends when the metric of
    train no longer grows; here ``patience`` ends, and the best round on vali is kept.

    Args:
        metric: E, a metric from 0 to 1.
        sharpness: 1 is the paper's; 2 is E rescaled to the range -1 to 1.
        repeat: whether a feature may be chosen again; False ends after ``width`` rounds.

    Raises:
        ConfigError: a knob is out of its range, or the metric is not from 0 to 1.
    """

    title = "AdaRank"
    names = ("features", "alphas")

    def __init__(
        self, width: int, *, metric: str = "map", sharpness: float = 1.0, repeat: bool = True
    ) -> None:
        super().__init__(width)
        self.metric = parse_metric(metric)
        if self.metric.name == "dcg" or self.metric.is_own:
            raise ConfigError(
                f"model.metric={metric}: AdaRank takes a metric of this project from 0 to 1, "
                "such as ndcg@10 or map"
            )
        check_positive("model.sharpness", sharpness)
        self.sharpness, self.repeat = float(sharpness), repeat

    def chooser(self, data: FitData, items: Floats) -> Choose:
        # E of each list by each feature, [lists, width]
        alone = np.stack([self._values(data, column) for column in items.T], axis=1)
        own = np.ones(len(alone)) if data.weights is None else data.weights
        if data.convention.empty == "skip":
            counted = np.asarray(~np.isnan(alone).any(axis=1))
            own, alone = own * counted, np.where(counted[:, None], alone, 0.0)
        if not np.isfinite(alone).all() or np.ptp(alone) == 0:
            raise DataError(
                f"model.metric={self.metric} of train is not finite, or the same for every list "
                "and feature: choose another, or set convention.gain=linear or a lower "
                "convention.relevant"
            )

        def choose(scores: Doubles, chosen: Sequence[Ranker]) -> Ranker | None:
            weights = own
            if chosen:
                value = np.nan_to_num(self._values(data, scores))
                weights = own * np.exp(-self.sharpness * value)
            means = weights / weights.sum() @ alone
            if not self.repeat:
                means[[int(feature) for feature, _ in chosen]] = -np.inf
            feature = int(means.argmax())
            if means[feature] == -np.inf:
                return None
            alpha = 0.5 * np.log((1 + means[feature]) / max(1 - means[feature], _LEAST))
            return feature, float(alpha)

        return choose

    def _values(self, data: FitData, scores: Reals) -> Doubles:
        """E of each list of train, ``[lists]``, NaN where it is skipped."""
        found = metrics_of_scores(data.train, scores, [self.metric], data.convention)
        return found[str(self.metric)]

    def part(self, ranker: Ranker, items: Floats) -> Doubles:
        feature, alpha = ranker
        return alpha * items[:, int(feature)].astype(np.float64)

    def score_items(self, items: Floats) -> Reals:
        return items.astype(np.float64) @ self.linear_weights()

    def linear_weights(self) -> Doubles:
        """The weight of each feature, ``[width]``."""
        return self.sums(self.content["alphas"])


class RankBoost(ChosenFeatures):
    """RankBoost (Freund et al., 2003, section 3): f = sum_t alpha_t [x_{k_t} > theta_t].

    With D_t(i, j) proportional to exp(f(j) - f(i)) over all pairs y_i > y_j of items of one list,
    the sum over pairs and lists 1,

        r(k, theta) = sum_ij D_t(i, j) ([x_ik > theta] - [x_jk > theta])

    a round takes the k, theta of the largest |r| and alpha_t = 1/2 ln((1 + r) / (1 - r)) (the third
    method of section 3.2). ``model=stumps`` boosts the same loss by Newton steps of LightGBM.

    A feature has at most ``thresholds``: all gaps between values of train, or where there are more
    values, so many quantiles.
    """

    title = "RankBoost"
    names = ("features", "thresholds", "alphas")

    def __init__(self, width: int, *, thresholds: int = 255) -> None:
        super().__init__(width)
        self.thresholds = positive_int("model.thresholds", thresholds)

    def chooser(self, data: FitData, items: Floats) -> Choose:
        potential = _potential(data)
        if not potential(np.zeros(len(items))).any():
            raise DataError("RankBoost: no list of train has two labels: give graded lists")
        cuts = [_cuts(column, self.thresholds) for column in items.T]
        # how many cuts are below each value
        bins = [np.searchsorted(*both) for both in zip(cuts, items.T, strict=True)]

        def choose(scores: Doubles, chosen: Sequence[Ranker]) -> Ranker | None:
            of_items, best = potential(scores), (0.0, 0, 0)
            for feature, (known, places) in enumerate(zip(cuts, bins, strict=True)):
                if len(known):
                    sums = np.bincount(places, of_items, len(known) + 1)
                    r = np.cumsum(sums[::-1])[::-1][1:]  # of the values above each cut
                    cut = int(np.abs(r).argmax())
                    if abs(r[cut]) > abs(best[0]):
                        best = float(r[cut]), feature, cut
            r_best, feature, cut = best
            if r_best == 0:
                return None
            r_best = min(max(r_best, -_MOST_R), _MOST_R)
            alpha = 0.5 * np.log((1 + r_best) / (1 - r_best))
            return feature, float(cuts[feature][cut]), float(alpha)

        return choose

    def part(self, ranker: Ranker, items: Floats) -> Doubles:
        feature, threshold, alpha = ranker
        return alpha * (items[:, int(feature)] > threshold).astype(np.float64)


def _potential(data: FitData) -> Callable[[Doubles], Doubles]:
    """Sum over pairs of D as the better item, less that as the worse, ``[items]``, by scores."""
    train = data.train
    of_list = np.repeat(np.arange(len(train)), train.lengths)
    labels = pd.Series(train.labels.cpu().numpy())
    places = labels.groupby(of_list).rank("dense").to_numpy(int) - 1  # the least 0, ties the same
    place = of_list, places
    shape = len(train), 1 + places.max(initial=0)
    weights = np.ones(len(train)) if data.weights is None else data.weights
    own = weights.astype(np.float64)[of_list]

    def potential(scores: Doubles) -> Doubles:
        scores = scores.clip(-_MOST_SCORE, _MOST_SCORE)
        better, worse = np.exp(-scores), np.exp(scores)
        of_worse, of_better = np.zeros(shape), np.zeros(shape)
        np.add.at(of_worse, place, worse)
        np.add.at(of_better, place, better)
        below = np.cumsum(of_worse, axis=1) - of_worse
        above = np.cumsum(of_better[:, ::-1], axis=1)[:, ::-1] - of_better
        won, lost = own * better * below[place], own * worse * above[place]
        return (won - lost) / max(won.sum(), np.finfo(float).tiny)

    return potential


def _cuts(column: Floats, most: int) -> Floats:
    """Values of ``column`` at which it is cut, above or not: at most ``most``, ascending."""
    values = np.unique(column)[:-1]
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(int)]
