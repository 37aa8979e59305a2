"""The feature transform and a model as one ``torch`` module that can be exported as a graph.

Like ``FeatureTransform``, which uses NumPy, this module transforms features in float64. The model
therefore gets the same float32 inputs.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ltr.boosting import AdaRank, BoostedTrees, PRank, RankBoost
from ltr.data.transforms import END, LOG, LOG_EPS, QUANTILE, SIGNED_LOG, FeatureTransform
from ltr.inference.export.boosters import convert_trees
from ltr.inference.export.forms import Trees, convert_linear
from ltr.parts.ensemble import Ensemble


def _constant(numbers: ArrayLike) -> Tensor:
    """Return ``numbers`` as a float64 tensor; the exporter writes Python numbers as float32."""
    return torch.tensor(numbers, dtype=torch.float64)


def _clip(values: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(torch.maximum(values, _constant(low)), _constant(high))


def transform_features(features: Tensor, transform: FeatureTransform) -> Tensor:
    """Return the transformed ``features``, float32 ``[..., outputs]``."""
    shape = transform.shape
    missing = features.isnan()
    raw = torch.where(missing, torch.zeros_like(features), features).double()
    raw = raw * _constant(transform.sign)
    shaped = raw
    if LOG in shape:
        logarithm = (raw.clamp(min=0.0) + _constant(LOG_EPS)).log()
        shaped = torch.where(torch.tensor(shape == LOG), logarithm, shaped)
    if SIGNED_LOG in shape:
        logarithm = raw.sign() * (raw.abs() + 1.0).log()
        shaped = torch.where(torch.tensor(shape == SIGNED_LOG), logarithm, shaped)
    if QUANTILE in shape:
        # a column without quantiles uses those of another column; its result is discarded
        row = np.maximum(np.cumsum(shape == QUANTILE) - 1, 0)
        score = normal_score(_levels(raw, _constant(transform.grids[row])))
        shaped = torch.where(torch.tensor(shape == QUANTILE), score, shaped)
    limit = float(np.finfo(np.float32).max)
    centred = (shaped - _constant(transform.mean)) * _constant(transform.scale)
    filled = _constant(math.nan) if transform.keep_missing else _constant(transform.codes)
    result = torch.where(missing, filled, _clip(centred, -limit, limit)).float()
    if len(transform.indicated):
        result = torch.cat([result, missing[..., torch.tensor(transform.indicated)].float()], -1)
    return result


def _levels(values: Tensor, grids: Tensor) -> Tensor:
    """Return the levels of ``values``, ``[..., columns]``, among the quantiles ``grids``.

    A level is in (0, 1): it says which share of the distribution is below the value. ``grids`` are
    ``[columns, levels]``. A value that is equal to several quantiles gets the middle of their
    levels.
    """
    columns, count = grids.shape
    quantiles = grids.flatten()
    starts = torch.arange(columns) * count

    def count_quantiles(compare: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Count the quantiles for which ``compare(quantile, value)`` is true (binary search)."""
        counts = torch.zeros_like(values, dtype=torch.int64)
        for bit in reversed(range(count.bit_length())):
            larger = counts + (1 << bit)
            last = quantiles[starts + larger.clamp(max=count) - 1]
            counts = torch.where(compare(last, values) & (larger <= count), larger, counts)
        return counts

    lower = count_quantiles(torch.lt)
    upper = count_quantiles(torch.le)
    left = (lower - 1).clamp(0, count - 2)
    low = quantiles[starts + left]
    high = quantiles[starts + left + 1]
    index = left + _clip((values - low) / (high - low), 0.0, 1.0)
    index = torch.where(lower < upper, (lower + upper - 1) / _constant(2.0), index)
    return _clip(index / _constant(count - 1), END, 1 - END)


# Wichura (1988), algorithm AS 241, PPND16: the quantile function of the standard normal
# distribution to about 16 digits, for levels in [1e-11, 1 - 1e-11]. Shape [2, 2, 8]: middle and
# tail; numerator and denominator; coefficients, with the highest power first.
_WICHURA = (
    ((2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
      13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
     (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
      5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0)),
    ((7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
      1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959,
      1.42343711074968357734),
     (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966,
      0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187,
      1.0)),
)  # fmt: skip


def normal_score(levels: Tensor) -> Tensor:
    """Compute the quantile function of the standard normal distribution, in float64.

    ``levels`` are in [1e-11, 1 - 1e-11].

    >>> normal_score(torch.tensor([0.5, 0.975], dtype=torch.float64)).round(decimals=12).tolist()
    [0.0, 1.95996398454]
    """
    centred = levels - _constant(0.5)
    depth = (-torch.minimum(levels, _constant(1.0) - levels).log()).sqrt()
    middle_argument = _constant(0.180625) - centred * centred
    tail_argument = depth - _constant(1.6)
    arguments = torch.stack((middle_argument, tail_argument), -1)[..., None]
    coefficients = torch.tensor(_WICHURA, dtype=torch.float64)
    values = coefficients[..., 0] + 0 * arguments  # [..., 2, 2]
    for power in range(1, coefficients.shape[-1]):
        values = values * arguments + coefficients[..., power]
    middle, tail = (values[..., 0] / values[..., 1]).unbind(-1)
    return torch.where(centred.abs() <= _constant(0.425), centred * middle, centred.sign() * tail)


@torch.library.custom_op("ltr::trees", mutates_args=())
def trees_operator(items: Tensor, number: int) -> Tensor:
    """A placeholder in a traced graph for the scores of trees, ``[items, 1]``."""
    return items.new_zeros(items.shape[0], 1, dtype=torch.float32)


trees_operator.register_fake(
    lambda items, number: items.new_empty(items.shape[0], 1, dtype=torch.float32)
)


class TreesGraph(nn.Module):
    """A placeholder for ``trees`` in a traced graph; ``number`` tells placeholders apart."""

    def __init__(self, trees: Trees) -> None:
        super().__init__()
        self.trees = trees
        self.number = id(self)

    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor | None = None) -> Tensor:
        scores: Tensor = trees_operator(features.flatten(0, 1).double(), self.number)
        return scores.reshape(mask.shape).masked_fill(~mask, 0)


class ScorerGraph(nn.Module):
    """A module that scores raw features ``[batch, list, feature]`` with a mask ``[batch, list]``.

    The scores are ``[batch, list]``, 0 on padding. The items must be in the order in which they
    were shown if the model uses their positions. If ``mask`` is None, the features are
    ``[item, feature]``, each item is a list of its own, and the scores are ``[item, 1]``.
    """

    def __init__(self, model: nn.Module, transform: FeatureTransform) -> None:
        super().__init__()
        if isinstance(model, AdaRank | PRank):
            model = convert_linear(model).float()
        elif isinstance(model, BoostedTrees | RankBoost):
            model = TreesGraph(convert_trees(model))
        self.model = model
        self.transform = transform

    def forward(
        self, features: Tensor, mask: Tensor | None = None, ranks: Tensor | None = None
    ) -> Tensor:
        if mask is None:
            mask = torch.ones_like(features[:, :1], dtype=torch.bool)
            features = features[:, None]
        ranks = torch.ones_like(mask, dtype=torch.int64).cumsum(-1)
        scores: Tensor = self.model(transform_features(features, self.transform), mask, ranks)
        return scores.float()


def build_graph(model: nn.Module, transform: FeatureTransform) -> nn.Module:
    """Return a ``ScorerGraph`` or, for an ensemble, an ``Ensemble`` of the graphs of its members.

    Members with the weight 0 are left out.
    """
    if not isinstance(model, Ensemble):
        return ScorerGraph(model, transform)
    graphs = []
    weights = []
    members: Any = zip(model.members, model.weights, strict=True)
    for member, weight in members:
        if weight:
            graphs.append(build_graph(member.model, member.transform))
            weights.append(weight)
    return Ensemble(graphs, weights)
