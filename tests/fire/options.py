"""What the user asks of the fire, read from its ``KEY=VALUE`` arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ltr.errors import ConfigError

PARTS = ("kills", "flips", "reader", "disks")
HELP = """python -m fire [KEY=VALUE ...]: kill, damage, confuse and starve the program
  minutes=10    in all; left out where tries is given: until these are done
  only=PART     one of kills, flips, reader, disks; or PART/SUBJECT, as the table names them
  tries=N       of every subject; of a command that reads damaged files a twentieth
  seed=1        of all draws: try n of a subject is the same again
  first=1       the number of the first try
  write=FILE    also put the table between its marks in FILE
Moments of kills that are counted in writes or imports repeat; those in seconds roughly do."""


@dataclass(frozen=True)
class Options:
    """What the user asked for; ``minutes`` None: no limit but the tries."""

    minutes: float | None = 10.0
    only: str = ""
    tries: int | None = None
    seed: int = 1
    first: int = 1
    write: Path | None = None

    @property
    def part(self) -> str:
        """The only part, empty for all."""
        return self.only.partition("/")[0]

    @property
    def subject(self) -> str:
        """The only subject, empty for all."""
        return self.only.partition("/")[2]


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line.

    Raises:
        ConfigError: a key or value is wrong.

    >>> parse(["only=flips/best.pt", "tries=9"]).minutes is None
    True
    """
    given = dict(argument.partition("=")[::2] for argument in arguments)
    known = Options.__dataclass_fields__
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ConfigError(f"{unknown[0]}: no such key; the keys are {', '.join(known)}")
    options = Options(
        minutes=_number(given, "minutes", None if "tries" in given else 10.0),
        only=given.get("only", ""),
        tries=_whole(given, "tries", None),
        seed=_whole(given, "seed", 1) or 0,
        first=_whole(given, "first", 1) or 0,
        write=Path(given["write"]) if "write" in given else None,
    )
    if options.part and options.part not in PARTS:
        raise ConfigError(f"only={options.only}: choose one of {', '.join(PARTS)}, or PART/SUBJECT")
    return options


def _number(given: dict[str, str], key: str, default: float | None) -> float | None:
    try:
        value = float(given[key]) if key in given else default
    except ValueError:
        value = -1.0
    if value is not None and not 0 < value < 1e6:
        raise ConfigError(f"{key}={given[key]}: give a number above 0")
    return value


def _whole(given: dict[str, str], key: str, default: int | None) -> int | None:
    if key in given and not given[key].isdecimal():
        raise ConfigError(f"{key}={given[key]}: give a whole number")
    return int(given[key]) if key in given else default
