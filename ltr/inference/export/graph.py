"""The feature transform and a network as one ``torch`` module that exports to a graph.

``FeatureTransform`` computes in float64 by NumPy, and so does this by tensors: a graph of it gives
the same float32 inputs of the network.
"""

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from ltr.data.transforms import END, LOG, QUANTILE, SIGNED_LOG, FeatureTransform
from ltr.models import Linear
from ltr.models.rounds import AdaRank, PRank
from ltr.scorers.ensemble import Ensemble, Member, standardised


def _exact(number: float) -> Tensor:
    """A constant of float64: the exporter writes Python's numbers in float32."""
    return torch.tensor(number, dtype=torch.float64)


def _between(values: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(torch.maximum(values, _exact(low)), _exact(high))


class TransformGraph(nn.Module):
    """``FeatureTransform`` of ``[..., width]`` float32 to ``[..., outputs]`` float32."""

    def __init__(self, transform: FeatureTransform) -> None:
        super().__init__()
        shape, exact = transform.shape, np.float64
        self.sign, self.mean = torch.from_numpy(transform.sign), torch.from_numpy(transform.mean)
        self.scale = torch.from_numpy(transform.scale)
        self.codes = torch.from_numpy(transform.codes.astype(exact))
        self.logged, self.signed, self.graded = (
            torch.from_numpy(shape == kind) for kind in (LOG, SIGNED_LOG, QUANTILE)
        )
        self.indicated = torch.from_numpy(transform.indicated)
        self.kinds, self.log_eps = {*shape.tolist()}, transform.log_eps
        self.keep_missing = transform.keep_missing
        if QUANTILE in self.kinds:
            # a column without quantiles reads those of another, and its result is not used
            row = np.maximum(np.cumsum(shape == QUANTILE) - 1, 0)
            self.grids = torch.from_numpy(transform.grids[row])

    def forward(self, features: Tensor) -> Tensor:
        """Always finite, unless ``keep_missing``."""
        missing = features.isnan()
        raw = torch.where(missing, torch.zeros_like(features), features).double() * self.sign
        shaped = raw
        if LOG in self.kinds:
            logarithm = (raw.clamp(min=0.0) + _exact(self.log_eps)).log()
            shaped = torch.where(self.logged, logarithm, shaped)
        if SIGNED_LOG in self.kinds:
            shaped = torch.where(self.signed, raw.sign() * (raw.abs() + 1.0).log(), shaped)
        if QUANTILE in self.kinds:
            shaped = torch.where(self.graded, normal_score(_levels(raw, self.grids)), shaped)
        limit = float(np.finfo(np.float32).max)
        result = _between((shaped - self.mean) * self.scale, -limit, limit)
        filled = torch.full_like(result, math.nan) if self.keep_missing else self.codes
        result = torch.where(missing, filled, result).float()
        if len(self.indicated):
            result = torch.cat([result, missing[..., self.indicated].float()], -1)
        return result


def _levels(values: Tensor, grids: Tensor) -> Tensor:
    """The level of each of ``[..., columns]`` among its column's quantiles ``[columns, levels]``.

    A value that several quantiles equal has the middle of their levels: the mean of what its place
    from below and its place from above give.
    """
    columns, count = grids.shape
    flat, values = grids.flatten(), values[..., None]
    starts = torch.arange(columns, device=values.device)[:, None] * count
    # how many quantiles stand before a value: those <= it, and those < it, [..., columns, 2]
    upper = torch.tensor([True, False], device=values.device)
    place = (values * 0).expand(*values.shape[:-1], 2).long()
    for bit in reversed(range(count.bit_length())):
        tried = place + (1 << bit)
        at = flat[starts + tried.clamp(max=count) - 1]
        before = ((at < values) | (upper & (at == values))) & (tried <= count)
        place = torch.where(before, tried, place)
    left = (place - 1).clamp(0, count - 2)
    low, high = flat[starts + left], flat[starts + left + 1]
    share = _between(torch.where(high > low, (values - low) / (high - low), 0.0), 0.0, 1.0)
    share = torch.where(place == 0, _exact(0.0), share)
    levels = (left + torch.where(place == count, _exact(1.0), share)) / _exact(count - 1)
    return _between(levels.mean(-1), END, 1 - END)


# Wichura (1988), algorithm AS 241, PPND16: the inverse normal distribution to about 16 digits, for
# levels from 1e-11; [2, 2, 8]: middle and tail; numerator and denominator; highest power first.
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
    """The inverse of the normal distribution at ``levels`` in [1e-11, 1 - 1e-11], float64.

    >>> normal_score(torch.tensor([0.5, 0.975], dtype=torch.float64)).round(decimals=12).tolist()
    [0.0, 1.95996398454]
    """
    off = levels - _exact(0.5)
    depth = (-torch.minimum(levels, _exact(1.0) - levels).log()).sqrt()
    x = torch.stack((_exact(0.180625) - off * off, depth - _exact(1.6)), -1)[..., None]
    coefficients = torch.tensor(_WICHURA, dtype=torch.float64)
    values = coefficients[..., 0] + 0 * x  # [..., 2, 2]
    for power in range(1, coefficients.shape[-1]):
        values = values * x + coefficients[..., power]
    middle, tail = (values[..., 0] / values[..., 1]).unbind(-1)
    return torch.where(off.abs() <= _exact(0.425), off * middle, off.sign() * tail)


class ScorerGraph(nn.Module):
    """Raw features and mask to scores, ``[batch, list]``, 0 on padding; items in initial order.

    Without a mask ``[item, feature]`` to ``[item, 1]``: every item is a list of its own.
    """

    def __init__(self, model: nn.Module, transform: FeatureTransform) -> None:
        super().__init__()
        self.members, self.weights = nn.ModuleList(), list[float]()
        if isinstance(model, Ensemble):
            for one, weight in zip(model.members, model.weights, strict=True):
                if weight:
                    member = cast(Member, one)
                    self.members.append(ScorerGraph(member.model, member.transform))
                    self.weights.append(weight)
            return
        self.transform, self.model = TransformGraph(transform), model
        if isinstance(model, AdaRank | PRank):  # a linear layer
            weights = torch.from_numpy(model.linear_weights()).float()
            self.model = network = Linear(len(weights))
            network.head.linear.weight.data = weights[None]
            network.head.linear.bias.data.zero_()

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            features, mask = features[:, None], torch.ones_like(features[:, :1], dtype=torch.bool)
        if len(self.members):
            total = torch.zeros_like(mask, dtype=torch.float64)
            for member, weight in zip(self.members, self.weights, strict=True):
                total = total + weight * standardised(member(features, mask), mask)
            return total.float()
        ranks = torch.ones_like(mask, dtype=torch.int64).cumsum(-1)
        scores: Tensor = self.model(self.transform(features), mask, ranks)
        return scores.float()
