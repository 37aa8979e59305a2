"""``Dense``: the layers of a pointwise network, or a linear model, over shaped features."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from torch import nn

from ltr.data.lists import Doubles, Floats
from ltr.data.transforms import LOG, SIGNED_LOG, FeatureTransform
from ltr.experiment.engines import activation_of
from ltr.models import MLP, Linear
from ltr.models.rounds import AdaRank, PRank

_ROWS = 1 << 14  # items that are scored at once
_ACTIVATIONS: Mapping[str, Callable[[Doubles], Doubles]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "tanh": np.tanh,
    "sigmoid": expit,
}


@dataclass(frozen=True, eq=False)
class Layer:
    """``activation(weights @ x + bias)``: ``[out, in]`` and ``[out]``."""

    weights: Doubles
    bias: Doubles
    activation: str  # of ltr.models.layers


@dataclass(frozen=True, eq=False)
class Dense:
    """Layers in float64; the last has one unit, and no two in a row are linear.

    Attributes:
        layers: the first reads ``f(sign * x)`` of each raw feature, without the standardisation,
            which is in its weights.
        shape: ``f`` of each feature, as ``FeatureTransform.shape``.
        sign: of each feature; 1 where ``f`` is the identity, as the weights then have it.
        log_eps: of the logarithm.
    """

    layers: tuple[Layer, ...]
    shape: NDArray[np.int8]
    sign: Doubles
    log_eps: float

    @property
    def is_linear(self) -> bool:
        """Whether it is a sum of weights times features and a bias."""
        return len(self.layers) == 1 and self.layers[0].activation == "none"

    def scores(self, features: Floats) -> Doubles:
        """The score of each row of raw ``features``, ``[items]``."""
        blocks = range(0, len(features), _ROWS)
        return np.concatenate([self._scores(features[i : i + _ROWS]) for i in blocks])

    def _scores(self, features: Floats) -> Doubles:
        raw = np.asarray(features, np.float64) * self.sign
        logarithm = np.log(np.maximum(raw, 0) + self.log_eps)
        signed = np.sign(raw) * np.log1p(np.abs(raw))
        values = np.select([self.shape == LOG, self.shape == SIGNED_LOG], [logarithm, signed], raw)
        for layer in self.layers:
            values = _ACTIVATIONS[layer.activation](values @ layer.weights.T + layer.bias)
        return values[:, 0]


def dense_of(model: nn.Module, transform: FeatureTransform) -> Dense:
    """The layers of a model that ``is_dense``, with the transform's standardisation in the first.

    ``W ((f - mean) * scale) + b = (W * scale) f + (b - (W * scale) mean)``.
    """
    first, *others = _layers(model)
    weights = first.weights * transform.scale
    plain = ~np.isin(transform.shape, (LOG, SIGNED_LOG))
    folded = replace(
        first,
        weights=weights * np.where(plain, transform.sign, 1.0),
        bias=first.bias - weights @ transform.mean,
    )
    sign = np.where(plain, 1.0, transform.sign)
    return Dense((folded, *others), transform.shape, sign, transform.log_eps)


def _layers(model: nn.Module) -> list[Layer]:
    """The layers, each linear one merged into the next."""
    if isinstance(model, AdaRank | PRank):
        return [Layer(model.linear_weights()[None], np.zeros(1), "none")]
    assert isinstance(model, MLP | Linear)
    found: list[Layer] = []
    modules = [*model.layers] if isinstance(model, MLP) else []
    for module in [*modules, model.head.linear, model.head.activation]:
        name = activation_of(module)
        if isinstance(module, nn.Linear):
            weights, bias = (part.detach().cpu().double().numpy() for part in module.parameters())
            if found and found[-1].activation == "none":
                before = found.pop()
                weights, bias = weights @ before.weights, bias + weights @ before.bias
            found.append(Layer(weights, bias, "none"))
        elif name is not None:  # dropout has none
            found[-1] = replace(found[-1], activation=name)
    return found


def logistic_layers(dense: Dense) -> list[Layer]:
    """The same layers with logistic units alone: ``tanh(x) = 2 sigmoid(2 x) - 1``.

    A layer of tanh doubles its weights, and what reads it takes ``2 W`` and ``b - sum(W)``. The
    last layer is left without its activation.
    """
    found: list[Layer] = []
    was_tanh = False
    for place, layer in enumerate(dense.layers, 1):
        weights, bias = layer.weights, layer.bias
        if was_tanh:
            weights, bias = 2 * weights, bias - weights.sum(1)
        last, was_tanh = place == len(dense.layers), layer.activation == "tanh"
        factor = 2.0 if was_tanh and not last else 1.0
        found.append(Layer(factor * weights, factor * bias, "none" if last else "sigmoid"))
    return found
