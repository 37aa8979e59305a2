"""The space of a search: the keys that vary, and the distributions of their values.

Spaces are files in ``configs/search``. The command line can change them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf

from ltr.cli.arguments import as_text
from ltr.cli.configs import files_of
from ltr.cli.keys import Kind, keys
from ltr.errors import ConfigError
from ltr.knobs import is_number

DISTRIBUTION_FORMS = (
    "expected [float,LOW,HIGH] or [int,LOW,HIGH] (for LOW > 0, also [float,LOW,HIGH,log] or "
    "[int,LOW,HIGH,log]), [choice,A,B,...], or null to leave out the key"
)
# Groups and keys that a search cannot vary: they decide how a trial is measured, or where it runs.
_NOT_SEARCHABLE = (
    "dataset", "experiment", "hydra",
    *keys(Kind.SELECTION, Kind.REPEAT, Kind.MEASUREMENT, Kind.PLACE, Kind.PROPOSAL),
)  # fmt: skip
_KINDS: dict[str, type] = {"float": float, "int": int}


@dataclass(frozen=True)
class Distribution:
    """The distribution from which the values of a key are drawn."""

    kind: str  # float, int or choice
    values: tuple[Any, ...]  # both bounds, or the options as written on the command line
    log: bool = False  # draw uniformly in the logarithm

    @property
    def texts(self) -> tuple[str, ...]:
        """The bounds, or all options, as written on a command line."""
        return self.values if self.kind == "choice" else tuple(map(as_text, self.values))

    def holds(self, value: Any) -> bool:
        """Return whether ``value`` (a number, or an option as it is written) can be drawn."""
        if self.kind == "choice":
            return value in self.values
        low, high = self.values
        return _is_of_kind(self.kind, value) and bool(low <= value <= high)

    def __str__(self) -> str:
        """Return the distribution as written on the command line."""
        items = [self.kind, *self.texts]
        if self.log:
            items.append("log")
        return f"[{','.join(items)}]"


Space = dict[str, Distribution]


def change_space(space: Space, changes: Mapping[str, Any], model: str) -> Space:
    """Apply the changes from the command line to ``space`` (in place), and return it.

    ``changes`` maps a key to the list that describes its new distribution; None removes the key.

    Raises:
        ConfigError: a distribution is invalid, or nothing is left to search for ``model``.
    """
    for key, value in changes.items():
        space.pop(key, None)
        if value is not None:
            space[key] = parse_distribution(f"space.{key}", value)
    for key in space:
        if re.split(r"[.@]", key.lstrip("+"))[0] in _NOT_SEARCHABLE:
            raise ConfigError(
                f"space.{key}: a search cannot vary the data, the seed, where a trial runs or how "
                f"it is measured; set {key}=... instead of space.{key}=..."
            )
    if not space:
        raise ConfigError(
            f"the search space for model={model} is empty: set 'space.KEY=[float,LOW,HIGH]', or "
            f"space=NAME with one of {', '.join(files_of('space'))}"
        )
    return space


def join_spaces(choices: Mapping[str, str], names: Sequence[str]) -> Space:
    """Join the spaces ``names``; if several of them have the same key, the last one is used.

    If ``names`` is empty, join the spaces of the model and the loss in ``choices``.
    """
    if not names:
        files = files_of("space")
        defaults = [choices["model"], f"loss/{choices.get('loss')}"]
        names = [name for name in defaults if name in files]
    space: Space = {}
    for name in names:
        space |= read_space(name)
    return space


def read_space(name: str) -> Space:
    """Read ``configs/search/<name>.yaml``; raise ``ConfigError`` if it is missing or malformed."""
    files = files_of("space")
    if name not in files:
        raise ConfigError(f"space={name}: unknown space; choose one of {', '.join(files)}")
    try:
        raw: Any = OmegaConf.to_container(OmegaConf.load(files[name]))
        return {str(key): parse_distribution(f"{name}: {key}", value) for key, value in raw.items()}
    except (yaml.YAMLError, OSError, AttributeError) as error:
        raise ConfigError(
            f"{files[name]}: expected a line for each key, such as KEY: [float, LOW, HIGH]"
        ) from error


def parse_distribution(key: str, value: Any) -> Distribution:
    """Return the distribution that a list ``value`` such as ``[float, 0, 1]`` describes.

    Raises:
        ConfigError: ``value`` describes no distribution; the message names ``key``.

    >>> str(parse_distribution("optimizer.lr", ["float", 1e-4, 0.1, "log"]))
    '[float,0.0001,0.1,log]'
    """
    kind, *items = value if isinstance(value, list) and value else [None]
    if kind == "choice":
        options = tuple(dict.fromkeys(map(as_text, items)))
        if len(options) > 1:
            return Distribution(kind, options)
    elif kind in _KINDS:
        log = items[2:] == ["log"]
        bounds = items[:2] if log else items
        if len(bounds) == 2 and all(_is_of_kind(kind, bound) for bound in bounds):
            low, high = map(_KINDS[kind], bounds)
            if low < high and (low > 0 or not log):
                return Distribution(kind, (low, high), log)
    raise ConfigError(f"{key}={as_text(value)}: {DISTRIBUTION_FORMS}")


def _is_of_kind(kind: str, value: Any) -> bool:
    return is_number(value) and (kind == "float" or isinstance(value, int))
