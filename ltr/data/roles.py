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
_SAME = {".pq": ".parquet", ".feather": ".arrow", ".ipc": ".arrow"}


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
        alone = [name for name in (self.query, self.label, self.weight) if name is not None]
        for role, names in (
            ("dataset.features", [*alone, *(self.features or ())]),
            ("dataset.categories and hashed", [*alone, *self.categories, *self.hashed]),
        ):
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(
                    f"column {twice[0]!r} stands twice in dataset.query, label, weight and {role}: "
                    "give it one role"
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
    def coded(self) -> list[str]:
        """The features whose values are categories."""
        return [*self.categories, *self.hashed]

    @property
    def fixed_columns(self) -> Columns | None:
        """Names and categories of the features; None where they depend on the table."""
        if self.features is None or self.categories:
            return None
        return Columns(tuple(dict.fromkeys([*self.features, *self.hashed])), dict(self.hashed))

    def named(self, *, labelled: bool) -> dict[str, str]:
        """The columns that the roles name, and the key of each."""
        keys = {name: f"dataset.{key}" for key in ("id", "categories", "hashed", "features")
                for name in getattr(self, key) or ()}  # fmt: skip
        for key in ("weight", "label") if labelled else ():
            if (name := getattr(self, key)) is not None:
                keys[name] = f"dataset.{key}"
        return {**keys, self.query: "dataset.query"}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Roles":
        """The roles of a config, whose names may be numbers in YAML.

        Raises:
            ConfigError: there is no query, a value has the wrong form, or as for the class.
        """
        if given.get("query") in (None, ""):
            raise ConfigError("give dataset.query=COLUMN, the column of the query ids")
        roles: dict[str, Any] = {
            role: given[role] for role in cls.__dataclass_fields__ if given.get(role) is not None
        }
        for role in {"query", "label", "weight"} & roles.keys():
            roles[role] = str(roles[role])
        for role in {"id", "features", "categories"} & roles.keys():
            names = roles[role]  # one may be written without brackets
            many = isinstance(names, Sequence) and not isinstance(names, str)
            roles[role] = tuple(map(str, names)) if many else (str(names),)
        hashed = roles.setdefault("hashed", {})
        if not isinstance(hashed, Mapping):
            raise ConfigError(f"dataset.hashed={hashed}: give {{COLUMN: NUMBER OF CODES}}")
        return cls(**roles | {"hashed": {str(name): size for name, size in hashed.items()}})


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
    for name in [name for name in named if name not in there][:1]:
        lower = {other.lower(): other for other in there}
        near = get_close_matches(name.lower(), lower, 1)
        meant = f"did you mean {lower[near[0]]!r}? " if near else ""
        more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
        raise DataError(
            f"{title}: no column {name!r} ({named[name]}); {meant}it has "
            f"{', '.join(there[:_SHOWN])}{more}"
        )


def ending(path: Path) -> str | None:
    """``.parquet``, ``.csv``, ``.tsv`` or ``.arrow``; None: not a table.

    >>> [ending(Path(name)) for name in ("a.pq", "a.TSV.gz", "a.parquet.gz", "train.txt")]
    ['.parquet', '.tsv', None, None]
    """
    name = path.name.lower()
    last = Path(name.removesuffix(".gz")).suffix
    found = _SAME.get(last, last)
    known = [".csv", ".tsv", *([] if name.endswith(".gz") else [".parquet", ".arrow"])]
    return found if found in known else None
