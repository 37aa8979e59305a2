"""Random LETOR text, well formed or spoilt, and what it means: the reader's grammar written again.

Written without the reader's code, so that a mistake of the reader is not repeated here.
"""

import re
from dataclasses import dataclass
from random import Random
from typing import Any

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_PAIR = re.compile(rf"([0-9]+):({_NUMBER}|[+-]?(?i:nan))")
_NOISE = [*b"0123456789.eE+-: \t\n\r\x0b\0#_\"'xnqid,\xff\xc3", None]
_TOKENS = (
    *("nan", "inf", "1:nan", "2:1e400", "1:0x1p3", "0:1", "qid:9", "qid:", "1:1:1", "1_0:2"),
    *("3:1_0", "-1:2", "99999999:1", "1:", ":1", "#", "\x0b", "1:1e-400", "é:1", "7", "1:+.5"),
    "01:4",
)


@dataclass(frozen=True)
class Row:
    """One item: label, query id and values by index."""

    label: float
    qid: str
    values: dict[int, float]


def valid(rng: Random) -> str:
    """Text that every rule allows."""
    width, dense = rng.randint(1, 7), rng.random() < 0.5
    ends = rng.choice(
        (["\n"], ["\r\n"], ["\n", " \n", "\r\n", " # docid = 1:2 qid:3\n", "\t\n", "#\n"])
    )
    numbers_only = rng.random() < 0.6  # query ids that scikit-learn reads too
    lines = []
    for query in range(rng.randint(1, 5)):
        qid = f"{query}" if numbers_only else f"{query}{rng.choice(('', '-x', ':y', 'é', '_1'))}"
        for _ in range(rng.randint(1, 5)):
            indices = range(1, width + 1)
            some = indices if dense else sorted(rng.sample(indices, rng.randint(1, width)))
            pairs = [f"{index}:{_number(rng)}" for index in some]
            label = f"{rng.randint(0, 4)}{rng.choice(('', '.0'))}"
            blank = rng.choice((" ", " ", "  ", "\t"))
            lines.append(blank.join([label, f"qid:{qid}", *pairs]) + rng.choice(ends))
        if rng.random() < 0.2:
            lines.append(rng.choice(ends))
    text = "".join(lines)
    return text.rstrip("\r\n") if rng.random() < 0.2 else text


def _number(rng: Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return repr(rng.gauss(0, 1))
    if kind == 1:
        return f"{rng.gauss(0, 10):.6f}"
    if kind == 2:
        return str(rng.randint(-(10**12), 10**12))
    if kind == 3:
        return f"{rng.uniform(-1, 1):.{rng.randint(0, 19)}e}"
    if kind == 4:
        return f"{rng.uniform(-1, 1) * 10.0 ** rng.randint(-45, 40)!r}"
    return rng.choice(("0", "-0", "1e400", "-1e39", "+3", "1e-50", ".5", "2.", "1E5", "0.000000"))


def spoilt(rng: Random) -> bytes:
    """Text with one to three bytes inserted, replaced or deleted, or cut off."""
    text = bytearray(valid(rng).encode())
    for _ in range(rng.randint(1, 3)):
        noise, place = rng.choice(_NOISE), rng.randrange(len(text) + 1)
        how = rng.choice(("insert", "replace", "delete", "cut"))
        end = {"insert": place, "cut": len(text)}.get(how, place + 1)
        text[place:end] = b"" if noise is None or how in ("delete", "cut") else bytes([noise])
    return bytes(text)


def reordered(rng: Random) -> bytes:
    """Text with tokens put in, left out, said twice or exchanged, or lines likewise."""
    lines: list[Any] = [line.split(" ") for line in valid(rng).split("\n")]
    for _ in range(rng.randint(1, 3)):
        tokens = rng.choice(lines) if lines and rng.random() < 0.5 else lines
        place = rng.randrange(len(tokens) + 1)
        kind = rng.randrange(4)
        if kind == 0 and tokens is not lines:
            tokens.insert(place, rng.choice(_TOKENS))
        elif kind == 1 and tokens:
            tokens.insert(place, rng.choice(tokens))
        elif kind == 2 and place < len(tokens):
            del tokens[place]
        else:
            rng.shuffle(tokens)
    return "\n".join(" ".join(line) for line in lines).encode()


def meaning(text: bytes) -> list[Row] | None:
    """The items of a text, None where it breaks a rule."""
    rows: list[Row] = []
    for line in text.split(b"\n"):
        if b"\0" in line:
            return None
        try:
            tokens = [token.decode() for token in line.partition(b"#")[0].split()]
        except UnicodeDecodeError:
            return None
        if not tokens:
            continue
        if len(tokens) < 3 or not re.fullmatch(_NUMBER, tokens[0], re.A):
            return None
        label, qid = float(tokens[0]), tokens[1].removeprefix("qid:")
        pairs = [_PAIR.fullmatch(token) for token in tokens[2:]]
        if (
            not (0 <= label <= 2**24 and label.is_integer())
            or not tokens[1].startswith("qid:")
            or not qid
        ):
            return None
        values = {int(pair[1]): float(pair[2]) for pair in pairs if pair is not None}
        if len(values) != len(pairs) or not all(1 <= index <= 1_000_000 for index in values):
            return None
        rows.append(Row(label, qid, values))
    seen = [row.qid for i, row in enumerate(rows) if i == 0 or rows[i - 1].qid != row.qid]
    return rows if rows and len(set(seen)) == len(seen) else None
