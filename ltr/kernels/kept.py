"""Machine code kept on the disk; where that fails, a function is compiled as if none were kept."""

import logging
import pickle
from contextlib import suppress
from hashlib import sha256
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.serialize import dumps

log = logging.getLogger(__name__)


def keep(compiled: Any) -> Any:
    """Keep the machine code of a function of Numba for later processes, and return the function.

    Numba's own cache raises pickle's errors over a torn file, passes on the error of a full disk,
    and runs whatever a damaged file holds. Here damage is noticed by a digest, what is damaged is
    made again, and what cannot be written is not kept. Nor is it where no folder can be written.
    """
    with suppress(RuntimeError):  # no folder for it
        compiled._cache = _Kept(compiled.py_func)
    return compiled


class _Sealed(CompileResultCacheImpl):
    """Machine code with its SHA-256."""

    def reduce(self, result: Any) -> tuple[bytes, bytes]:
        content = dumps(super().reduce(result))
        return sha256(content).digest(), content

    def rebuild(self, target_context: Any, payload: tuple[bytes, bytes]) -> Any:
        digest, content = payload
        if sha256(content).digest() != digest:
            raise ValueError("the machine code is not what was written")
        return super().rebuild(target_context, pickle.loads(content))


class _Kept(FunctionCache):
    _impl_class = _Sealed

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context)
        except Exception as error:  # a torn pickle raises many kinds
            log.info("%s is compiled again, %s is damaged: %r", self, self.cache_path, error)
            with suppress(OSError):
                self.flush()
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        try:
            super().save_overload(signature, result)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            log.info("%s is not kept, %s cannot be written: %r", self, self.cache_path, error)
