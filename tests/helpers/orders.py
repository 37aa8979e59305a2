"""Options of commands, from the words that a user types."""

from collections.abc import Sequence

from ltr.cli.compose import typed
from ltr.cli.options import parse_options
from ltr.lab.analysis.compare import CompareOptions
from ltr.lab.search.definition import Search, SearchOptions, define_search
from ltr.lab.tables.config import TableOptions
from ltr.lab.tables.recommend import RecommendOptions


def table_of(arguments: Sequence[str]) -> TableOptions:
    """Return the options of ``scripts/table.py ARGUMENTS``."""
    return parse_options(TableOptions, typed("table", arguments))


def search_options(arguments: Sequence[str]) -> SearchOptions:
    """Return the options of ``scripts/search.py ARGUMENTS``."""
    return parse_options(SearchOptions, typed("search", arguments))


def search_of(arguments: Sequence[str]) -> Search:
    """Return the search that ``scripts/search.py ARGUMENTS`` defines."""
    return define_search(search_options(arguments))


def comparison_of(arguments: Sequence[str]) -> CompareOptions:
    """Return the options of ``scripts/compare.py ARGUMENTS``."""
    return parse_options(CompareOptions, typed("compare", arguments))


def recommendation_of(arguments: Sequence[str]) -> RecommendOptions:
    """Return the options of ``scripts/recommend.py ARGUMENTS``."""
    return parse_options(RecommendOptions, typed("recommend", arguments))
