"""Cut a table into parts by query, the same whatever the order of its rows and shards."""

from collections.abc import Sequence
from functools import partial

from ltr.data.cells import query_texts
from ltr.data.cut import Part, cut, place
from ltr.data.roles import check_there
from ltr.data.table_sources import Source
from ltr.errors import ConfigError, DataError

_ROWS = 1 << 16


def parts(source: Source, query: str, fractions: Sequence[float], seed: int) -> list[Part]:
    """Parts with these fractions of the queries of a table, to the nearest whole number.

    Args:
        source: the table.
        query: its column of query ids.
        fractions: each > 0, 1 in sum.
        seed: another one draws other parts.

    Raises:
        DataError: the column is not there, a row has no query, or a part would have none.
    """
    check_there({query: "dataset.query"}, source.schema.names, source.title)
    places: set[int] = set()
    for block in source.blocks([query], [], _ROWS):
        texts, _ = query_texts(block.cells.column(query), partial(block.at, column=query))
        places.update(place(text, seed) for text in texts)
    if not places:
        raise DataError(f"{source.title}: no rows; expected a row for each item")
    remedy = "set dataset.fractions to larger parts, or give a file for each split"
    return cut(places, fractions, seed, title=source.title, remedy=remedy)


def check_fractions(fractions: Sequence[float], names: Sequence[str]) -> tuple[float, ...]:
    """The fractions as numbers.

    Raises:
        ConfigError: not one for each of ``names``, each > 0, 1 in sum.
    """
    known = len(fractions) == len(names) and all(isinstance(n, int | float) for n in fractions)
    if not (known and min(fractions) > 0 and abs(sum(fractions) - 1) < 1e-6):
        raise ConfigError(
            f"dataset.fractions={list(fractions)}: give the parts of {', '.join(names)}, each > 0, "
            "1 in sum"
        )
    return tuple(map(float, fractions))
