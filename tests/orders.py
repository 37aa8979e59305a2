"""Orders of commands as a user types them."""

from collections.abc import Sequence

from ltr.compare.order import Order as CompareOrder
from ltr.compare.order import compare_order
from ltr.console.compose import typed
from ltr.search.order import Order as SearchOrder
from ltr.search.order import search_order
from ltr.tables.spec import Order as TableOrder
from ltr.tables.spec import table_order


def table_of(arguments: Sequence[str]) -> TableOrder:
    """What ``scripts/table.py ARGUMENTS`` asks for."""
    return table_order(typed("table", arguments))


def search_of(arguments: Sequence[str]) -> SearchOrder:
    """What ``scripts/search.py ARGUMENTS`` asks for."""
    return search_order(typed("search", arguments))


def comparison_of(arguments: Sequence[str]) -> CompareOrder:
    """What ``scripts/compare.py ARGUMENTS`` asks for."""
    return compare_order(typed("compare", arguments))
