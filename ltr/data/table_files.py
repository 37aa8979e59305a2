"""``TableFiles``: a data set in table files."""

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ltr.data.assemble import Block
from ltr.data.cache import Place
from ltr.data.files import SplitFiles
from ltr.data.letor import Rules
from ltr.data.lists import SPLITS, Columns, Lists
from ltr.data.table_sources import Source, table_files
from ltr.data.tables import (
    READER_VERSION,
    Roles,
    find_columns,
    query_text,
    table_blocks,
    table_qids,
)
from ltr.errors import ConfigError

_ROWS = 1 << 15  # of a block of ids
_FRACTIONS = {3: (0.8, 0.1, 0.1), 2: (0.8, 0.2), 0: ()}  # by the number of splits that are cut


class TableFiles(SplitFiles):
    """A table for each split, or tables that are cut by query; each a file or a folder of shards.

    Each table is read once into the cache, keyed by the content of its files and by how it is read.
    Names and categories of the features are found in train and hold for every split.
    """

    fold = None
    _remedy = "set dataset.fractions to larger parts, or give a file for each split"

    def __init__(
        self,
        *,
        name: str,
        data_dir: Place,
        cache_dir: Place,
        split: Mapping[str, str | None] | None = None,
        path: str | None = None,
        fractions: Sequence[float] | None = None,
        seed: int = 0,
        header: bool = True,
        labels: str = "grade",
        max_grade: int | None = None,
        **roles: Any,
    ) -> None:
        """Describe the tables; nothing is read yet. ``ConfigError``: a setting is out of its range.

        Args:
            name: of the set in results.
            data_dir, cache_dir: the folder that paths begin at, and that of the parsed arrays.
            split: the path of ``train``, ``vali`` and ``test``; without vali, it is cut from train.
            path: instead of ``split`` one table that is cut into all three.
            fractions: of the queries: of train, vali and test of ``path``, None: 0.8, 0.1, 0.1;
                of train and vali where ``split`` has no vali, None: 0.8, 0.2.
            seed: of the cut.
            header: as for ``Source``.
            labels, max_grade: as for ``ltr.data.letor.Rules``.
            roles: query, label, id, features, categories, weight and category_values, as for
                ``Roles``.
        """
        self._columns: Columns | None = None
        self.roles = Roles.of(roles)
        if self.roles.label is None:
            raise ConfigError("give dataset.label=COLUMN, the column of the labels")
        self.header = bool(header)
        paths, cut = _paths(split, path)
        usual = _FRACTIONS[len(cut)]
        parts = tuple(usual if fractions is None else fractions)
        positive = [isinstance(part, int | float) and part > 0 for part in parts]
        whole = not usual or abs(sum(parts) - 1) < 1e-6
        if not all(positive) or len(positive) != len(usual) or not whole:
            raise ConfigError(
                f"dataset.fractions={list(parts)}: give the parts of "
                f"{', '.join(cut) or 'nothing, every split has a table'}, each > 0, 1 in sum"
            )
        rules = Rules(labels=labels, max_grade=max_grade)
        super().__init__(name, data_dir, cache_dir, rules, paths, cut, parts, seed)

    def with_columns(self, columns: Columns) -> "TableFiles":
        """The same set with names and categories that a model was trained on."""
        other = copy(self)
        other._columns = columns
        return other

    @property
    def columns(self) -> Columns:
        """Names and categories of the features; ``train`` is read to find them."""
        if self._columns is None:
            self._columns = self.split("train").columns
        assert self._columns is not None
        return self._columns

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.columns.names)

    def check(self) -> None:
        """Raise ``DataError`` where a table is missing, ``ConfigError`` where a path is."""
        for split in SPLITS:
            table_files(self.path(split))

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``, read once and then mapped from the cache.

        ``DataError``: a file is not there, is malformed, or the cache cannot be written.
        """
        path, cut = self.path(split), ""
        columns = None if split == "train" and self._columns is None else self.columns
        if split in self._cut:
            cut = f"{self._cut.index(split)} of {self._fractions} seed={self._seed}"
        content = self._digest(path)
        # Of the items and labels: runs on other features of the same items can be compared.
        items = f"table {content} query={self.roles.query} label={self.roles.label} "
        items += f"Form(header={self.header}, names=None) {self.rules} cut={cut}"
        state = "" if columns is None else json.dumps(columns.state())
        key = f"{items} reader={READER_VERSION} {self.roles} columns={state}"

        def read(keep: Container[str] | None) -> tuple[Iterable[Block], Columns]:
            source = Source(path, self.header)
            found = columns or find_columns(source, self.roles, keep)
            roles = replace(self.roles, id=())  # training needs none
            return table_blocks(source, roles, found, rules=self.rules), found

        digest = hashlib.sha256(items.encode()).hexdigest()
        return self._lists(split, key, content, read, digest=digest)

    def ids(self, split: str, rows: Sequence[int]) -> list[str]:
        """The columns of ids in these rows of the table of ``split``, as one text each."""
        if not self.roles.id:
            return [""] * len(rows)
        pieces = Source(self.path(split), self.header).pieces(self.roles.id, [], _ROWS)
        table = pa.concat_tables(pa.Table.from_batches([piece.cells]) for piece in pieces)
        chosen = table.take(rows).to_pylist()
        return [" ".join(filter(None, map(query_text, row.values()))) for row in chosen]

    def _digest(self, path: Path) -> str:
        """Of the content of the files, in their order."""
        digests = [super(TableFiles, self)._digest(file) for file in table_files(path)]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def _qids(self, path: Path) -> Iterable[str]:
        return table_qids(Source(path, self.header), self.roles)


def _paths(split: Any, path: str | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """The path of each split, and the splits that are cut from one table."""
    given = split if isinstance(split, Mapping) else {}
    paths = {name: str(one) for name, one in given.items() if one not in (None, "")}
    if (path is None) == (not paths) or not paths.keys() <= {*SPLITS}:
        raise ConfigError(
            "give 'dataset.split={train:PATH,vali:PATH,test:PATH}', or dataset.path=PATH of one "
            "table that is cut into them"
        )
    if path is not None:
        return dict.fromkeys(SPLITS, str(path)), SPLITS
    if "vali" in paths or "train" not in paths:
        return paths, ()
    return paths | {"vali": paths["train"]}, ("train", "vali")
