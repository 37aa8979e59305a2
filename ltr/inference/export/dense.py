"""``Dense``: the layers of a pointwise network, or a linear model, over raw features."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit
from torch import nn

from ltr.data.lists import Doubles, Floats
from ltr.data.transforms import FeatureTransform
from ltr.experiment.engines import activation_of
from ltr.models import MLP, Linear
from ltr.models.rounds import AdaRank, PRank

_ACTIVATIONS: Mapping[str, Callable[[Doubles], Doubles]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "tanh": np.tanh,
    "sigmoid": expit,
}


@dataclass(frozen=True, eq=False)
class Layer:
    """``activation(weights @ x + bias)``: ``[out, in]`` and ``[out]`` float64."""

    weights: Doubles
    bias: Doubles
    activation: str = "none"  # of ltr.models.layers


@dataclass(frozen=True, eq=False)
class Dense:
    """Layers; the last has one unit, and no two in a row are linear."""

    layers: tuple[Layer, ...]

    @property
    def is_linear(self) -> bool:
        """Whether it is a sum of weights times features and a bias."""
        return len(self.layers) == 1 and self.layers[0].activation == "none"

    def scores(self, features: Floats) -> Doubles:
        """The score of each row of raw ``features``, ``[items]``."""
        values = np.asarray(features, np.float64)
        for layer in self.layers:
            values = _ACTIVATIONS[layer.activation](values @ layer.weights.T + layer.bias)
        return values[:, 0]


def dense_of(model: nn.Module, transform: FeatureTransform) -> Dense:
    """The layers of a model that ``is_dense``, each linear one merged into the next.

    The standardisation is in the first:
    ``W (scale * (sign * x - mean)) + b = (W * scale * sign) x + (b - (W * scale) mean)``.
    """
    found: list[Layer] = []
    if isinstance(model, AdaRank | PRank):
        found.append(Layer(model.linear_weights()[None], np.zeros(1)))
    else:
        assert isinstance(model, MLP | Linear)
        modules = [*model.layers] if isinstance(model, MLP) else []
        for module in [*modules, model.head.linear, model.head.activation]:
            name = activation_of(module)
            if isinstance(module, nn.Linear):
                parts = module.parameters()
                weights, bias = (part.detach().cpu().double().numpy() for part in parts)
                if found and found[-1].activation == "none":
                    before = found.pop()
                    weights, bias = weights @ before.weights, bias + weights @ before.bias
                found.append(Layer(weights, bias))
            elif name is not None:  # dropout has none
                found[-1] = replace(found[-1], activation=name)
    first, *others = found
    weights = first.weights * transform.scale
    bias = first.bias - weights @ transform.mean
    return Dense((Layer(weights * transform.sign, bias, first.activation), *others))
