"""What every writer is given and returns, and whether its files score as the model does."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ltr.arrays import Floats, Reals
from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.scorers.scorer import Scorer

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # a name that an expression may hold unquoted
TOLERANCE = 1e-5  # of a score, or of the largest score of the list where that is above 1
_ROWS = 1 << 14  # items that trees or layers score at once


@dataclass(frozen=True)
class Exported:
    """A model as an engine reads it."""

    files: Mapping[str, bytes | str]  # content by name
    # the scores of all items, [items], that the files in a folder give; of a text format those of
    # the trees or layers that were written into it
    run: Callable[[Path, Lists], Reals]
    ran_by: str  # what ``run`` is, for the parity file
    notes: Mapping[str, Any] = field(default_factory=dict)  # for the manifest


@dataclass(frozen=True)
class ExportContext:
    """A model, and what its writer may want to know besides."""

    name: str  # of the model in the engine
    scorer: Scorer
    form: Any  # the model over raw features, ``Trees`` or ``Layers``; None: neither
    # no value of the lists was missing in training: a feature that the engine lacks counts as 0
    absent_is_zero: bool

    @property
    def features(self) -> tuple[str, ...]:
        """Their names, in order."""
        columns, width = self.scorer.columns, self.scorer.transform.width
        return tuple(f"f{i}" for i in range(1, width + 1)) if columns is None else columns.names

    def texts(self, files: Mapping[str, str], **notes: Any) -> Exported:
        """``files`` that were written from ``form``."""

        def run(_: Path, lists: Lists) -> Reals:
            return by_rows(self.form.scores, lists)

        what = type(self.form).__name__.lower()  # trees or layers
        notes["format"] = "held by tests/test_export.py, not run in the engine"
        return Exported(files, run, f"ltr on the {what} that the text was written from", notes)


def json_text(content: Any) -> str:
    """``content`` as the text of a file."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def by_rows(score: Callable[[Floats], Reals], lists: Lists) -> Reals:
    """``score`` of the features of all items, some rows at once, ``[items]``."""
    starts = range(0, lists.items, _ROWS)
    return np.concatenate([score(np.asarray(lists.features[i : i + _ROWS])) for i in starts])


def parity(lists: Lists, ours: Reals, theirs: Reals, what: str) -> dict[str, Any]:
    """Compare the scores of every item, ``[items]``; the result, for the parity file.

    Args:
        lists: the lists.
        ours, theirs: scores of the model and of the exported form.
        what: the exported form, for the message.

    Raises:
        ConfigError: a score differs by more than the tolerance; with its qid, item and scores.
    """
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.maximum.reduceat(np.abs(ours), lists.offsets[:-1])
    units = np.repeat(np.maximum(1.0, largest), lists.lengths)
    gaps = np.abs(theirs - ours)
    wrong = ~(gaps <= TOLERANCE * units)  # NaN is far
    if wrong.any():
        place = int(wrong.argmax())
        number = int(np.searchsorted(lists.offsets, place, side="right")) - 1
        raise ConfigError(
            f"{what} does not score as the model does: of list qid {lists.qids[number]} item "
            f"{place - lists.offsets[number] + 1} is {ours[place]:.9g} here, {theirs[place]:.9g} "
            "there; nothing is written: choose another form, such as to=onnx, or report the "
            "model's config"
        )
    return {
        "lists": len(lists),
        "items": lists.items,
        "largest_difference": float(gaps.max()),
        "largest_difference_of_unit": float((gaps / units).max()),
        "tolerance": TOLERANCE,
    }
