"""The progress bars of training and scoring."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm.auto import tqdm

_quiet = ContextVar("quiet", default=False)


def bar(**how: Any) -> tqdm:
    """A bar on a terminal or in a notebook that is gone when it is done; arguments as of tqdm."""
    return tqdm(leave=False, disable=True if _quiet.get() else None, **how)


@contextmanager
def quiet(on: bool = True) -> Iterator[None]:
    """Within, where ``on``, no bar is shown."""
    before = _quiet.set(on)
    try:
        yield
    finally:
        _quiet.reset(before)
