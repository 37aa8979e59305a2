"""What the user asks of ``scripts/table.py``, read from its ``KEY=VALUE`` arguments."""

from collections.abc import Sequence
from dataclasses import dataclass

from ltr.errors import ConfigError


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        table: name of the table.
        overrides: for ``train.py``, over the table's settings.
        rows: labels of the rows wanted; empty: all.
        seeds: how many, from 1 on.
        output_dir: the folder of ``runs/`` and ``tables/``.
        workers: runs at a time; None: one on a GPU, else one per core.
        dry_run: only say what would run.
    """

    table: str
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: int = 1
    output_dir: str = "outputs"
    workers: int | None = None
    dry_run: bool = False


def parse_order(arguments: Sequence[str]) -> Order:
    """The order in ``KEY=VALUE`` arguments; what is not a key of this command is for train.py.

    Raises:
        ConfigError: one is not of that form, or a value is wrong.

    >>> parse_order(["table=letor4_mq2008", "epochs=1", "seeds=3"]).overrides
    ('epochs=1',)
    """
    own: dict[str, str] = {}
    overrides = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise ConfigError(f"{argument}: write KEY=VALUE, such as table=letor4_mq2008")
        if key in ("table", "rows", "seeds", "output_dir", "workers", "dry_run"):
            own[key] = value
        elif key in ("seed", "dataset.fold"):
            raise ConfigError(f"{argument}: a table runs its folds and seeds itself; set seeds=N")
        else:
            overrides.append(argument)
    if "table" not in own:
        raise ConfigError("give table=NAME; --help lists the tables")
    if own.get("dry_run", "false").lower() not in ("true", "false"):
        raise ConfigError(f"dry_run={own['dry_run']}: write true or false")
    return Order(
        table=own["table"],
        overrides=tuple(overrides),
        rows=tuple(label.strip() for label in own["rows"].split(",")) if "rows" in own else (),
        seeds=_count("seeds", own.get("seeds", "1")),
        output_dir=own.get("output_dir", "outputs"),
        workers=_count("workers", own["workers"]) if "workers" in own else None,
        dry_run=own.get("dry_run", "false").lower() == "true",
    )


def _count(key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{key}={value}: give a whole number >= 1")
    return int(value)
