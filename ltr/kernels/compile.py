"""Compile kernels and save them on disk; define vectorisable ``exp`` and ``log1p``."""

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import numba
import numpy as np

# The compiler may reorder sums, which lets it vectorise them; NaN and infinity keep their meaning.
# (A check for 0 at every division would prevent that too, hence error_model="numpy" below.)
_FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}

_CACHE_DIR_LOCK = Lock()
_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
_DIGEST = sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()
_CACHE_NAME = f"kernels-{_DIGEST[:16]}"


def cache_on_disk(compiled: Any) -> Any:
    """Save the machine code of a Numba function if Numba finds a writable cache folder.

    Later processes load it. The name of the folder contains a hash of the source of all kernels,
    because Numba itself notices only changes in the file of the function.
    """
    config: Any = numba.config
    # Without the lock, another thread would read the changed CACHE_DIR and restore it at its end.
    with _CACHE_DIR_LOCK:
        user_dir = config.CACHE_DIR
        parent = Path(user_dir or Path(__file__).parent / "__pycache__")
        config.CACHE_DIR = str(parent / _CACHE_NAME)
        try:
            with suppress(RuntimeError):  # no folder is writable
                compiled.enable_caching()
        finally:
            config.CACHE_DIR = user_dir
    return compiled


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile ``function`` at its first call, and save it if there is a writable cache folder."""
    compiled = numba.njit(nogil=True, fastmath=_FAST_MATH, error_model="numpy", **options)(function)
    return cache_on_disk(compiled)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a helper inline, as a part of the kernels that call it.

    The rounding of its results then does not depend on how LLVM splits functions.
    """
    return kernel(function, forceinline=True)


@inlined
def exp(x):
    """Return e to the power ``x``, for x from -708 to 700, to 13 significant digits.

    It is computed as 2^n times a polynomial. The C library's ``exp`` is exact to the last digit,
    but compilers do not vectorise calls to it.
    """
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10  # log(2) in two parts
    p = ((r * (1 / 479001600) + 1 / 39916800) * r + 1 / 3628800) * r + 1 / 362880
    p = (((p * r + 1 / 40320) * r + 1 / 5040) * r + 1 / 720) * r + 1 / 120
    p = ((((p * r + 1 / 24) * r + 1 / 6) * r + 1 / 2) * r + 1) * r + 1
    return p * np.int64((np.int64(np.int32(n)) + 1023) << 52).view(np.float64)


@inlined
def log1p(x):
    """Return log(1 + x), for x from 0 to 1, to 15 significant digits, however small x is.

    It is computed from the series of 2 artanh(t), where t = x / (2 + x) is at most 1/3.
    """
    t = x / (2 + x)
    q = t * t
    p = (((q * (1 / 33) + 1 / 31) * q + 1 / 29) * q + 1 / 27) * q + 1 / 25
    p = (((p * q + 1 / 23) * q + 1 / 21) * q + 1 / 19) * q + 1 / 17
    p = (((p * q + 1 / 15) * q + 1 / 13) * q + 1 / 11) * q + 1 / 9
    p = (((p * q + 1 / 7) * q + 1 / 5) * q + 1 / 3) * q + 1
    return 2 * t * p
