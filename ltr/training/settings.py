"""The settings of a training run, checked before any data is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ltr.errors import ConfigError
from ltr.knobs import is_number


def _rule(text: str, holds: Callable[[Any], bool]) -> Any:
    """A setting for which ``holds`` is true; ``text`` says what to give."""
    return field(metadata={"text": text, "holds": holds})


def _whole(least: int, *, optional: bool = False) -> Any:
    def holds(value: Any) -> bool:
        return (optional and value is None) or (type(value) is int and value >= least)

    return _rule(f"give a whole number >= {least}", holds)


def _one_of(*choices: Any) -> Any:
    def holds(value: Any) -> bool:
        return any(type(value) is type(one) and value == one for one in choices)

    return _rule(f"choose one of {', '.join(str(one).lower() for one in choices)}", holds)


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0


def _clips(value: Any) -> bool:
    return value is None or (is_number(value) and value > 0)


def _has_noise(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_amount(value.get("noise"))


_AMOUNT = "give a number >= 0"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run trains; ``configs/train.yaml`` explains each key.

    Raises:
        ConfigError: naming every setting that is out of range, in one line.
    """

    seed: int = _whole(0)
    epochs: int = _whole(0)
    batch_size: int = _whole(1)
    shards: int | None = _whole(1, optional=True)
    list_size: int = _whole(2)
    select_on: str
    select: str = _one_of("best", "last")
    patience: int | None = _whole(1, optional=True)
    monitor: tuple[str, ...] = _rule("choose one of train, vali", {"train", "vali"}.issuperset)
    empty_lists: str = _one_of("keep", "skip")
    warmup: float = _rule(_AMOUNT, _is_amount)
    clip: float | None = _rule("give a number > 0, or null for no clipping", _clips)
    l1: float = _rule(_AMOUNT, _is_amount)
    l2: float = _rule(_AMOUNT, _is_amount)
    augment: Mapping[str, Any] = _rule("give noise a number >= 0", _has_noise)
    threads: int | None = _whole(1, optional=True)
    precision: str = _one_of("float32", "tf32", "bfloat16")
    compile: bool = _one_of(True, False)
    evaluation_items: int = _whole(1)
    deterministic: bool = _one_of(True, False)
    checkpoint_minutes: float = _rule(_AMOUNT, _is_amount)

    def __post_init__(self) -> None:
        """Check every field, and report all that is wrong at once."""
        given = [(one.name, getattr(self, one.name), one.metadata) for one in fields(self)]
        wrong = [
            f"{name}={value}: {rule['text']}"
            for name, value, rule in given
            if rule and not rule["holds"](value)
        ]
        if not wrong and (self.shards or 1) > self.batch_size:
            wrong.append(f"shards={self.shards}: give at most batch_size={self.batch_size}")
        if wrong:
            raise ConfigError("; ".join(wrong))

    @classmethod
    def names(cls) -> list[str]:
        """The keys of the config that are settings."""
        return [one.name for one in fields(cls)]
