"""Draw the figures that a config names, and check their knobs."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, tensor

from ltr.errors import ConfigError
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
    unknown = [name for name in names or ["only=[]"] if name not in known]
    if unknown:
        raise ConfigError(f"{unknown[0]} is no figure: choose only= from {', '.join(known)}")
    check_whole("dpi", plain["dpi"], least=1)

    from ltr.figures.drawing import style  # matplotlib, when all of the above is right

    lines, folder = [], Path(plain["output"])
    with style():
        for name in names:
            drawing = _drawing(name, plain[name])
            make_folder("output", folder)
            paths = drawing.save(folder, name, dpi=plain["dpi"])
            lines += [f"{name}: {', '.join(map(str, paths))}", drawing.text, ""]
    return "\n".join(lines).rstrip()


def _drawing(name: str, node: dict[str, Any]) -> Any:
    """Call the function that a figure's node names with the node's other keys."""
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
    """``values`` as floats; ``ConfigError`` unless it lists ``least`` or more finite numbers.

    >>> numbers("scores", [1, 0.5])
    [1.0, 0.5]
    """
    found = [value for value in values if _is_number(value)] if isinstance(values, list) else []
    if len(found) < least or found != values:
        raise ConfigError(
            f"{knob}={values}: write a list of {least} or more finite numbers, such as [1,0.5]"
        )
    return list(map(float, found))


def check_whole(knob: str, value: object, *, least: int) -> None:
    """Raise ``ConfigError`` unless ``value`` is a whole number >= ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{knob}={value}: write a whole number >= {least}")


def as_list(values: Sequence[float]) -> Tensor:
    """One list in float64, ``[1, list]``."""
    return tensor([list(values)]).double()


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # math.isfinite overflows at a longer integer
