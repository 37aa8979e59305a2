"""The public data sets: their archives, files and published counts, from ``public_sets.yaml``."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ltr.errors import as_started


@dataclass(frozen=True)
class PublishedCounts:
    """The published counts of one split, or their sums over several splits of a fold.

    A count is None if it is not published.
    """

    splits: tuple[str, ...]
    fold: int | None = None  # >= 1; None: the data set has no folds
    rows: int | None = None
    lists: int | None = None
    empty: int | None = None  # number of lists without a relevant item
    labels: tuple[int, ...] | None = None  # number of items of each grade, grade 0 first


@dataclass(frozen=True)
class PublicSet:
    """A public data set, with its published files and counts."""

    name: str  # as in dataset=NAME
    page: str  # where it is published
    archive: str  # the file to download there
    sha256: str = ""  # SHA-256 of the archive
    files: Mapping[str, str] = field(default_factory=dict)  # path in the set's folder -> SHA-256
    counts: tuple[PublishedCounts, ...] = ()

    def how_to_get(self, data_dir: str | Path) -> str:
        """Return one line that says what to download, and which command to run afterwards."""
        return (
            f"download {self.archive} from {self.page} and run: {as_started('prepare_data')} "
            f"dataset={self.name} archive=PATH/{self.archive} data_dir={shlex.quote(str(data_dir))}"
        )


@cache
def public_sets() -> dict[str, PublicSet]:
    """Return a dict from the name of each public data set to the data set."""
    entries: Any = yaml.safe_load(Path(__file__).with_name("public_sets.yaml").read_text())
    return {name: _public_set(name, entry) for name, entry in entries.items()}


def _public_set(name: str, entry: Mapping[str, Any]) -> PublicSet:
    counts = [
        PublishedCounts(**record | {"splits": tuple(record["splits"])})
        for record in entry["counts"]
    ]
    return PublicSet(name=name, **{**entry, "counts": tuple(counts)})
