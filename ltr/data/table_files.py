"""``TableFiles``: a data set in table files."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from ltr.data.assemble import assemble
from ltr.data.cache import cached_lists, check_unchanged, file_digest
from ltr.data.letor import Rules
from ltr.data.lists import SPLITS, Columns, Lists, check_split, split_queries
from ltr.data.table_sources import Form, Source, table_files
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


class TableFiles:
    """A table for each split, or tables that are cut by query; each a file or a folder of shards.

    Each table is read once into the cache, keyed by the content of its files and by how it is read.
    Names and categories of the features are found in train and hold for every split.
    """

    fold = None

    def __init__(
        self,
        *,
        name: str,
        data_dir: str | os.PathLike[str],
        cache_dir: str | os.PathLike[str],
        query: str | None = None,
        label: str | None = None,
        id: Sequence[str] | str | None = None,
        features: Sequence[str] | None = None,
        categories: Sequence[str] | str | None = None,
        hashed: Mapping[str, int] | None = None,
        weight: str | None = None,
        category_values: int = 1000,
        split: Mapping[str, str | None] | None = None,
        path: str | None = None,
        fractions: Sequence[float] | None = None,
        seed: int = 0,
        header: bool = True,
        names: Sequence[str] | None = None,
        labels: str = "grade",
        max_grade: int | None = None,
    ) -> None:
        """Describe the tables; nothing is read yet. ``ConfigError``: a setting is out of its range.

        Args:
            name: of the set in results.
            data_dir, cache_dir: the folder that paths begin at, and that of the parsed arrays.
            query, label, id, features, categories, hashed, weight, category_values: the ``Roles``.
            split: the path of ``train``, ``vali`` and ``test``; without vali, it is cut from train.
            path: instead of ``split`` one table that is cut into all three.
            fractions: of the queries: of train, vali and test of ``path``, None: 0.8, 0.1, 0.1;
                of train and vali where ``split`` has no vali, None: 0.8, 0.2.
            seed: of the cut.
            header, names: the ``Form`` of text files.
            labels, max_grade: as for ``ltr.data.letor.Rules``.
        """
        self.name = name
        self._columns: Columns | None = None
        self.roles = Roles.of({
            "query": query, "label": label, "id": id, "features": features, "weight": weight,
            "categories": categories, "hashed": hashed, "category_values": category_values,
        })  # fmt: skip
        if self.roles.label is None:
            raise ConfigError("give dataset.label=COLUMN, the column of the labels")
        self.data_dir, self.cache_dir = Path(str(data_dir)), Path(str(cache_dir))
        self.rules = Rules(labels=labels, max_grade=max_grade)
        self.form = Form(bool(header), None if names is None else tuple(map(str, names)))
        self._paths, self._cut = _paths(split, path)
        usual = _FRACTIONS[len(self._cut)]
        self._seed, self._fractions = seed, tuple(usual if fractions is None else fractions)
        positive = [isinstance(part, int | float) and part > 0 for part in self._fractions]
        whole = not usual or abs(sum(self._fractions) - 1) < 1e-6
        if not all(positive) or len(positive) != len(usual) or not whole:
            raise ConfigError(
                f"dataset.fractions={list(self._fractions)}: give the parts of "
                f"{', '.join(self._cut) or 'nothing, every split has a table'}, each > 0, 1 in sum"
            )

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

    def path(self, split: str) -> Path:
        """The file or folder that a split is in; ``ConfigError`` where none is given."""
        if check_split(split) not in self._paths:
            raise ConfigError(f"give dataset.split.{split}=PATH, a table in {self.data_dir}")
        return self.data_dir / self._paths[split]

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
        roles = replace(self.roles, id=())  # training needs none
        items = f"table {content} query={roles.query} label={roles.label} {self.form} {self.rules} "
        items += f"cut={cut}"
        state = "" if columns is None else json.dumps(columns.state())

        def build(file: Path) -> Lists:
            source, keep = (
                Source(path, self.form),
                self._parts[SPLITS.index(split)] if cut else None,
            )
            found = columns or find_columns(source, self.roles, keep)
            with tqdm(desc=str(path), unit=" rows", unit_scale=True, disable=None) as bar:
                see = lambda cells: bar.update(len(cells))  # noqa: E731
                blocks = table_blocks(source, roles, found, rules=self.rules, see=see)
                digest = hashlib.sha256(items.encode()).hexdigest()
                lists = assemble(blocks, file, keep=keep, digest=digest, columns=found)
            check_unchanged(path, content, self._digest(path))
            return lists

        key = f"{items} reader={READER_VERSION} {self.roles} columns={state}"
        return cached_lists(self.cache_dir, key, build)

    def ids(self, split: str, rows: Sequence[int]) -> list[str]:
        """The columns of ids in these rows of the table of ``split``, as one text each."""
        if not self.roles.id:
            return [""] * len(rows)
        pieces = Source(self.path(split), self.form).pieces(self.roles.id, [], _ROWS)
        cells = pa.concat_tables(pa.Table.from_batches([piece.cells]) for piece in pieces).take(
            rows
        )
        return [" ".join(filter(None, map(query_text, row.values()))) for row in cells.to_pylist()]

    def _digest(self, path: Path) -> str:
        """Of the content of the files, in their order."""
        digests = [file_digest(file, self.cache_dir) for file in table_files(path)]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    @cached_property
    def _parts(self) -> list[set[str]]:
        """The queries of each split that is cut from one table."""
        source = Source(self.path("train"), self.form)
        qids = table_qids(source, self.roles)
        remedy = "set dataset.fractions to larger parts, or give a file for each split"
        return split_queries(qids, self._fractions, self._seed, title=source.title, remedy=remedy)


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
