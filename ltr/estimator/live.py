"""Show a run while it trains, and leave what is the program's own as it was."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch

from ltr.training.hooks import OnEpoch, quiet
from ltr.training.monitor import sentence


def shown(verbose: int, epochs: int) -> list[OnEpoch]:
    """The hook that a run calls after each epoch: in a notebook a table that grows, else lines.

    Args:
        verbose: 0: nothing is shown; 1: the table; 2: a line for each epoch outside a notebook.
        epochs: of the whole run.
    """
    display = _display() if verbose else None
    if display is not None:
        rows: list[Mapping[str, float]] = []
        handle = display(pd.DataFrame(), display_id=True)

        def update(epoch: int, row: Mapping[str, float]) -> None:
            rows.append(row)
            handle.update(pd.DataFrame(rows).set_index("epoch"))

        return [OnEpoch(update)]
    if verbose > 1:
        return [OnEpoch(lambda epoch, row: print(sentence(row, epochs)))]
    return []


def _display() -> Any:
    """IPython's ``display`` where this is a notebook, else None; IPython itself is not imported."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return ipython.display.display if ipython and hasattr(shell, "kernel") else None


@contextmanager
def as_it_was(verbose: int) -> Iterator[None]:
    """Within, torch may draw and threads be set; afterwards both are as before."""
    threads = torch.get_num_threads()
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(gpus), quiet(not verbose):
        try:
            yield
        finally:
            torch.set_num_threads(threads)
