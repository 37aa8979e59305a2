"""Draw the figures that a config names; checks of their knobs."""

import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, tensor

from ltr.errors import ConfigError
from ltr.metrics.checks import check_positive
from ltr.whole import make_folder


def draw_figures(cfg: DictConfig) -> str:
    """Draw the figures ``cfg.only``, or all, into ``cfg.output``; return what to print.

    A node of ``cfg`` with a ``_target_`` is a figure; its other keys are the knobs.

    Raises:
        ConfigError: ``only`` names none, or a knob is out of range.
        OutputError: ``output`` cannot be written.
    """
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    known = [key for key, node in plain.items() if isinstance(node, dict) and "_target_" in node]
    only = known if plain["only"] is None else plain["only"]
    names = list(dict.fromkeys(only if isinstance(only, list) else [only]))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"{unknown[0]} is no figure" if unknown else "only=[] is no figure"
        raise ConfigError(f"{what}: choose only= from {', '.join(known)}")
    check_whole("dpi", plain["dpi"], least=1)

    from ltr.figures.drawing import style  # matplotlib, when all of the above is right

    lines = []
    with style():
        for name in names:
            drawing = _drawing(name, plain[name])
            folder = Path(plain["output"])
            make_folder("output", folder)
            paths = drawing.save(folder, name, dpi=plain["dpi"])
            lines += [f"{name}: {', '.join(map(str, paths))}", drawing.text, ""]
    return "\n".join(lines).rstrip()


def _drawing(name: str, node: dict[str, Any]) -> Any:
    """Call the function of a figure's node with its knobs."""
    knobs = dict(node)
    function = get_method(knobs.pop("_target_"))
    try:
        inspect.signature(function).bind(**knobs)
    except TypeError as error:  # "missing a required argument: 'x'", "unexpected keyword ..."
        known = ", ".join(inspect.signature(function).parameters) or "none"
        raise ConfigError(f"{name}: {error}; its keys are {known}") from error
    try:
        return function(**knobs)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def numbers(knob: str, values: object, *, least: int = 1) -> list[float]:
    """``values`` as floats.

    Raises:
        ConfigError: it is not a list of at least ``least`` finite numbers.

    >>> numbers("scores", [1, 0.5])
    [1.0, 0.5]
    """
    good = isinstance(values, Sequence) and not isinstance(values, str) and len(values) >= least
    if not good or not all(_is_number(value) for value in values):  # type: ignore[attr-defined]
        raise ConfigError(
            f"{knob}={values}: write a list of {least} or more finite numbers, such as [1,0.5]"
        )
    return [float(value) for value in values]  # type: ignore[attr-defined]


def positive(knob: str, value: float) -> float:
    """``value`` as a float; ``ConfigError`` unless it is a finite number above 0."""
    check_positive(knob, value)
    return float(value)


def check_whole(knob: str, value: object, *, least: int) -> None:
    """Raise ``ConfigError`` unless ``value`` is a whole number >= ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{knob}={value}: write a whole number >= {least}")


def as_list(values: Sequence[float]) -> Tensor:
    """One list in float64, ``[1, list]``."""
    return tensor([list(values)]).double()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
