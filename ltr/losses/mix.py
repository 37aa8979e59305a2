"""Mix: a weighted sum of the losses of this package, by their names."""

import functools
import inspect
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import is_number
from ltr.typing import Labels, Loss, Mask, PerList, Scores

OF_RUN = ("teacher", "generator")  # arguments that are no settings
_OTHERWISE = {"lambda": "lambdaloss", "plistmle": "p_listmle"}
_DEFAULT = MappingProxyType({"neuralndcg": 1.0, "listnet": 0.3})


def mix_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    parts: Mapping[str, float | int] = _DEFAULT,
    knobs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    levels: int = 5,
    teacher: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> PerList:
    """Sum over the parts p of weight_p loss_p of each list, ``[batch]``.

    The parts are named as ``loss=`` names them, ``neuralndcg`` is ``neural_ndcg_loss``, and each
    counts in its own units: NeuralNDCG goes from -1 to 0, ListNet from the entropy of its labels
    up. The transposed NeuralNDCG is ``neuralndcg`` with its knob.

    Args:
        parts: the weight of each part, >= 0; 0 leaves it out.
        knobs: of some of ``parts``, ``{"neuralndcg": {"temperature": 0.1}}``; the others are the
            functions' defaults.
        levels: number of grades, for the parts that take it.
        teacher: another model's scores, ``[batch, list]``, for the parts that take them.
        generator: for the parts that draw, in the order of their names; None is torch's own.

    Raises:
        ConfigError: a name, a weight or a knob is wrong, or no part counts.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    >>> mix_loss(scores, labels, labels >= 0, parts={"mse": 0.5, "ranknet": 1})  # 1/2 4/2 + log 2
    tensor([1.6931])
    """
    known = losses_by_name()
    for name in (*parts, *knobs):
        if name not in known:
            raise ConfigError(f"{name}: no such part of a mix; there are {', '.join(known)}")
    for name, own in knobs.items():
        settable = [knob for knob in _knobs_of(name) if knob not in OF_RUN]
        if name not in parts:
            raise ConfigError(f"knobs.{name}: {name} is no part of this mix; set parts.{name} too")
        if wrong := [knob for knob in own if knob not in settable]:
            there = ", ".join(settable) or "none"
            raise ConfigError(f"knobs.{name}.{wrong[0]}: {name} has no such knob; it has {there}")
    for name, weight in parts.items():
        if not (is_number(weight) and weight >= 0):
            raise ConfigError(f"parts.{name}={weight} is no weight: write a finite number >= 0")
    shared = {"levels": levels, "teacher": teacher, "generator": generator}
    total = None
    for name in sorted(name for name, weight in parts.items() if weight):
        given = {knob: value for knob, value in shared.items() if knob in _knobs_of(name)}
        values = parts[name] * known[name](scores, labels, mask, **{**given, **knobs.get(name, {})})
        total = values if total is None else total + values
    if total is None:
        raise ConfigError("no part of the mix has a weight: set loss.parts.NAME=1")
    return total


@functools.cache
def losses_by_name() -> dict[str, Loss]:
    """Every loss that can be a part, by the name that ``loss=`` has for it, sorted."""
    found = {}
    for function, loss in vars(import_module(__package__)).items():
        if function.endswith("_loss") and loss is not mix_loss:
            name = function.removesuffix("_loss").replace("_", "")
            found[_OTHERWISE.get(name, name)] = loss
    return dict(sorted(found.items()))


def reads_teacher(loss: Loss | None) -> bool:
    """Whether ``loss``, with its knobs bound, learns from the scores of a teacher."""
    if loss is None:
        return False
    if getattr(loss, "func", loss) is not mix_loss:
        return "teacher" in inspect.signature(loss).parameters
    parts = inspect.signature(loss).parameters["parts"].default
    return any(weight and "teacher" in _knobs_of(name) for name, weight in parts.items())


@functools.cache
def _knobs_of(name: str) -> tuple[str, ...]:
    return tuple(inspect.signature(losses_by_name()[name]).parameters)[3:]
