"""Rows that cannot run here because a library is not installed; the other rows do."""

from collections.abc import Sequence
from importlib.util import find_spec

from ltr.tables.plan import merged
from ltr.tables.spec import Table

# What each choice of model needs.
_LIBRARIES = {
    "lightgbm": "lightgbm",
    "stumps": "lightgbm",
    "xgboost": "xgboost",
    "catboost": "catboost",
}


def missing_libraries(table: Table, given: Sequence[str]) -> dict[str, str]:
    """Why a row cannot run, by row, for those that cannot."""
    found = {}
    for label, row in table.rows.items():
        chosen = [item for item in merged(table.settings, given, row) if item.startswith("model=")]
        library = _LIBRARIES.get(chosen[-1].partition("=")[2]) if chosen else None
        if library is not None and find_spec(library) is None:
            found[label] = "needs ltr-torch[gbdt]"
    return found
