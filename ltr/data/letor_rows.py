"""The meaning of LETOR/LibSVM text, row by row: the authority on values and on errors.

A row is ``label qid:ID index:value index:value ... # comment``; the value ``nan``, in capitals or
not, is missing. ``CompiledParser`` reads large
files faster and must give exactly what this module gives.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ltr.data.lists import Doubles, Floats, Ints
from ltr.errors import ConfigError, DataError

LARGEST_INDEX = 1_000_000  # the arrays are dense: a larger index is a slip, not a feature
LARGEST_GRADE = 2**24  # float32 has no whole number beyond that for certain

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_LABEL = re.compile(_NUMBER)
_PAIR = re.compile(rb"0*([0-9]{1,7}):(" + _NUMBER + rb"|[+-]?(?i:nan))")
_DOCID = re.compile(r"\bdocid\s*=\s*(\S+)")
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rules:
    """What a file may hold.

    Attributes:
        width: number of features, the largest index allowed; None: the largest in the file.
        labels: ``grade``, whole numbers (written 2 or 2.0), or ``real``, any number >= 0.
        max_grade: the largest label allowed; None: 2^24 for grades, float32's largest for real.
        labelled: False: every label counts as 0; a row may begin with ``qid:``.

    Raises:
        ConfigError: a setting out of its range.
    """

    width: int | None = None
    labels: str = "grade"
    max_grade: int | None = None
    labelled: bool = True

    def __post_init__(self) -> None:
        wrong = ""
        if self.labels not in ("grade", "real"):
            wrong = f"labels={self.labels!r} is not known: set dataset.labels to grade or real"
        if self.width is not None and not 1 <= self.width <= LARGEST_INDEX:
            wrong = f"width={self.width} is out of range: set dataset.width to 1..{LARGEST_INDEX}"
        if self.max_grade is not None and self.max_grade < 1:
            wrong = (
                f"max_grade={self.max_grade} is out of range: set dataset.max_grade to 1 or more"
            )
        if wrong:
            raise ConfigError(wrong)

    @property
    def largest_index(self) -> int:
        """The largest index that a row may hold."""
        return LARGEST_INDEX if self.width is None else self.width

    @property
    def largest_label(self) -> float:
        """The largest label that a row may hold."""
        if self.max_grade is not None:
            return self.max_grade
        return LARGEST_GRADE if self.labels == "grade" else _FLOAT32_MAX

    @property
    def expected_label(self) -> str:
        """What a label should be, in words."""
        if self.labels == "grade":
            largest = f"{self.largest_label:.0f}"
            return f"a grade, a whole number from 0 to {largest} (or set dataset.labels=real)"
        return f"a number from 0 to {self.largest_label:.9g}"

    def checked(self, labels: Doubles, at: Callable[[int], str]) -> Floats:
        """``labels``, ``[rows]``, as float32.

        Args:
            labels: NaN where a row has none.
            at: where a row stands, for messages.

        Raises:
            DataError: one breaks the rules.
        """
        good = (labels >= 0) & (labels <= self.largest_label)
        if self.labels == "grade":
            good &= labels == np.floor(labels)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            found = "no label" if np.isnan(labels[row]) else f"label {labels[row]:g}"
            raise DataError(f"{at(row)}: {found}; expected {self.expected_label}")
        return np.abs(labels).astype(np.float32)  # -0 is 0


@dataclass(frozen=True)
class Block:
    """The rows of one piece of text.

    Attributes:
        features: ``[rows, width]``; the width of the rules, else the largest index here.
        labels: ``[rows]``.
        runs: ``(qid, line number of its first row, rows)`` for each run of rows with one qid.
        missing: how many values are NaN: written so, or beyond float32.
    """

    features: Floats
    labels: Floats
    runs: list[tuple[str, int, int]]
    missing: int


class Malformed(ValueError):
    """A row that breaks the rules: its arguments are what was found and what is expected."""


Refusal = Callable[[Ints, int], tuple[int, str] | None]


def parse_rows(
    text: bytes, first_line: int, rules: Rules, path: object, refusal: Refusal | None = None
) -> Block:
    """Parse whole lines of text one by one.

    Args:
        text: lines that end with a newline, the last one perhaps without.
        first_line: the number of the first line in the file, 1-based.
        rules: what the text may hold.
        path: the file's name, for messages.
        refusal: gets the largest index of each row and the width of all; returns the row that
            needs too much memory and the reason, or None.

    Raises:
        DataError: ``FILE:LINE: what stands there; expected ...`` for the first malformed row, or
            one that is refused.
    """
    labels: list[float] = []
    qids: list[bytes] = []
    lines: list[int] = []
    rows: list[dict[int, float]] = []
    for number, line in enumerate(text.split(b"\n"), first_line):
        try:
            row = parse_row(line, rules)
        except Malformed as error:
            found, expected = error.args
            raise DataError(f"{path}:{number}: {found}; expected {expected}") from None
        if row is not None:
            labels.append(row[0])
            qids.append(row[1])
            rows.append(row[2])
            lines.append(number)
    widths = np.fromiter(map(max, rows), np.int64, len(rows))
    width = rules.width or int(widths.max(initial=0))
    if refusal is not None and (refused := refusal(widths, width)) is not None:
        raise DataError(f"{path}:{lines[refused[0]]}: {refused[1]}")
    features = np.zeros((len(rows), width), np.float32)
    missing = 0
    for i, values in enumerate(rows):
        converted, unfit = to_float32(np.fromiter(values.values(), np.float64, len(values)))
        features[i, np.fromiter(values, np.int64, len(values)) - 1] = converted
        missing += unfit
    runs = []
    for qid, same in groupby(range(len(qids)), qids.__getitem__):
        first, *others = same
        runs.append((qid.decode(), lines[first], 1 + len(others)))
    return Block(features, np.array(labels, np.float32), runs, missing)


def parse_row(line: bytes, rules: Rules) -> tuple[float, bytes, dict[int, float]] | None:
    """Parse one line into label, qid and ``{index: value}``; None where it holds no data.

    Blanks are ASCII white space; the comment begins at the first ``#``.

    Raises:
        Malformed: the line breaks the rules.
    """
    if b"\0" in line:
        raise Malformed("a NUL byte, as in a binary file", "LETOR text (unpack an archive first)")
    line = line.partition(b"#")[0].rstrip()
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise Malformed(
            f"bytes that are not text, {line[error.start : error.start + 8]!r}",
            "LETOR text in UTF-8 (unpack an archive first)",
        ) from None
    tokens = line.split()
    if not tokens:
        return None
    if not rules.labelled and tokens[0].startswith(b"qid:"):
        tokens.insert(0, b"0")
    label = parse_label(tokens[0], rules) if rules.labelled else 0.0
    if len(tokens) == 1:
        raise Malformed(f"nothing after the label {show(tokens[0])}", "qid:ID")
    if not tokens[1].startswith(b"qid:") or tokens[1] == b"qid:":
        raise Malformed(f"{show(tokens[1])} after the label", "qid:ID")
    if len(tokens) == 2:  # an item without any feature looks just like a line cut in the middle
        raise Malformed(
            f"nothing after {show(tokens[1])}",
            "index:value (write 1:0 for an item whose features are all 0)",
        )
    values: dict[int, float] = {}
    for token in tokens[2:]:
        match = _PAIR.fullmatch(token)
        index = int(match[1]) if match else 0
        if match is None or not 1 <= index <= rules.largest_index:
            raise _explain_pair(token, rules)
        if index in values:
            raise Malformed(f"index {index} twice, again as {show(token)}", "each index once a row")
        values[index] = float(match[2])
    return label, tokens[1][4:], values


def parse_label(token: bytes, rules: Rules) -> float:
    """Parse a label.

    Raises:
        Malformed: not a number, negative, too large, or a fraction where grades are expected.
    """
    value = float(token) if _LABEL.fullmatch(token) else -1.0
    whole = rules.labels == "real" or value.is_integer()
    if not (0 <= value <= rules.largest_label and whole):
        raise Malformed(f"label {show(token)}", rules.expected_label)
    return abs(value)  # -0 is 0


def item_ids(text: bytes) -> list[str]:
    """The id of the item of each row, as its comment gives it; empty where there is none.

    That is X of ``docid = X``, as in LETOR 4.0, else the whole comment.

    >>> text = b"# made\\n2 qid:1 1:1 #docid = GX004 inc = 1\\n0 qid:1 1:2 # sku-7\\n0 qid:1 1:3"
    >>> item_ids(text)
    ['GX004', 'sku-7', '']
    """
    ids = []
    for line in text.split(b"\n"):
        row, _, comment = line.partition(b"#")
        if row.strip():
            written = comment.decode("utf-8", "backslashreplace").strip()
            named = _DOCID.search(written)
            ids.append(named[1] if named else written)
    return ids


def to_float32(values: Doubles) -> tuple[Floats, int]:
    """Round to the nearest float32; NaN for values that are missing or overflow, and how many."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
    unfit = ~np.isfinite(rounded)
    rounded[unfit] = np.nan
    return rounded, int(unfit.sum())


def show(token: bytes) -> str:
    """A token for a message: quoted, on one line, at most 40 characters."""
    text = token.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _explain_pair(token: bytes, rules: Rules) -> Malformed:
    """Say what is wrong with a token that is not a good ``index:value``."""
    index, colon, value = token.partition(b":")
    if not colon or not value:
        return Malformed(show(token), "index:value")
    digits = index.lstrip(b"0")
    if not digits.isdigit() or len(digits) > 7 or int(digits) > rules.largest_index:
        fixed = "" if rules.width is None else " (dataset.width)"
        return Malformed(
            f"index {show(index)} in {show(token)}",
            f"a whole number from 1 to {rules.largest_index}{fixed}",
        )
    return Malformed(
        f"value {show(value)} in {show(token)}", "a finite number (or nan, which is missing)"
    )
