"""The settings of a training run, checked before any data is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ltr.errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """How a run trains; ``configs/train.yaml`` explains each key.

    Raises:
        ConfigError: naming every setting that is out of range, in one line.
    """

    seed: int
    epochs: int
    batch_size: int
    shards: int | None
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
        """Check every field, and report all that is wrong at once."""
        wrong: list[str] = []
        for name, least in _LEAST.items():
            value = getattr(self, name)
            kind, word = (int, "whole number") if isinstance(least, int) else (_NUMBER, "number")
            fits = isinstance(value, kind) and not isinstance(value, bool) and value >= least
            if not fits and not (name in _OPTIONAL and value is None):
                wrong.append(f"{name}={value}: give a {word} >= {least:g}")
        if not wrong and (self.shards or 1) > self.batch_size:
            wrong.append(f"shards={self.shards}: give at most batch_size={self.batch_size}")
        if self.clip == 0:
            wrong.append("clip=0: give a number > 0, or null for no clipping")
        noise = self.augment.get("noise") if isinstance(self.augment, Mapping) else None
        if not isinstance(noise, _NUMBER) or isinstance(noise, bool) or not 0 <= noise < math.inf:
            wrong.append(f"augment.noise={noise}: give a number >= 0")
        chosen = [(name, getattr(self, name), choices) for name, choices in _CHOICES.items()]
        chosen += [("monitor", split, ("train", "vali")) for split in self.monitor]
        for name, value, choices in chosen:
            if (type(value), value) not in [(type(one), one) for one in choices]:
                known = ", ".join(str(one).lower() for one in choices)
                wrong.append(f"{name}={value}: choose one of {known}")
        if wrong:
            raise ConfigError("; ".join(wrong))

    @classmethod
    def names(cls) -> list[str]:
        """The keys of the config that are settings."""
        return [field.name for field in fields(cls)]


_NUMBER = (int, float)
# The least value of each; where it is an int, the setting is a whole number.
_LEAST: dict[str, int | float] = {
    "seed": 0, "epochs": 0, "batch_size": 1, "list_size": 2, "patience": 1, "threads": 1,
    "evaluation_items": 1, "shards": 1,
    "warmup": 0.0, "clip": 0.0, "l1": 0.0, "l2": 0.0, "checkpoint_minutes": 0.0,
}  # fmt: skip
_OPTIONAL = {"patience", "threads", "clip", "shards"}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "compile": (True, False),
    "deterministic": (True, False),
    "select": ("best", "last"),
    "empty_lists": ("keep", "skip"),
    "precision": ("float32", "tf32", "bfloat16"),
}
