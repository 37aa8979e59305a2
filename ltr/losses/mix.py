"""Mix: a weighted sum of losses of this package, chosen by name."""

import functools
import inspect
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import Gain, is_number
from ltr.typing import Labels, Loss, Mask, PerList, Scores

RUNTIME_ARGS = ("teacher", "generator")  # arguments that are not settings
# Names in ``loss=`` that differ from the name of the function without underscores.
_NAME_OVERRIDES = {"lambda": "lambdaloss", "plistmle": "p_listmle"}
_DEFAULT_PARTS = MappingProxyType({"neuralndcg": 1.0, "listnet": 0.3})


def mix_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    parts: Mapping[str, float | int] = _DEFAULT_PARTS,
    knobs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    levels: int = 5,
    gain: Gain = "exp2",
    teacher: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> PerList:
    r"""Return a weighted sum of other losses for each list.

    .. math::
        \ell = \sum_p w_p \, \ell_p

    where p are the parts and w_p their weights. A part has the name that ``loss=`` takes on the
    command line; for example, ``neuralndcg`` stands for ``neural_ndcg_loss``. Each part keeps its
    range: NeuralNDCG is from about -1 to 0, and ListNet is at least the entropy of softmax(labels).
    For the transposed NeuralNDCG, set the knob ``transposed`` of ``neuralndcg``.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        parts: the weight of each part, >= 0; 0 leaves the part out.
        knobs: keyword arguments of some parts, such as ``{"neuralndcg": {"temperature": 0.1}}``;
            all other arguments have the defaults of the functions.
        levels: the number of grades, for the parts that have this argument.
        gain: as in ``neural_ndcg_loss``, for the parts that have this argument.
        teacher: another model's scores, ``[batch, list]``, for the parts that have this argument.
        generator: draws the random numbers of the parts; None: torch's own generator. The parts are
            computed in alphabetical order of their names.

    Returns:
        One value per list, ``[batch]``.

    Raises:
        ConfigError: a name, a weight or a knob is invalid, or no part has a weight above 0.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    >>> mix_loss(scores, labels, labels >= 0, parts={"mse": 0.5, "ranknet": 1})  # 1/2 4/2 + log 2
    tensor([1.6931])
    """
    _check_mix(parts, knobs)
    shared = {"levels": levels, "gain": gain, "teacher": teacher, "generator": generator}
    total = None
    for name in sorted(name for name, weight in parts.items() if weight):
        arguments = {knob: value for knob, value in shared.items() if knob in _knobs_of(name)}
        arguments.update(knobs.get(name, {}))
        values = parts[name] * losses_by_name()[name](scores, labels, mask, **arguments)
        total = values if total is None else total + values
    if total is None:
        raise ConfigError("no part of the mix has a weight above 0: set loss.parts.NAME=1")
    return total


def _check_mix(parts: Mapping[str, float | int], knobs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ``ConfigError`` if a name, a weight or a knob is invalid."""
    names = losses_by_name()
    for name in (*parts, *knobs):
        if name not in names:
            raise ConfigError(
                f"{name} is not a loss that can be part of a mix: choose from {', '.join(names)}"
            )
    for name, part_knobs in knobs.items():
        if name not in parts:
            raise ConfigError(
                f"knobs.{name} is set, but {name} is not a part of this mix: set parts.{name} too"
            )
        settable = [knob for knob in _knobs_of(name) if knob not in RUNTIME_ARGS]
        unknown = [knob for knob in part_knobs if knob not in settable]
        if unknown:
            listed = ", ".join(settable) or "none"
            raise ConfigError(
                f"knobs.{name}.{unknown[0]}: {name} has no such knob (its knobs: {listed})"
            )
    for name, weight in parts.items():
        if not (is_number(weight) and weight >= 0):
            raise ConfigError(f"parts.{name}={weight} is not a weight: write a finite number >= 0")


@functools.cache
def losses_by_name() -> dict[str, Loss]:
    """Return every loss that can be part of a mix, by its name in ``loss=``, sorted by name."""
    losses = {}
    for function, loss in vars(import_module(__package__)).items():
        if function.endswith("_loss") and loss is not mix_loss:
            name = function.removesuffix("_loss").replace("_", "")
            losses[_NAME_OVERRIDES.get(name, name)] = loss
    return dict(sorted(losses.items()))


def reads_teacher(loss: Loss | None) -> bool:
    """Return whether ``loss``, with its knobs bound, learns from a teacher's scores."""
    if loss is None:
        return False
    if getattr(loss, "func", loss) is not mix_loss:
        return "teacher" in inspect.signature(loss).parameters
    parts = inspect.signature(loss).parameters["parts"].default
    return any(weight and "teacher" in _knobs_of(name) for name, weight in parts.items())


@functools.cache
def _knobs_of(name: str) -> tuple[str, ...]:
    """Return the keyword arguments of the loss with this name."""
    return tuple(inspect.signature(losses_by_name()[name]).parameters)[3:]
