"""Options of a library that are lists, such as a value for each feature."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_NUMBER = r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*"
_LIST = re.compile(rf"[(\[]?{_NUMBER}(?:,{_NUMBER})*,?\s*[)\]]?")


def values_in(value: Any) -> int:
    """How many values an option has that is a list of numbers or a text of one; 0 for any other.

    >>> values_in([1, 0, -1]), values_in("(1,0,-1)"), values_in("1,0"), values_in(0.5)
    (3, 3, 2, 0)
    >>> values_in([[0, 1], [2]]), values_in("depthwise"), values_in("5")
    (0, 0, 0)
    """
    if isinstance(value, str) and "," in value and _LIST.fullmatch(value.strip()):
        return len(value.strip("()[] ,").split(","))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return 0 if any(isinstance(one, Sequence) for one in value) else len(value)
    return 0


def columns(options: Mapping[str, Any]) -> int:
    """Features that tiny lists need so that ``options`` can be tried on them, at least two.

    >>> columns({"feature_contri": [1, 1, 0.5]}), columns({"path_smooth": 1})
    (3, 2)
    """
    return max([2, *map(values_in, options.values())])


def as_text(value: Any) -> Any:
    """A list as XGBoost reads it; anything else as it is.

    >>> as_text([1, 0]), as_text([[0, 1], [2]]), as_text([1]), as_text(0.5)
    ('(1,0)', '[[0, 1], [2]]', '(1)', 0.5)
    """
    if not isinstance(value, list):
        return value
    if any(isinstance(one, list) for one in value):
        return json.dumps(value)
    return f"({','.join(map(str, value))})"
