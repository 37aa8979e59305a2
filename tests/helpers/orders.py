"""Options of commands, from the words that a user types."""

from collections.abc import Sequence

from ltr.cli.compose import typed
from ltr.cli.options import parse_options
from ltr.lab.analysis.compare import CompareOptions
from ltr.lab.auto.command import AutoOptions
from ltr.lab.search.definition import Search, SearchOptions, define_search
from ltr.lab.tables.config import TableOptions


def table_of(arguments: Sequence[str]) -> TableOptions:
    """Return the options of ``ltr table ARGUMENTS``."""
    return parse_options(TableOptions, typed("table", arguments))


def search_options(arguments: Sequence[str]) -> SearchOptions:
    """Return the options of ``ltr search ARGUMENTS``."""
    return parse_options(SearchOptions, typed("search", arguments))


def search_of(arguments: Sequence[str]) -> Search:
    """Return the search that ``ltr search ARGUMENTS`` defines."""
    return define_search(search_options(arguments))


def comparison_of(arguments: Sequence[str]) -> CompareOptions:
    """Return the options of ``ltr compare ARGUMENTS``."""
    return parse_options(CompareOptions, typed("compare", arguments))


def auto_options(arguments: Sequence[str]) -> AutoOptions:
    """Return the options of ``ltr auto ARGUMENTS``."""
    return parse_options(AutoOptions, typed("auto", arguments))
