"""The features of a table: names, and the categories that train has."""

import re
from collections import Counter
from collections.abc import Container
from shlex import quote
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ltr.data.cells import category_text, distinct, kind, query_text
from ltr.data.lists import Columns
from ltr.data.roles import Roles, check_there
from ltr.data.table_sources import Source
from ltr.errors import DataError

_ROWS = 1 << 15  # of a block
_INDEX = re.compile(r"__index_level_\d+__")  # that pandas writes into Parquet


def find_columns(source: Source, roles: Roles, keep: Container[str] | None = None) -> Columns:
    """Names and categories of the features of a table, which is train.

    The values of a category are in the order of their frequency, those of equal frequency in the
    order of their texts.

    Args:
        source, roles: the table and what its columns are.
        keep: the query ids whose rows count; None: all.

    Raises:
        DataError: a column is missing, has a type that is no feature's, or no role; no value.
    """
    check_there(named_columns(roles, labelled=True), source.schema.names, source.title)
    names = _feature_names(source, roles)
    listed = [name for name in names if name in roles.categories]
    for name in listed:
        check_kind(source, name, True)
    categories: dict[str, tuple[str, ...] | int] = {
        name: size for name, size in roles.hashed.items() if name in names
    }
    counts: dict[str, Counter[str]] = {name: Counter() for name in listed}
    if listed:
        texts = list(dict.fromkeys([roles.query, *listed]))
        for block in source.blocks(texts, [], _ROWS):
            cells = block.cells
            if keep is not None:
                cells = cells.filter(pa.array(_kept(cells.column(roles.query), keep)))
            for name in listed:
                values, places = distinct(cells.column(name))
                often = np.bincount(places, minlength=len(values))
                for value, count in zip(values, often.tolist(), strict=True):
                    counts[name][category_text(value)] += count
    for name, count in counts.items():
        del count[""]  # a missing value is none
        frequent = sorted(count, key=lambda text: (-count[text], text))
        categories[name] = tuple(frequent[: roles.category_values])
    return Columns(tuple(names), {name: categories[name] for name in names if name in categories})


def named_columns(roles: Roles, *, labelled: bool) -> dict[str, str]:
    """Columns that the roles name, and the key of each."""
    named = dict.fromkeys(roles.id, "dataset.id")
    named |= dict.fromkeys(roles.categories, "dataset.categories")
    named |= dict.fromkeys(roles.hashed, "dataset.hashed")
    named |= dict.fromkeys(roles.features or (), "dataset.features")
    if labelled:
        named |= {name: "dataset.weight" for name in [roles.weight] if name is not None}
        named |= {name: "dataset.label" for name in [roles.label] if name is not None}
    return {**named, roles.query: "dataset.query"}


def _feature_names(source: Source, roles: Roles) -> list[str]:
    coded = [*roles.categories, *roles.hashed]
    if roles.features is not None:
        return [*roles.features, *(name for name in coded if name not in roles.features)]
    others = {roles.query, roles.label, roles.weight, *roles.id}
    named = (name for name in source.schema.names if not _INDEX.fullmatch(name))
    rest = [name for name in named if name not in others]
    kinds = {name: kind(source.schema.field(name).type) for name in rest}
    if strange := [name for name in rest if name not in coded and kinds[name] != "number"]:
        shown = ", ".join(f"{name} ({source.schema.field(name).type})" for name in strange[:12])
        first = {kinds[name]: name for name in reversed(strange)}
        remedies = "; ".join(f"{name}: {_remedy(name, found)}" for found, name in first.items())
        raise DataError(
            f"{source.title}: no role for {shown}, which are no numbers; {remedies}; or give "
            "dataset.features"
        )
    names = [name for name in rest if name in coded or kinds[name] == "number"]
    names += [name for name in coded if name not in names]  # an id that is a feature too
    if not names:
        raise DataError(f"{source.title}: no number column is left as a feature; name some")
    return names


def check_kind(source: Source, name: str, coded: bool) -> None:
    """Raise ``DataError`` where a column cannot be a feature."""
    type_ = source.schema.field(name).type
    found = kind(type_)
    if found == "number" or (coded and found in ("text", "date")):
        return
    raise DataError(
        f"{source.title}: feature {name!r} holds {type_}, where numbers are read; write numbers, "
        f"or to train {_remedy(name, found)}"
    )


def _remedy(name: str, found: str) -> str:
    """What to do with a column that holds ``found``, a ``kind`` that is no number."""
    return {
        "text": f"name it in {quote(f'dataset.categories=[{name}]')}, "
        f"{quote(f'dataset.hashed={{{name}: 1000}}')} or "
        "dataset.id",
        "date": "turn it into a number, such as days since a date, or name it in dataset.id",
    }.get(found, "give a column for each of its numbers, or name it in dataset.id")


def _kept(query: Any, keep: Container[str]) -> NDArray[np.bool_]:
    values, places = distinct(query)
    return np.array([query_text(value) in keep for value in values], bool)[places]
