"""The input and the result of an exporter, and the check of the exported scores (parity)."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ltr.arrays import Flags, Floats, Reals
from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.parts.scorer import Scorer

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # a name that needs no quotes in an expression
Reader = Callable[[Path, Sequence[str]], Callable[[Floats], Reals]]
# The largest difference of two scores; if the largest |score| of the list is above 1, times that.
TOLERANCE = 1e-5
_ROWS = 1 << 14  # number of items that trees or layers score at a time


@dataclass(frozen=True)
class Exported:
    """A model in the format of an engine."""

    files: Mapping[str, bytes | str]  # name -> content
    # computes the scores of all items, [items], from the files in a folder
    score: Callable[[Path, Lists], Reals]
    backend: str  # what ``score`` uses, for the parity file
    notes: Mapping[str, Any] = field(default_factory=dict)  # notes for the manifest


@dataclass(frozen=True)
class ExportContext:
    """A model to export, with the information that exporters need."""

    name: str  # name of the model in the engine
    scorer: Scorer
    converted: Any  # the model on raw features, as ``Trees`` or ``Layers``; None: neither
    # whether a feature that a document lacks counts as 0, as in LETOR text; else it is missing
    absent_is_zero: bool
    negative: Flags  # [feature], whether the compared lists have values below 0

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in order; ``f1``, ``f2``, ... if they have no names."""
        if self.scorer.columns is not None:
            return self.scorer.columns.names
        return tuple(f"f{number}" for number in range(1, self.scorer.transform.width + 1))

    def export_texts(
        self, files: Mapping[str, str], read: Reader, *, shift: float | None = None, **notes: Any
    ) -> Exported:
        """Return an ``Exported`` for text ``files``.

        Args:
            files: the content of each file, by name.
            read: a function that reads the files back; its arguments are their folder and the names
                of the features.
            shift: the engine's score minus the model's score; None if they are equal.
            notes: notes for the manifest.
        """

        def score(folder: Path, lists: Lists) -> Reals:
            scores = score_in_blocks(read(folder, self.features), lists)
            return scores.astype(np.float64) - (shift or 0.0)

        if shift is not None:
            notes["score"] = f"the model's score {shift:+}"
        notes["format"] = "read back by the engine's rules, not run in the engine"
        return Exported(files, score, "ltr on the files, by the engine's rules", notes)


def json_text(content: Any) -> str:
    """Format ``content`` as the text of a JSON file."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def score_in_blocks(score: Callable[[Floats], Reals], lists: Lists) -> Reals:
    """Apply ``score`` to the features of all items, block by block; return ``[items]``."""
    starts = range(0, lists.items, _ROWS)
    blocks = (np.asarray(lists.features[start : start + _ROWS]) for start in starts)
    return np.concatenate([score(block) for block in blocks])


def check_parity(
    lists: Lists, model_scores: Reals, exported_scores: Reals, title: str
) -> dict[str, Any]:
    """Compare the scores of the exported files with the model's.

    Args:
        lists: the lists that were scored.
        model_scores: the model's scores, ``[items]``.
        exported_scores: the scores of the exported files, ``[items]``.
        title: the setting of the export, such as ``to=solr``, for the error message.

    Returns:
        The entries of the parity file.

    Raises:
        ConfigError: a score differs by more than the tolerance; the message names the item.
    """
    model_scores = model_scores.astype(np.float64)
    exported_scores = exported_scores.astype(np.float64)
    largest = np.maximum.reduceat(np.abs(model_scores), lists.offsets[:-1])
    units = np.repeat(np.maximum(1.0, largest), lists.lengths)
    gaps = np.abs(exported_scores - model_scores)
    wrong = ~(gaps <= TOLERANCE * units)  # NaN is wrong too
    if wrong.any():
        item = int(wrong.argmax())
        number = int(np.searchsorted(lists.offsets, item, side="right")) - 1
        raise ConfigError(
            f"{title}: the exported files do not give the model's scores: in the list of qid "
            f"{lists.qids[number]}, item {item - lists.offsets[number] + 1} has the score "
            f"{model_scores[item]:.9g} in the model, but {exported_scores[item]:.9g} in the "
            "export; nothing was written: choose another format, such as to=onnx, or report this "
            "as a bug, with the config of the model"
        )
    return {
        "lists": len(lists),
        "items": lists.items,
        "largest_difference": float(gaps.max()),
        "largest_difference_of_unit": float((gaps / units).max()),
        "tolerance": TOLERANCE,
    }
