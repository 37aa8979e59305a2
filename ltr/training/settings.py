"""The settings of a training run, which are checked before any data are read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ltr.errors import ConfigError
from ltr.knobs import is_number, python_number

_LEAST = {
    "seed": 0, "epochs": 0, "batch_size": 1, "list_size": 2, "patience": 1,
    "threads": 1, "evaluation_items": 1,
}  # fmt: skip
_OPTIONAL = ("patience", "threads")  # may be None
_AMOUNTS = ("warmup", "l1", "l2", "checkpoint_minutes")
_CHOICES = {
    "select": ("best", "last"),
    "empty_lists": ("keep", "skip"),
    "precision": ("float32", "tf32", "bfloat16"),
}
_FLAGS = ("compile", "deterministic")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run trains; ``configs/train.yaml`` explains each setting.

    Raises:
        ConfigError: settings are out of range; the message names all of them.
    """

    seed: int
    epochs: int
    batch_size: int
    list_size: int
    select_on: str
    select: str
    patience: int | None
    monitor: tuple[str, ...]
    empty_lists: str
    warmup: float
    clip: float | None
    l1: float
    l2: float
    augment: Mapping[str, Any]
    threads: int | None
    precision: str
    compile: bool
    evaluation_items: int
    deterministic: bool
    checkpoint_minutes: float

    def __post_init__(self) -> None:
        """Check every field, and raise one error with all problems."""
        for name in self.names():
            object.__setattr__(self, name, python_number(getattr(self, name)))
        values = vars(self)
        errors = list[str]()

        def check(name: str, is_valid: bool, remedy: str) -> None:
            if not is_valid:
                errors.append(f"{name}={values[name]}: {remedy}")

        for name, least in _LEAST.items():
            is_valid = type(values[name]) is int and values[name] >= least
            is_valid = is_valid or (values[name] is None and name in _OPTIONAL)
            check(name, is_valid, f"give a whole number >= {least}")
        for name in _AMOUNTS:
            check(name, _is_amount(values[name]), "give a number >= 0")
        for name, choices in _CHOICES.items():
            check(name, values[name] in choices, f"choose one of {', '.join(choices)}")
        for name in _FLAGS:
            check(name, isinstance(values[name], bool), "choose one of true, false")
        check("monitor", {"train", "vali"}.issuperset(self.monitor), "choose one of train, vali")
        clips = self.clip is None or (is_number(self.clip) and self.clip > 0)
        check("clip", clips, "give a number > 0, or null for no clipping")
        noise = isinstance(self.augment, Mapping) and _is_amount(self.augment.get("noise"))
        check("augment", noise, "set augment.noise to a number >= 0")
        if unknown := [key for key in self.augment if key != "noise"] if noise else []:
            errors.append(f"augment.{unknown[0]}: no such key; the only key is augment.noise")
        if errors:
            raise ConfigError("; ".join(errors))

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings, which are keys in the config."""
        return [setting.name for setting in fields(cls)]


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0
