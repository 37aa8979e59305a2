"""AdaRank and RankBoost: boosting of single features, as in their papers."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd

from ltr.arrays import Doubles, Floats, Reals
from ltr.boosting.model import (
    Arrays,
    ArraysModel,
    FitData,
    Importances,
    Round,
    finite_features,
    scores_to_float32,
)
from ltr.errors import ConfigError, DataError
from ltr.knobs import check_positive, positive_int
from ltr.metrics import parse_metric
from ltr.metrics.ties import TiesAveraged
from ltr.training.evaluation import metrics_of_scores

_LEAST_ERROR = 1e-6  # lower limit of sum P (1 - E), so that a perfect feature gets a finite weight
_MAX_SCORE = 300.0  # exp(300)^2 is still a float64
_MAX_R = 1 - 1e-6  # upper limit of r, so that a perfect threshold gets a finite weight

WeakRanker = tuple[float, ...]  # one value for each of ``names``
# Maps the training scores, ``[items]``, and the rankers so far to the next ranker, or to None.
Choose = Callable[[Doubles, Sequence[WeakRanker]], WeakRanker | None]


class ChosenFeatures(ArraysModel):
    """A sum of weak rankers, each of which uses one feature.

    The content is one array ``[rankers]`` for each of ``names``. The first name is ``features``
    (0-based indices of features), and the last is ``alphas`` (weights).
    """

    makes = "rankers"
    names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def make_chooser(self, data: FitData, items: Floats) -> Choose:
        """Return the function that chooses the next ranker.

        ``items`` are the training features, ``[items, width]``.
        """

    @abstractmethod
    def ranker_scores(self, ranker: WeakRanker, items: Floats) -> Doubles:
        """Return the numbers, ``[items]``, that ``ranker`` adds to the scores of the ``items``."""

    def rounds(self, data: FitData) -> Iterator[Round]:
        splits = {**data.scored, "train": data.train}
        items = {split: finite_features(lists, self.title) for split, lists in splits.items()}
        scores = {split: np.zeros(len(rows)) for split, rows in items.items()}
        choose = self.make_chooser(data, items["train"])
        rankers: list[WeakRanker] = []
        while True:
            round_scores = {split: scores_to_float32(scores[split]) for split in data.scored}
            state = partial(self._state, list(rankers))
            yield Round(round_scores, state, {self.makes: len(rankers)})
            ranker = choose(scores["train"], rankers)
            if ranker is not None:
                rankers.append(ranker)
                for split, rows in items.items():
                    scores[split] += self.ranker_scores(ranker, rows)

    def _state(self, rankers: Sequence[WeakRanker]) -> Arrays | None:
        if not rankers:
            return None
        arrays = np.array(rankers, np.float64).T
        return dict(zip(self.names, arrays.copy(), strict=True))

    def score_items(self, items: Floats) -> Reals:
        rankers = zip(*(self.content[name] for name in self.names), strict=True)
        scores = np.zeros(len(items))
        for ranker in rankers:
            scores = scores + self.ranker_scores(ranker, items)
        return scores

    def is_compatible(self, content: Arrays) -> bool:
        features = content.get("features", np.zeros(()))
        return (
            set(content) == set(self.names)
            and features.ndim == 1
            and all(array.shape == features.shape for array in content.values())
            and bool(np.isin(features, np.arange(self.width)).all())
        )

    def sum_by_feature(self, values: Doubles) -> Doubles:
        """Return the sums, ``[width]``, of ``values`` over the rankers that use each feature."""
        features = self.content["features"].astype(int)
        return np.bincount(features, values, self.width).astype(np.float64)

    def importances(self) -> Importances:
        """Return the sum of the absolute weights of each feature's rankers, and their number."""
        alphas = np.abs(self.content["alphas"])
        return Importances(self.sum_by_feature(alphas), self.sum_by_feature(np.ones_like(alphas)))


class AdaRank(ChosenFeatures):
    r"""AdaRank (Xu and Li, 2007, figure 1): a sum of single features, one per round.

    .. math:: f = \sum_t \alpha_t x_{k_t}

    E(f, i) is the metric of list i when it is ranked by f. P_t(i) is the weight of list i in round
    t. P_1 is equal for all lists, and every P_t is normalised to sum to 1. If the lists have
    weights of their own, these multiply every P_t. Round t chooses

    .. math:: k_t = \arg\max_k \sum_i P_t(i) E(x_k, i)

    .. math::

        \alpha_t = \frac{1}{2} \ln \frac{\sum_i P_t(i) (1 + E(x_{k_t}, i))}
        {\sum_i P_t(i) (1 - E(x_{k_t}, i))}

    .. math:: P_{t+1}(i) \propto \exp(-\mathrm{sharpness} \, E(f_t, i))

    E follows the run's convention, except that ties are always averaged. So the order of the rows
    cannot influence the choice. A list that the convention skips has weight 0. Features are used
    after the transform, and larger values rank first. If one feature is the best under every P_t,
    the paper's algorithm chooses it in every round, and the order by f never changes:
    ``repeat=False`` or a larger ``sharpness`` helps. The paper stops when the training metric no
    longer increases. Here ``patience=`` stops the fit, and the best round on the validation lists
    is kept.

    Args:
        width: number of features of an item.
        metric: E, a metric with values from 0 to 1.
        sharpness: 1 in the paper; 2 has the same effect as rescaling E to the range -1 to 1.
        repeat: whether a feature may be chosen again. If False, only the first
            ``width`` rounds can add a feature.

    Raises:
        ConfigError: a setting is out of range, or ``metric`` can have values outside 0 to 1.
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
                f"model.metric={metric}: AdaRank needs a built-in metric with values from 0 to 1, "
                "such as ndcg@10 or map"
            )
        check_positive("model.sharpness", sharpness)
        self.sharpness = float(sharpness)
        self.repeat = repeat

    def make_chooser(self, data: FitData, items: Floats) -> Choose:
        # E of each list by each feature, [lists, width]
        values = np.stack([self._metric_values(data, column) for column in items.T], axis=1)
        list_weights = np.ones(len(values)) if data.weights is None else data.weights
        if data.convention.empty == "skip":
            counted = np.asarray(~np.isnan(values).any(axis=1))
            list_weights = list_weights * counted
            values = np.where(counted[:, None], values, 0.0)
        if not np.isfinite(values).all() or np.ptp(values) == 0:
            raise DataError(
                f"model.metric={self.metric} has values on train that are not finite, or that "
                "are the same for every list and feature: choose another metric, or set "
                "convention.gain=linear or a lower convention.relevant"
            )

        def choose(scores: Doubles, rankers: Sequence[WeakRanker]) -> WeakRanker | None:
            weights = list_weights
            if rankers:
                current = np.nan_to_num(self._metric_values(data, scores))
                weights = list_weights * np.exp(-self.sharpness * current)
            means = weights / weights.sum() @ values
            if not self.repeat:
                means[[int(feature) for feature, _ in rankers]] = -np.inf
            feature = int(means.argmax())
            if means[feature] == -np.inf:
                return None
            error = max(1 - means[feature], _LEAST_ERROR)
            alpha = 0.5 * np.log((1 + means[feature]) / error)
            return feature, float(alpha)

        return choose

    def _metric_values(self, data: FitData, scores: Reals) -> Doubles:
        """Return E of each list of train, ``[lists]``; NaN if the list is skipped."""
        metric = TiesAveraged(self.metric)
        return metrics_of_scores(data.train, scores, [metric], data.convention)[str(metric)]

    def ranker_scores(self, ranker: WeakRanker, items: Floats) -> Doubles:
        feature, alpha = ranker
        return alpha * items[:, int(feature)].astype(np.float64)

    def score_items(self, items: Floats) -> Reals:
        return items.astype(np.float64) @ self.linear_weights()

    def linear_weights(self) -> Doubles:
        """Return the weight of each feature, ``[width]``."""
        return self.sum_by_feature(self.content["alphas"])


class RankBoost(ChosenFeatures):
    r"""RankBoost (Freund et al., 2003, section 3): a sum of thresholded features, one per round.

    .. math:: f = \sum_t \alpha_t [x_{k_t} > \theta_t]

    where [c] is 1 if c is true, else 0. The pairs are those of items i and j of one list whose
    labels satisfy y_i > y_j. D_t(i, j) is proportional to exp(f(j) - f(i)), and sums to 1 over the
    pairs of all lists. Round t chooses the k and theta with the largest \|r\| (the third method of
    section 3.2):

    .. math:: r(k, \theta) = \sum_{ij} D_t(i, j) ([x_{ik} > \theta] - [x_{jk} > \theta])

    .. math:: \alpha_t = \frac{1}{2} \ln \frac{1 + r}{1 - r}

    ``model=stumps`` boosts the same loss with LightGBM's Newton steps.

    The thresholds of a feature are its distinct values in train, except the largest. If there are
    more than ``thresholds`` such values, only ``thresholds`` of them are used, evenly spaced in the
    sorted values.

    Args:
        width: number of features of an item.
        thresholds: the maximum number of thresholds of a feature.

    Raises:
        ConfigError: a setting is out of range.
    """

    title = "RankBoost"
    names = ("features", "thresholds", "alphas")

    def __init__(self, width: int, *, thresholds: int = 255) -> None:
        super().__init__(width)
        self.thresholds = positive_int("model.thresholds", thresholds)

    def make_chooser(self, data: FitData, items: Floats) -> Choose:
        item_shares = _item_shares(data)
        if not item_shares(np.zeros(len(items))).any():
            raise DataError(
                "RankBoost: no list of train has two different labels: use lists with two or more "
                "grades"
            )
        thresholds = [_thresholds(column, self.thresholds) for column in items.T]
        bins = [  # the number of thresholds below each value
            np.searchsorted(feature_thresholds, column)
            for feature_thresholds, column in zip(thresholds, items.T, strict=True)
        ]

        def choose(scores: Doubles, rankers: Sequence[WeakRanker]) -> WeakRanker | None:
            shares = item_shares(scores)
            best_r = 0.0
            best_feature = 0
            best_index = 0
            for feature in range(len(thresholds)):
                count = len(thresholds[feature])
                if count == 0:
                    continue
                sums = np.bincount(bins[feature], shares, count + 1)
                r = np.cumsum(sums[::-1])[::-1][1:]  # sums of the shares above each threshold
                index = int(np.abs(r).argmax())
                if abs(r[index]) > abs(best_r):
                    best_r = float(r[index])
                    best_feature = feature
                    best_index = index
            if best_r == 0:
                return None
            best_r = min(max(best_r, -_MAX_R), _MAX_R)
            alpha = 0.5 * np.log((1 + best_r) / (1 - best_r))
            return best_feature, float(thresholds[best_feature][best_index]), float(alpha)

        return choose

    def ranker_scores(self, ranker: WeakRanker, items: Floats) -> Doubles:
        feature, threshold, alpha = ranker
        return alpha * (items[:, int(feature)] > threshold).astype(np.float64)


def _item_shares(data: FitData) -> Callable[[Doubles], Doubles]:
    """Return a function that maps the training scores to the items' shares in r, ``[items]``.

    A share is the sum of D over the pairs in which the item is the better one, minus the sum over
    the pairs in which it is the worse one.
    """
    train = data.train
    list_index = np.repeat(np.arange(len(train)), train.lengths)
    labels = pd.Series(train.labels.cpu().numpy())
    grades = labels.groupby(list_index).rank("dense").to_numpy(int) - 1  # lowest 0, ties equal
    cell = list_index, grades  # of each item in a table [lists, grades]
    shape = len(train), 1 + grades.max(initial=0)
    list_weights = np.ones(len(train)) if data.weights is None else data.weights
    weights = list_weights.astype(np.float64)[list_index]

    def item_shares(scores: Doubles) -> Doubles:
        scores = scores.clip(-_MAX_SCORE, _MAX_SCORE)
        as_better = np.exp(-scores)
        as_worse = np.exp(scores)
        worse_sums = np.zeros(shape)
        better_sums = np.zeros(shape)
        np.add.at(worse_sums, cell, as_worse)
        np.add.at(better_sums, cell, as_better)
        below = np.cumsum(worse_sums, axis=1) - worse_sums
        above = np.cumsum(better_sums[:, ::-1], axis=1)[:, ::-1] - better_sums
        won = weights * as_better * below[cell]
        lost = weights * as_worse * above[cell]
        return (won - lost) / max(won.sum(), np.finfo(float).tiny)

    return item_shares


def _thresholds(column: Floats, largest_count: int) -> Floats:
    """Return at most ``largest_count`` thresholds, which are values of ``column``, ascending."""
    values = np.unique(column)[:-1]
    if len(values) <= largest_count:
        return values
    return values[np.linspace(0, len(values) - 1, largest_count).astype(int)]
