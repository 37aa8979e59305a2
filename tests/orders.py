"""Orders of commands as a user types them."""

from collections.abc import Sequence

from omegaconf import DictConfig

from ltr.analysis.compare import CompareOptions
from ltr.console.compose import typed
from ltr.console.options import parse_options
from ltr.search.definition import Search, define_search


def table_of(arguments: Sequence[str]) -> DictConfig:
    """What ``scripts/table.py ARGUMENTS`` asks for."""
    return typed("table", arguments)


def search_of(arguments: Sequence[str]) -> Search:
    """The search that ``scripts/search.py ARGUMENTS`` defines."""
    return define_search(typed("search", arguments))


def comparison_of(arguments: Sequence[str]) -> CompareOptions:
    """What ``scripts/compare.py ARGUMENTS`` asks for."""
    return parse_options(CompareOptions, typed("compare", arguments))
