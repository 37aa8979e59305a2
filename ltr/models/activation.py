"""Activations by name."""

from torch import nn

from ltr.errors import ConfigError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
    "none": nn.Identity,
}


def activation_module(name: str | None) -> nn.Module:
    """A new module for the name of an activation; None is ``"none"``, the identity.

    Raises:
        ConfigError: the name is unknown.

    >>> activation_module("tanh"), activation_module(None)
    (Tanh(), Identity())
    """
    if name is None:
        name = "none"
    if name not in ACTIVATIONS:
        raise ConfigError(f"'{name}' is not an activation: choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()
