"""AdaRank: boosting of single features on a metric."""

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.data.batches import ItemTensors
from ltr.errors import ConfigError, DataError
from ltr.metrics import Convention, Metric, parse_metric
from ltr.metrics.checks import check_positive
from ltr.rounds.model import Order, Rounds
from ltr.rounds.numbers import ChosenFeatures, ChosenRounds
from ltr.training.evaluation import metrics_of_scores, padded_batches

_LEAST = 1e-6  # of sum P (1 - E): a feature that ranks every list perfectly has a finite weight
_VALUES = 1 << 22  # scores in a batch of single features: 32 MB


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
        width: number of features of an item.
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
        if not isinstance(repeat, bool):
            raise ConfigError(f"model.repeat={repeat}: write true or false")
        self.sharpness, self.repeat = float(sharpness), repeat

    def begin(self, order: Order) -> Rounds:
        """Measure each feature on each list of train; see the base class."""
        return _Rounds(self, order)

    def score_items(self, items: NDArray[np.float32]) -> NDArray[np.floating]:
        return items.astype(np.float64) @ self.linear_weights()

    def linear_weights(self) -> NDArray[np.float64]:
        """The weight of each feature, ``[width]``."""
        return self.sums(self.content["alphas"])


class _Rounds(ChosenRounds):
    def __init__(self, model: AdaRank, order: Order) -> None:
        super().__init__(model, order)
        self._model, self._data, self._convention = model, order.data, order.convention
        train = order.data["train"]
        self._single = of_features(train, model.metric, order.convention)
        counted = ~np.isnan(self._single).any(axis=1)
        if not np.isfinite(self._single[counted]).all() or not (
            counted.all() or order.convention.empty == "skip"
        ):
            raise DataError(
                f"model.metric={model.metric} of train is not finite, as 2 to its largest label is "
                "too large a number: set convention.gain=linear, or choose another model.metric"
            )
        self._single[~counted] = 0.0
        if self._single.max() == self._single.min():
            largest, remedy = train.labels.max().cpu().numpy(), "choose another"
            if 0 < largest < order.convention.relevant:
                remedy = f"set convention.relevant={largest!s}, the largest label, or {remedy}"
            raise DataError(
                f"model.metric={model.metric} of train is the same for every list and feature: "
                f"{remedy}"
            )
        self._own = counted * (1.0 if order.weights is None else order.weights)
        self._weights = self._own / self._own.sum()

    def round(self) -> None:
        means = self._weights @ self._single
        if not self._model.repeat:
            means[[int(feature) for feature, _ in self._chosen]] = -np.inf
        feature = int(means.argmax())
        if means[feature] == -np.inf:
            return
        alpha = 0.5 * np.log((1 + means[feature]) / max(1 - means[feature], _LEAST))
        self._chosen.append((feature, float(alpha)))
        for split, items in self._items.items():
            self._now[split] += alpha * items[:, feature].astype(np.float64)
        metric = self._model.metric
        scores = metrics_of_scores(
            self._data["train"], self._now["train"], [metric], self._convention
        )
        weights = self._own * np.exp(-self._model.sharpness * np.nan_to_num(scores[str(metric)]))
        self._weights = weights / weights.sum()

    def columns(self) -> dict[str, float]:
        if not self._chosen:
            return {}
        feature, alpha = self._chosen[-1]
        return {"feature": feature + 1, "alpha": alpha}


@torch.inference_mode()
def of_features(data: ItemTensors, metric: Metric, convention: Convention) -> NDArray[np.float64]:
    """``metric`` of each list of ``data`` when it is ranked by one feature, ``[lists, width]``."""
    width = data.features.shape[1]
    out = np.empty((len(data), width))
    for batch in padded_batches(data, items=max(1, _VALUES // width)):
        scores = data.features[batch.rows].double().movedim(-1, 0).flatten(0, 1)
        labels, mask = batch.labels.repeat(width, 1), batch.mask.repeat(width, 1)
        values = metric(scores, labels, mask, convention)
        out[batch.lists] = values.reshape(width, -1).T.cpu().numpy()
    return out
