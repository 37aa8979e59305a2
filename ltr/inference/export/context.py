"""What every writer is given and returns, and whether its files score as the model does."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ltr.data.lists import Ints, Lists
from ltr.errors import ConfigError
from ltr.inference.export.dense import Dense
from ltr.inference.export.trees import Trees
from ltr.scorers.scorer import Scorer

Scores = NDArray[np.floating]
IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # a name that an expression may hold unquoted
TOLERANCE = 1e-5  # of a score, or of the largest score of the list where that is above 1


@dataclass(frozen=True)
class Exported:
    """A model as an engine reads it."""

    files: Mapping[str, bytes | str]  # content by name
    # the scores of all items, [items], that the files in a folder give; of a text format those of
    # the trees or layers that were written into it
    run: Callable[[Path, Lists], Scores]
    ran_by: str  # what ``run`` is, for the parity file
    notes: Mapping[str, Any] = field(default_factory=dict)  # for the manifest


@dataclass(frozen=True)
class ExportContext:
    """A model, and what its writer may want to know besides."""

    name: str  # of the model in the engine
    lists: Lists  # real ones, whose scores the writer may look at
    scores: Scores  # of the model, [items]
    scorer: Scorer
    form: Trees | Dense | None  # the model as trees or layers over raw features; None: neither
    # no value of the lists was missing in training: a feature that the engine lacks counts as 0
    absent_is_zero: bool
    format: str | None = None  # one of the engine's, None: the first that can hold the model

    @property
    def features(self) -> tuple[str, ...]:
        """Their names, in order."""
        columns, width = self.scorer.columns, self.scorer.transform.width
        return tuple(f"f{i}" for i in range(1, width + 1)) if columns is None else columns.names

    def texts(self, files: Mapping[str, str], **notes: Any) -> Exported:
        """``files`` that were written from ``form``."""
        form = self.form
        assert form is not None
        return Exported(
            files,
            lambda _, lists: form.scores(lists.features),
            f"ltr on the {'trees' if isinstance(form, Trees) else 'layers'} that the text was "
            "written from",
            {**notes, "format": "held by tests/test_export.py, not run in the engine"},
        )


def json_text(content: Any, indent: int = 1) -> str:
    """``content`` as the text of a file."""
    return json.dumps(content, indent=indent, allow_nan=False) + "\n"


def shifted(by: float) -> str:
    """The score of an engine in words.

    >>> shifted(-1.5)
    "the model's score - 1.5"
    """
    return f"the model's score {'-' if by < 0 else '+'} {abs(by)!r}"


def refuse_names(names: Iterable[str], what: str, remedy: str = "") -> None:
    """Raise ``ConfigError`` for the first of ``names``, which are none of ``what``."""
    for name in names:
        raise ConfigError(
            f"{name!r} is no name of {what}: name the columns by letters, digits and _, and train "
            f"again{remedy}"
        )


def parity(lists: Lists, ours: Scores, theirs: Scores, what: str) -> dict[str, Any]:
    """Compare the scores of every item, ``[items]``; the result, for the parity file.

    Args:
        lists: the lists.
        ours, theirs: scores of the model and of the exported form.
        what: the exported form, for the message.

    Raises:
        ConfigError: a list differs, with the first one's qid, items and scores.
    """
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.maximum.reduceat(np.abs(ours), lists.offsets[:-1])
    units = np.repeat(np.maximum(1.0, largest), lists.lengths)
    gaps, near = np.abs(theirs - ours), 0
    for qid, (start, end) in zip(lists.qids, pairwise(lists.offsets), strict=True):
        least, given = TOLERANCE * units[start], (ours[start:end], theirs[start:end])
        wrong = np.flatnonzero(~(gaps[start:end] <= least))[:2]  # NaN is far
        if not len(wrong):
            wrong = _swapped(*given, least)
            near += len(_swapped(*given, 0.0)) > 0
        if len(wrong):
            items = " and ".join(
                f"item {n + 1} is {given[0][n]:.9g} here, {given[1][n]:.9g} there" for n in wrong
            )
            raise ConfigError(
                f"{what} does not score as the model does: of list qid {qid} {items}; nothing is "
                "written: choose another form, such as to=onnx, or report the model's config"
            )
    return {
        "lists": len(lists),
        "items": lists.items,
        "largest_difference": float(gaps.max()),
        "largest_difference_of_unit": float((gaps / units).max()),
        "unit": "max(1, largest |score| of the list)",
        "tolerance": TOLERANCE,
        "lists_that_change_order": 0,
        "lists_where_closer_items_change_order": near,
        "exported_scores": [float(theirs.min()), float(theirs.max())],
    }


def _swapped(ours: Scores, theirs: Scores, least: float) -> Ints:
    """Two items, ``[2]``, whose order changes or is lost though ours differ by over ``least``.

    Empty: there are none. With ``least`` 0 an order that is lost does not count.
    """
    order = np.argsort(ours, kind="stable")
    scores, others = ours[order], theirs[order]
    below = np.searchsorted(scores, scores - least, side="left")  # how many are clearly smaller
    best = np.maximum.accumulate(others)[np.maximum(below - 1, 0)]
    wrong = (best >= others) if least else (best > others)
    if not len(found := np.flatnonzero(wrong & (below > 0))[:1]):
        return found
    return order[[int(np.argmax(others[: below[found[0]]])), found[0]]]
