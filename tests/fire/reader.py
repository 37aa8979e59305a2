"""LETOR text, valid and spoilt, read by this project, by scikit-learn, and by the grammar itself.

Where both read a text, values are the same, but for these differences, which are meant:

- a value beyond float32 is missing here (NaN), scikit-learn keeps a float64;
- a query id is text here, so that 1 and 01 are two; scikit-learn reads whole numbers only;
- scikit-learn reads negative and fractional labels, ``inf``, ``1_0``, rows without a feature,
  and a query that comes back later; here each stops with file and line;
- the order of indices is free here, scikit-learn wants them sorted.
"""

import json
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fire.children import child
from fire.outcomes import CRASH, HANG, HARMLESS, LOST, NOTICED, SILENT, TRACEBACK, Result, Subject
from fire.stage import Stage
from fire.texts import Row, meaning, reordered, spoilt, valid

_BATCH = 50
_WIDEST = 2_000  # a wider array, of an index that was spoilt, is not compared cell by cell


def subjects(stage: Stage) -> list[Subject]:
    """Valid text, text with spoilt bytes, text with tokens and lines out of order."""

    def of(name: str, draw: Callable[[Random], bytes], *, sound: bool) -> Subject:
        return Subject(name, lambda rng: _batch(stage, draw, rng, sound=sound))

    return [
        of("valid-text", lambda rng: valid(rng).encode(), sound=True),
        of("spoilt-bytes", spoilt, sound=False),
        of("spoilt-tokens", reordered, sound=False),
    ]


def _batch(
    stage: Stage, draw: Callable[[Random], bytes], rng: Random, *, sound: bool
) -> list[Result]:
    """Read a batch of texts in one child."""
    texts = [draw(rng) for _ in range(_BATCH)]

    def work() -> str:
        with tempfile.TemporaryDirectory(dir=stage.root) as folder:
            path = Path(folder, "text.txt")
            return json.dumps([compared(path, text, sound=sound) for text in texts])

    ended = child(work, stage.root)
    if ended.hung:
        return [Result(HANG, "a batch of texts")]
    if ended.status != 0:
        return [Result(CRASH, f"status {ended.status}: {ended.raised or ended.err[-200:]}")]
    return [Result(*found) for found in json.loads(ended.answer)]


def compared(path: Path, text: bytes, *, sound: bool) -> tuple[str, str]:
    """The outcome of one text, written to ``path``; ``sound``: it breaks no rule."""
    from ltr.data.letor import read_letor
    from ltr.errors import DataError

    path.write_bytes(text)
    shown = repr(text[:300])
    try:
        lists = read_letor(path)
    except DataError as error:
        if sound:
            return LOST, f"valid text is refused, {error}: {shown}"
        line = re.match(re.escape(str(path)) + r"(:[0-9]+)?: ", str(error))
        if line is None or "\n" in str(error):
            return TRACEBACK, f"not one line with the file: {str(error)[:100]}: {shown}"
        return NOTICED, ""
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {error}: {shown}"
    rows = meaning(text)
    if rows is None:
        return SILENT, f"read, although it breaks a rule: {shown}"
    wrong = _beside_grammar(lists, rows) or _beside_sklearn(lists, path)
    return (SILENT, f"{wrong}: {shown}") if wrong else (HARMLESS, "")


def _beside_grammar(lists: Any, rows: list[Row]) -> str:
    """What differs from the grammar's rows, empty where nothing does."""
    width = max(max(row.values) for row in rows)
    if lists.features.shape != (len(rows), width):
        return f"shape {lists.features.shape}, expected {(len(rows), width)}"
    if np.repeat(lists.qids, lists.lengths).tolist() != [row.qid for row in rows]:
        return "other query ids"
    if lists.labels.tolist() != [row.label for row in rows]:
        return "other labels"
    if width > _WIDEST:
        return ""
    expected = np.zeros((len(rows), width), np.float64)
    for i, row in enumerate(rows):
        expected[i, np.array(list(row.values)) - 1] = list(row.values.values())
    return "" if _same(lists.features, expected) else "other values"


def _same(features: Any, values: Any) -> bool:
    """Whether float32 ``features`` are ``values``, rounded; beyond float32 stands NaN."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
    rounded[np.isinf(rounded)] = np.nan
    return bool(np.array_equal(features, rounded, equal_nan=True))


def _beside_sklearn(lists: Any, path: Path) -> str:
    """What differs from scikit-learn, empty where nothing does or it does not read the text."""
    from sklearn.datasets import load_svmlight_file

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values, labels, qids = load_svmlight_file(str(path), query_id=True, zero_based=False)
    except Exception:  # what it refuses, in many ways, is not compared
        return ""
    if labels.tolist() != lists.labels.tolist():
        return "labels differ from scikit-learn's"
    if values.shape != lists.features.shape:
        return "the shape differs from scikit-learn's"
    if values.shape[1] <= _WIDEST and not _same(lists.features, values.toarray()):
        return "values differ from scikit-learn's"
    own = np.repeat(lists.qids, lists.lengths).tolist()
    if not all(int(a) == b for a, b in zip(own, qids.tolist(), strict=True)):
        return "query ids differ from scikit-learn's"
    return ""
