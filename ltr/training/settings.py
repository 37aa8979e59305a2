"""The settings of a training run, checked before any data is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ltr.errors import ConfigError
from ltr.knobs import is_number


def _least(value: float, *, optional: bool = False) -> Any:
    """A number >= ``value``, whole where ``value`` is, or None where it is ``optional``."""
    return field(metadata={"least": value, "optional": optional})


def _one_of(*choices: Any) -> Any:
    return field(metadata={"choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run trains; ``configs/train.yaml`` explains each key.

    Raises:
        ConfigError: naming every setting that is out of range, in one line.
    """

    seed: int = _least(0)
    epochs: int = _least(0)
    batch_size: int = _least(1)
    shards: int | None = _least(1, optional=True)
    list_size: int = _least(2)
    select_on: str
    select: str = _one_of("best", "last")
    patience: int | None = _least(1, optional=True)
    monitor: tuple[str, ...]
    empty_lists: str = _one_of("keep", "skip")
    warmup: float = _least(0.0)
    clip: float | None = _least(0.0, optional=True)
    l1: float = _least(0.0)
    l2: float = _least(0.0)
    augment: Mapping[str, Any]
    threads: int | None = _least(1, optional=True)
    precision: str = _one_of("float32", "tf32", "bfloat16")
    compile: bool = _one_of(True, False)
    evaluation_items: int = _least(1)
    deterministic: bool = _one_of(True, False)
    checkpoint_minutes: float = _least(0.0)

    def __post_init__(self) -> None:
        """Check every field, and report all that is wrong at once."""
        wrong: list[str] = []
        chosen = [("monitor", split, ("train", "vali")) for split in self.monitor]
        for name, value, rule in [
            (f.name, getattr(self, f.name), f.metadata) for f in fields(self)
        ]:
            if "choices" in rule:
                chosen.append((name, value, rule["choices"]))
            elif "least" in rule and not (rule["optional"] and value is None):
                least, whole = rule["least"], isinstance(rule["least"], int)
                if not is_number(value) or value < least or (whole and not isinstance(value, int)):
                    kind = "whole number" if whole else "number"
                    wrong.append(f"{name}={value}: give a {kind} >= {least:g}")
        if not wrong and (self.shards or 1) > self.batch_size:
            wrong.append(f"shards={self.shards}: give at most batch_size={self.batch_size}")
        if self.clip == 0:
            wrong.append("clip=0: give a number > 0, or null for no clipping")
        noise: Any = self.augment.get("noise") if isinstance(self.augment, Mapping) else None
        if not is_number(noise) or noise < 0:
            wrong.append(f"augment.noise={noise}: give a number >= 0")
        for name, value, choices in chosen:
            if (type(value), value) not in [(type(one), one) for one in choices]:
                known = ", ".join(str(one).lower() for one in choices)
                wrong.append(f"{name}={value}: choose one of {known}")
        if wrong:
            raise ConfigError("; ".join(wrong))

    @classmethod
    def names(cls) -> list[str]:
        """The keys of the config that are settings."""
        return [one.name for one in fields(cls)]
