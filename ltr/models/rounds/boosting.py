"""AdaRank and RankBoost: boosting of single features, as in their papers."""

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
from ltr.metrics.ties import TiesAveraged
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

_LEAST = 1e-6  # lower limit of sum P (1 - E), so that a perfect feature gets a finite weight
_MOST_SCORE = 300.0  # exp(300)^2 is still a float64
_MOST_R = 1 - 1e-6  # upper limit of r, so that a perfect threshold gets a finite weight

Ranker = tuple[float, ...]  # a weak ranker: its value in each array of ``names``
# Maps the scores of train, ``[items]``, and the rankers so far to the next ranker, if any.
Choose = Callable[[Doubles, Sequence[Ranker]], Ranker | None]


class ChosenFeatures(NumbersModel):
    """A sum of weak rankers, each of which uses one feature.

    The content is one array ``[rankers]`` for each of ``names``. The first name is ``features``
    (feature numbers, 0-based), the last is ``alphas`` (weights).
    """

    makes = "rankers"
    names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def chooser(self, data: FitData, items: Floats) -> Choose:
        """Return the function that chooses the next ranker.

        ``items`` are the features of train, ``[items, width]``.
        """

    @abstractmethod
    def part(self, ranker: Ranker, items: Floats) -> Doubles:
        """Return what ``ranker`` adds to the scores of ``items``, ``[items]``."""

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
        """For each feature, sum ``values`` over the rankers that use it, ``[width]``."""
        features = self.content["features"].astype(int)
        return np.bincount(features, values, self.width).astype(np.float64)

    def importances(self) -> Importances:
        """Return for each feature the sum of its |alpha|, and how often it was chosen."""
        alphas = np.abs(self.content["alphas"])
        return Importances(self.sums(alphas), self.sums(np.ones_like(alphas)))


class AdaRank(ChosenFeatures):
    """AdaRank (Xu and Li, 2007, figure 1): f = sum_t alpha_t x_{k_t}, one feature per round.

    E(f, i) is the metric of list i when it is ranked by f. P_t(i) is the weight of list i in round
    t. P_1 is equal for all lists, and every P_t is normalised to sum to 1. If the lists have
    weights of their own, these multiply every P_t. Round t chooses

        k_t = argmax_k sum_i P_t(i) E(x_k, i)
        alpha_t = 1/2 ln(sum_i P_t(i) (1 + E(x_{k_t}, i)) / sum_i P_t(i) (1 - E(x_{k_t}, i)))
        P_{t+1}(i) proportional to exp(-sharpness E(f_t, i)).

    E follows the run's convention, but always with ties averaged: the order of the rows must not
    choose a feature. A list that the convention skips has weight 0. A feature is used as the
    transform leaves it, and larger values rank first. If one feature is the best under every
    P_t, the rounds of the paper choose it again and again, and the order by f never changes:
    ``repeat=False`` or a larger ``sharpness`` helps. The paper stops when the metric on train no
    longer grows; here ``patience`` stops the fit, and the best round on the validation lists is
    kept.

    Args:
        metric: E, a metric with values from 0 to 1.
        sharpness: 1 in the paper; 2 has the same effect as rescaling E to the range -1 to 1.
        repeat: whether a feature may be chosen again. If False, rounds after ``width`` add nothing.

    Raises:
        ConfigError: a setting is out of range, or the values of the metric are not from 0 to 1.
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
        """Return E of each list of train, ``[lists]``, NaN if the list is skipped."""
        metric = TiesAveraged(self.metric)
        return metrics_of_scores(data.train, scores, [metric], data.convention)[str(metric)]

    def part(self, ranker: Ranker, items: Floats) -> Doubles:
        feature, alpha = ranker
        return alpha * items[:, int(feature)].astype(np.float64)

    def score_items(self, items: Floats) -> Reals:
        return items.astype(np.float64) @ self.linear_weights()

    def linear_weights(self) -> Doubles:
        """Return the weight of each feature, ``[width]``."""
        return self.sums(self.content["alphas"])


class RankBoost(ChosenFeatures):
    """RankBoost (Freund et al., 2003, section 3): f = sum_t alpha_t [x_{k_t} > theta_t].

    D_t(i, j) is proportional to exp(f(j) - f(i)) for all pairs y_i > y_j of items of one list, and
    sums to 1 over the pairs of all lists. With

        r(k, theta) = sum_ij D_t(i, j) ([x_ik > theta] - [x_jk > theta])

    round t chooses the k and theta with the largest |r|, and alpha_t = 1/2 ln((1 + r) / (1 - r))
    (the third method of section 3.2). ``model=stumps`` boosts the same loss with LightGBM's Newton
    steps.

    The thresholds of a feature are its distinct values in train, except the largest. If there are
    more than ``thresholds`` of them, that many are taken, evenly spaced in the sorted values.
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
                    r = np.cumsum(sums[::-1])[::-1][1:]  # sums of the values above each cut
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
    """Return a function that maps the scores of train to each item's share in r, ``[items]``.

    This is the sum of D over the pairs in which the item is the better one, minus the sum over the
    pairs in which it is the worse one.
    """
    train = data.train
    of_list = np.repeat(np.arange(len(train)), train.lengths)
    labels = pd.Series(train.labels.cpu().numpy())
    places = labels.groupby(of_list).rank("dense").to_numpy(int) - 1  # lowest 0, ties equal
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
    """Return at most ``most`` values of ``column`` as thresholds ("above or not"), ascending."""
    values = np.unique(column)[:-1]
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(int)]
