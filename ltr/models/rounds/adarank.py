"""AdaRank: boosting of single features on a metric."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.data.batches import ItemTensors
from ltr.errors import ConfigError, DataError
from ltr.knobs import check_positive
from ltr.metrics import Convention, Metric, parse_metric
from ltr.models.rounds.arrays import ChosenFeatures
from ltr.models.rounds.model import FitData, Round
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
        self.sharpness, self.repeat = float(sharpness), repeat

    def rounds(self, data: FitData) -> Iterator[Round]:
        items, scores = self.start(data)
        single = self._singles(data)  # E of each feature, [lists, width]
        own = ~np.isnan(single).any(axis=1) * (1.0 if data.weights is None else data.weights)
        single = np.nan_to_num(single)
        chosen: list[tuple[float, ...]] = []
        weights = own / own.sum()
        while True:
            yield self.round(data, chosen, scores)
            means = weights @ single
            if not self.repeat:
                means[[int(feature) for feature, _ in chosen]] = -np.inf
            feature = int(means.argmax())
            if means[feature] == -np.inf:
                continue
            alpha = 0.5 * np.log((1 + means[feature]) / max(1 - means[feature], _LEAST))
            chosen.append((feature, float(alpha)))
            for split, rows in items.items():
                scores[split] += alpha * rows[:, feature].astype(np.float64)
            found = metrics_of_scores(data.train, scores["train"], [self.metric], data.convention)
            weights = own * np.exp(-self.sharpness * np.nan_to_num(found[str(self.metric)]))
            weights /= weights.sum()

    def _singles(self, data: FitData) -> NDArray[np.float64]:
        """The metric of each list of train by each feature, NaN where the convention skips it."""
        single = metric_by_feature(data.train, self.metric, data.convention)
        counted = np.array(~np.isnan(single).any(axis=1))
        if not np.isfinite(single[counted]).all() or not (
            counted.all() or data.convention.empty == "skip"
        ):
            raise DataError(
                f"model.metric={self.metric} of train is not finite, as 2 to its largest label is "
                "too large a number: set convention.gain=linear, or choose another model.metric"
            )
        if np.ptp(np.where(counted[:, None], single, 0.0)) == 0:
            largest, remedy = data.train.labels.max().cpu().numpy(), "choose another"
            if 0 < largest < data.convention.relevant:
                remedy = f"set convention.relevant={largest!s}, the largest label, or {remedy}"
            raise DataError(
                f"model.metric={self.metric} of train is the same for every list and feature: "
                f"{remedy}"
            )
        return single

    def score_items(self, items: NDArray[np.float32]) -> NDArray[np.floating]:
        return items.astype(np.float64) @ self.linear_weights()

    def linear_weights(self) -> NDArray[np.float64]:
        """The weight of each feature, ``[width]``."""
        return self.sums(self.content["alphas"])


@torch.inference_mode()
def metric_by_feature(
    data: ItemTensors, metric: Metric, convention: Convention
) -> NDArray[np.float64]:
    """``metric`` of each list of ``data`` when it is ranked by one feature, ``[lists, width]``."""
    width = data.features.shape[1]
    out = np.empty((len(data), width))
    for batch in padded_batches(data, items=max(1, _VALUES // width)):
        scores = data.features[batch.rows].double().movedim(-1, 0).flatten(0, 1)
        labels, mask = batch.labels.repeat(width, 1), batch.mask.repeat(width, 1)
        values = metric(scores, labels, mask, convention)
        out[batch.lists] = values.reshape(width, -1).T.cpu().numpy()
    return out
