"""Which files are tables, and what each column of a table is for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ltr.data.lists import Columns
from ltr.errors import ConfigError, DataError

CATEGORY_VALUES = 1000
_LARGEST_CODE = 1 << 24  # float32 holds every whole number up to it
_SHOWN = 12  # columns that a message names
ENDINGS = ".parquet, .csv, .tsv, .csv.gz, .tsv.gz, .feather, .arrow"
_SAME = {".pq": ".parquet", ".feather": ".arrow", ".ipc": ".arrow", ".arrows": ".arrow"}


@dataclass(frozen=True)
class Roles:
    """The columns of a table by role; every name is a text.

    Attributes:
        query: of the query ids.
        label: of the labels; None where nothing is labelled.
        id: that travel with an item, such as a product id, and are no features.
        features: in the order of ``Lists.features``; None: every number column without another
            role, and ``categories`` and ``hashed``, in the table's order. Where it is given,
            ``categories`` and ``hashed`` that it does not name come behind it.
        categories: features whose values are categories, listed as they are found in train.
        hashed: features whose values are categories, hashed to so many codes.
        weight: of the weight of a query, > 0, the same in all of its rows.
        category_values: the most values of a category that are listed, the most frequent ones.

    Raises:
        ConfigError: a column has two roles that exclude each other, or a number is out of range.
    """

    query: str
    label: str | None = None
    id: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    categories: tuple[str, ...] = ()
    hashed: Mapping[str, int] = field(default_factory=dict)
    weight: str | None = None
    category_values: int = CATEGORY_VALUES

    def __post_init__(self) -> None:
        single = {"query": self.query, "label": self.label, "weight": self.weight}
        seen: dict[str, str] = {}
        for role, name in single.items():
            if name is not None and name in seen:
                raise ConfigError(
                    f"column {name!r} is dataset.{seen[name]} and dataset.{role}: give it one role"
                )
            if name is not None:
                seen[name] = role
        for role in ("features", "categories", "hashed"):
            names = list(getattr(self, role) or ())
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(f"dataset.{role} names column {twice[0]!r} twice: name it once")
            for name in names:
                if name in seen:
                    raise ConfigError(
                        f"column {name!r} is dataset.{seen[name]} and in dataset.{role}: give it "
                        "one role"
                    )
        if both := sorted({*self.categories} & {*self.hashed}):
            raise ConfigError(
                f"column {both[0]!r} is in dataset.categories and dataset.hashed: keep it in one"
            )
        if self.features is not None and not (self.features or self.categories or self.hashed):
            raise ConfigError("dataset.features=[] leaves no feature: name some, or give null")
        sizes = {f"hashed.{name}": size for name, size in self.hashed.items()}
        for key, size in {**sizes, "category_values": self.category_values}.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < _LARGEST_CODE:
                raise ConfigError(
                    f"dataset.{key}={size}: give a whole number from 1 to {_LARGEST_CODE - 1:,}"
                )

    @property
    def fixed_columns(self) -> Columns | None:
        """Names and categories of the features; None where they depend on the table."""
        if self.features is None or self.categories:
            return None
        more = (name for name in self.hashed if name not in self.features)
        return Columns((*self.features, *more), dict(self.hashed))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Roles":
        """The roles of a config, whose names may be numbers in YAML.

        Raises:
            ConfigError: there is no query, a value has the wrong form, or as for the class.
        """
        if given.get("query") in (None, ""):
            raise ConfigError("give dataset.query=COLUMN, the column of the query ids")
        hashed = given.get("hashed") or {}
        if not isinstance(hashed, Mapping):
            raise ConfigError(f"dataset.hashed={hashed}: give {{COLUMN: NUMBER OF CODES}}")
        features = given.get("features")
        values = given.get("category_values")
        return cls(
            query=str(given["query"]),
            label=_name(given.get("label")),
            id=_names(given.get("id")),
            features=None if features is None else _names(features),
            categories=_names(given.get("categories")),
            hashed={str(name): size for name, size in hashed.items()},
            weight=_name(given.get("weight")),
            category_values=CATEGORY_VALUES if values is None else values,
        )


def _name(given: Any) -> str | None:
    return None if given is None else str(given)


def _names(given: Any) -> tuple[str, ...]:
    """One name may be written without brackets."""
    if given is None:
        return ()
    many = isinstance(given, Sequence) and not isinstance(given, str)
    return tuple(map(str, given)) if many else (str(given),)


def check_there(named: Mapping[str, str], there: Sequence[str], title: str) -> None:
    """See that every column is there, and that no name comes twice.

    Args:
        named: column -> what it is, for the message, such as ``dataset.query``.
        there: the names of the table's columns.
        title: of the table.

    Raises:
        DataError: with the nearest name.
    """
    if len({*there}) < len(there):
        twice = next(name for name in there if list(there).count(name) > 1)
        raise DataError(f"{title}: two columns are named {twice!r}; rename one of them")
    for name, what in named.items():
        if name not in there:
            lower = {other.lower(): other for other in there}
            near = get_close_matches(name.lower(), lower, 1)
            meant = f"did you mean {lower[near[0]]!r}? " if near else ""
            more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
            raise DataError(
                f"{title}: no column {name!r} ({what}); {meant}it has "
                f"{', '.join(there[:_SHOWN])}{more}"
            )


def ending(path: Path) -> str | None:
    """``.parquet``, ``.csv``, ``.tsv`` or ``.arrow``; None: not a table.

    >>> [ending(Path(name)) for name in ("a.pq", "a.TSV.gz", "a.parquet.gz", "train.txt")]
    ['.parquet', '.tsv', None, None]
    """
    name = path.name.lower()
    packed = name.endswith(".gz")
    last = Path(name.removesuffix(".gz")).suffix
    found = _SAME.get(last, last)
    known = (".csv", ".tsv") if packed else (".csv", ".tsv", ".parquet", ".arrow")
    return found if found in known else None
