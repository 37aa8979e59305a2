"""``Exported``: the files of a model for an engine, and how they are run."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ltr.data.lists import Lists

Scores = NDArray[np.floating]
IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # a name that an expression may hold unquoted


@dataclass(frozen=True)
class Exported:
    """A model as an engine reads it.

    Attributes:
        files: content by name.
        run: the scores of all items, ``[items]``, that the files in a folder give; of a text
            format those of the trees or layers that were written into it.
        ran_by: what ``run`` is, for the parity file.
        notes: for the manifest.
    """

    files: Mapping[str, bytes | str]
    run: Callable[[Path, Lists], Scores]
    ran_by: str
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportContext:
    """What every writer needs to know besides the model.

    Attributes:
        name: of the model in the engine.
        features: their names, in order.
        lists: real lists, whose scores the writer may look at.
        scores: the model's scores of them, ``[items]``.
        absent_is_zero: no value of the lists was missing in training, so that a feature that the
            engine does not find counts as 0.
    """

    name: str
    features: tuple[str, ...]
    lists: Lists
    scores: Scores
    absent_is_zero: bool


def shifted(by: float) -> str:
    """The score of an engine in words.

    >>> shifted(-1.5)
    "the model's score - 1.5"
    """
    return f"the model's score {'-' if by < 0 else '+'} {abs(by)!r}"
