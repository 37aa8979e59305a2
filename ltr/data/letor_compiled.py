"""The compiled path of the LETOR reader: a whole piece of text at once, or not at all."""

import numpy as np

from ltr.data.letor_kernel import LABEL, NARROW, SURE, parse
from ltr.data.letor_rows import Block, Malformed, Rules, parse_label, to_float32
from ltr.data.room import CHEAP_BYTES

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_MOST_DOUBTS = 256  # about one value in 100 million is one; more are not worth the code


class CompiledParser:
    """Parses pieces of one file, in any order and in several threads at once.

    Attributes:
        width: that of the rules, else the largest index so far.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.width = rules.width or 0

    def __call__(self, text: bytes) -> Block | None:
        """Parse whole lines of text.

        Gives what ``letor_rows.parse_rows`` gives from line 0 on, or None where that is not
        certain: the text is malformed, or written in a way too rare to be worth the code.
        Where the width is not given, the block may be as wide as one before it; one that is wider
        and takes more than ``CHEAP_BYTES`` is left to those who can say which row is to blame.
        """
        if b"\0" in text:
            return None
        if not text.endswith(b"\n"):
            text += b"\n"
        rules, lines = self._rules, text.count(b"\n")
        runs = np.empty((lines, 4), np.int64)
        doubts = np.empty((_MOST_DOUBTS, 4), np.int64)
        state, width = NARROW, self.width
        while state == NARROW:
            features = np.zeros((lines, width), np.float32)
            labels = np.zeros(lines, np.float32)
            state, row, run, doubt, missing, largest = parse(
                np.frombuffer(text, np.uint8),
                rules.labelled,
                rules.labels == "real",
                min(float(rules.largest_label), _FLOAT32_MAX),
                rules.largest_index,
                features,
                labels,
                np.zeros(width, np.int32),
                runs,
                doubts,
            )
            width = max(width, largest)
            if state == NARROW and 4 * lines * width > CHEAP_BYTES:
                return None
        if state != SURE:
            return None
        self.width = max(self.width, width)
        try:
            ids = [
                (text[begin:end].decode(), line, rows)
                for begin, end, line, rows in runs[:run].tolist()
            ]
            for begin, end, at, column in doubts[:doubt].tolist():
                token = text[begin:end]
                if column == LABEL:
                    labels[at] = parse_label(token, rules)
                else:
                    value, unfit = to_float32(np.array([float(token)]))
                    features[at, column] = value[0]
                    missing += unfit
        except (UnicodeDecodeError, Malformed):
            return None
        return Block(features[:row], labels[:row], ids, missing)
