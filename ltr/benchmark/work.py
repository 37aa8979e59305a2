"""What the subjects of the benchmark have in common: a case, and the work of one side in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Answer = Mapping[str, float | str | list[float]]

OURS = "ours"


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        name: what the row is called, unique in its subject.
        settings: what ``make`` of the subject is given, JSON.
        sides: who takes part, ``ours`` first.
        tolerance: how far each part of a peer's answer may lie from ours, relative to the largest
            absolute value of ours; what is not named must be equal.
    """

    name: str
    settings: Mapping[str, Any]
    sides: tuple[str, ...]
    tolerance: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What a side does in a case, ready to run.

    Attributes:
        call: what is timed.
        answer: what it computes, compared with the other sides' before anything is timed; the
            parts that two sides both name are compared.
        amount: how much one call does, in ``unit``.
        unit: such as ``lists`` or ``MB``.
        note: what to say beside the row.
        bytes_needed: the bytes of the result itself, where memory is measured against it.
        flops: floating-point operations of the model in one call, where they are known.
        close: called when the case is done.
    """

    call: Callable[[], object]
    answer: Callable[[], Answer]
    amount: float = 1
    unit: str = "passes"
    note: str = ""
    bytes_needed: int | None = None
    flops: float | None = None
    close: Callable[[], object] = lambda: None


def disagreement(ours: Answer, theirs: Answer, tolerance: Mapping[str, float]) -> str | None:
    """What two answers differ in, in words; None if they agree.

    >>> disagreement({"value": 2.0}, {"value": 2.001}, {"value": 1e-2})
    >>> disagreement({"value": 2.0}, {"value": 2.1}, {"value": 1e-2})
    'value differs by 0.05 of the largest, 0.01 is allowed'
    >>> disagreement({"rows": 3.0}, {"lines": 3.0}, {})
    'the answers have nothing in common to compare'
    """
    common = [key for key in ours if key in theirs]
    if not common:
        return "the answers have nothing in common to compare"
    for key in common:
        a, b = ours[key], theirs[key]
        if isinstance(a, str) or isinstance(b, str):
            if a != b:
                return f"{key}: ours {a}, theirs {b}"
            continue
        first, second = _as_list(a), _as_list(b)
        if len(first) != len(second):
            return f"{key}: ours has {len(first)} values, theirs {len(second)}"
        largest = max(map(abs, first), default=0.0)
        gap = max((abs(x - y) for x, y in zip(first, second, strict=True)), default=0.0)
        allowed = tolerance.get(key, 0.0)
        if not gap <= allowed * largest:  # not: NaN is a difference
            share = gap / largest if largest else gap
            return f"{key} differs by {share:.2g} of the largest, {allowed:g} is allowed"
    return None


def _as_list(value: float | str | list[float]) -> list[float]:
    return value if isinstance(value, list) else [float(value)]
