"""``TableFiles``: a data set in table files, such as Parquet or CSV files."""

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ltr.data.cache import StrPath
from ltr.data.files import SplitContent, SplitFiles
from ltr.data.letor import ParseOptions
from ltr.data.lists import SPLITS, Columns, Lists
from ltr.data.table_sources import Source, table_files
from ltr.data.tables import (
    READER_VERSION,
    ColumnRoles,
    find_columns,
    query_text,
    table_blocks,
    table_qids,
    unnamed_remarks,
)
from ltr.errors import ConfigError
from ltr.knobs import is_number, python_number

_ROWS = 1 << 15  # rows in a block of ids
# The default fractions, by the number of splits that share one table.
_FRACTIONS = {3: (0.8, 0.1, 0.1), 2: (0.8, 0.2), 0: ()}


class TableFiles(SplitFiles):
    """A data set with one table for each split, or with one table that is divided into splits.

    A table is a file or a folder of shards. It is read once; later runs map the arrays from the
    cache. The key of a cache entry contains a hash of the files' content and the settings. The
    names and categories of the features are taken from ``train``.
    """

    fold = None
    _remedy = "set dataset.fractions to larger fractions, or give a file for each split"

    def __init__(
        self,
        *,
        name: str,
        data_dir: StrPath,
        cache_dir: StrPath,
        split: Mapping[str, str | None] | None = None,
        path: str | None = None,
        fractions: Sequence[float] | None = None,
        seed: int = 0,
        header: bool = True,
        labels: str = "grade",
        max_grade: int | None = None,
        **roles: Any,
    ) -> None:
        """Describe the tables; nothing is read yet.

        Raises ``ConfigError`` if a setting is out of range.

        Args:
            name: the name of the data set in results.
            data_dir: the folder to which the paths are relative.
            cache_dir: the folder of the cached arrays.
            split: the paths of ``train``, ``vali`` and ``test``. If ``vali`` has no path, the
                validation lists are taken from the table of ``train``. If ``test`` has no path,
                there is no test split.
            path: instead of ``split``, one table that is divided into the splits.
            fractions: the fraction of the queries in each split; the sum is 1. For ``path``, these
                are the fractions of train, vali and test (None: 0.8, 0.1, 0.1), or of train and
                vali only. For a ``split`` without ``vali``, they are the fractions of train and
                vali (None: 0.8, 0.2).
            seed: the seed with which the queries are divided.
            header: whether text files begin with a row of column names; see ``Source``.
            labels: ``"grade"`` (whole numbers) or ``"real"``; see ``ltr.data.letor.ParseOptions``.
            max_grade: the largest label allowed; see ``ltr.data.letor.ParseOptions``.
            roles: the fields of ``ColumnRoles``.
        """
        self._columns: Columns | None = None
        self.roles = ColumnRoles.from_config(roles)
        if self.roles.label is None:
            raise ConfigError(
                "dataset.label is not set: set dataset.label=COLUMN, the column of the labels"
            )
        self.header = bool(header)
        paths, cut = _paths(split, path)
        if path is not None and fractions is not None and len(fractions) == 2:
            cut = SPLITS[:2]
            paths = dict.fromkeys(cut, str(path))
        checked_fractions = _checked_fractions(fractions, cut, one_table=path is not None)
        rules = ParseOptions(labels=labels, max_grade=max_grade)
        super().__init__(name, data_dir, cache_dir, rules, paths, cut, checked_fractions, seed)

    def with_columns(self, columns: Columns) -> "TableFiles":
        """Return the same data set, with the ``columns`` of a trained model."""
        dataset = copy(self)
        dataset._columns = columns
        return dataset

    @property
    def columns(self) -> Columns:
        """Names and categories of the features; if unknown, ``train`` is read to find them."""
        if self._columns is None:
            self._columns = self.split("train").columns
        assert self._columns is not None
        return self._columns

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.columns.names)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the data set: train and vali, and test if it has a table or a fraction."""
        return SPLITS if "test" in self._paths else SPLITS[:2]

    def check(self) -> None:
        """Raise ``DataError`` if a table is missing, and ``ConfigError`` if a split has no path."""
        for split in self.splits:
            table_files(self.path(split))

    def split(self, split: str) -> Lists:
        """Return the lists of a split, which are read once and then mapped from the cache.

        Raises ``DataError`` if a file is missing or malformed, or the cache cannot be written.
        """
        path = self.path(split)
        columns = None if split == "train" and self._columns is None else self.columns
        cut = ""
        if split in self._cut:
            cut = f"{self._cut.index(split)} of {self._fractions} seed={self._seed}"
        content_digest = self._digest(path)
        # The digest leaves out the features, so runs on different features can be compared.
        items = f"table {content_digest} query={self.roles.query} label={self.roles.label} "
        items += f"Form(header={self.header}, names=None) {self.rules.cache_text} cut={cut}"
        state = "" if columns is None else json.dumps(columns.state())
        key = f"{items} reader={READER_VERSION} {self.roles.cache_text} columns={state}"

        def read(keep: Container[str] | None) -> SplitContent:
            source = Source(path, self.header)
            split_columns = columns or find_columns(source, self.roles, keep)
            remarks = {} if columns else unnamed_remarks(source, self.roles)
            roles = replace(self.roles, id=())  # training needs no ids
            blocks = table_blocks(source, roles, split_columns, rules=self.rules)
            return SplitContent(blocks, split_columns, remarks)

        digest = hashlib.sha256(items.encode()).hexdigest()
        return self._lists(split, key, content_digest, read, digest=digest)

    def ids(self, split: str, rows: Sequence[int]) -> list[str]:
        """Return the item ids of the given rows, which are numbered from 0.

        An item id consists of the cells of the id columns, joined.
        """
        if not self.roles.id:
            return [""] * len(rows)
        chunks = Source(self.path(split), self.header).chunks(self.roles.id, [], _ROWS)
        chosen = pd.concat([chunk.cells for chunk in chunks]).iloc[[*rows]]
        return [" ".join(filter(None, map(query_text, row))) for row in chosen.to_numpy(object)]

    def _digest(self, path: Path) -> str:
        """Return the digest of the content of all files of ``path``, in order."""
        digests = [super(TableFiles, self)._digest(file) for file in table_files(path)]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def _qids(self, path: Path) -> Iterable[str]:
        return table_qids(Source(path, self.header), self.roles)


def _paths(split: Any, path: str | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the path of each split, and the splits that share one table."""
    split_paths = split if isinstance(split, Mapping) else {}
    paths = {name: str(value) for name, value in split_paths.items() if value not in (None, "")}
    both_or_none = (path is None) == (not paths)
    if both_or_none or not paths.keys() <= {*SPLITS}:
        raise ConfigError(
            "expected a table for each split, or one table that is divided into all splits: give "
            "'dataset.split={train:PATH,vali:PATH,test:PATH}' (test may be left out), or "
            "dataset.path=PATH"
        )
    if path is not None:
        return dict.fromkeys(SPLITS, str(path)), SPLITS
    if "vali" in paths or "train" not in paths:
        return paths, ()
    return paths | {"vali": paths["train"]}, ("train", "vali")


def _checked_fractions(
    fractions: Sequence[float] | None, cut: Sequence[str], *, one_table: bool
) -> tuple[float, ...]:
    """Return the fraction of the queries in each of the splits ``cut``; the defaults if None.

    ``one_table`` says whether one table is divided into the splits. Raises ``ConfigError`` unless
    there is a fraction > 0 for each split, and their sum is 1.
    """
    defaults = _FRACTIONS[len(cut)]
    values = tuple(map(python_number, defaults if fractions is None else fractions))
    are_positive = all(is_number(value) and value > 0 for value in values)
    are_complete = not defaults or (are_positive and abs(sum(values) - 1) < 1e-6)
    if not are_positive or not are_complete or len(values) != len(defaults):
        splits = ", ".join(cut)
        if one_table:
            splits = "train, vali and test, or of train and vali alone"
        expected = f"give the fractions of {splits}, each > 0, with a sum of 1"
        if not splits:
            expected = "every split has its own table, so leave this key out"
        raise ConfigError(f"dataset.fractions={list(values)}: {expected}")
    return values
