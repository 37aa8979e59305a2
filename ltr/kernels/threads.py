"""Lists of a batch shared out among threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

WORTH_A_THREAD = 1 << 16  # a thread takes as long to start as some thousand pairs


def over_lists(
    kernel: Callable[[NDArray[np.int64]], None], costs: NDArray[np.int64], threads: int
) -> None:
    """Call ``kernel`` with the numbers of all lists, in parts on up to ``threads`` threads.

    Args:
        kernel: takes the numbers of its lists, ``[lists]``; holds no lock of Python.
        costs: what each list costs, such as its number of pairs, ``[batch]``.
        threads: >= 1. Threads end with the call, so that a process can be forked at any time.

    >>> seen = []
    >>> over_lists(lambda part: seen.append(part.tolist()), np.array([1, 3, 2]), threads=2)
    >>> seen  # too little work for a second thread; the longest first
    [[1, 2, 0]]
    """
    lists = np.argsort(-costs, kind="stable")
    parts = min(threads, len(lists), int(costs.sum()) // WORTH_A_THREAD)
    if parts < 2:
        kernel(lists)
        return
    with ThreadPoolExecutor(parts) as pool:
        for _ in pool.map(kernel, [lists[i::parts] for i in range(parts)]):
            pass
