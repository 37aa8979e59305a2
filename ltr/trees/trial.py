"""Try out a booster from elsewhere in a child process before this process reads it.

The libraries' C++ readers trust their files: a crafted one crashes the process, or never returns.
In the child that harms nobody. The child has the user's rights: it contains a crash, but not code
that a flaw of the library would let such a file run.

The child runs this file with a library, a number of features and seconds of CPU as arguments, and
reads the booster on stdin. It imports the library alone, which takes a fraction of a second.
"""

import hashlib
import importlib
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

CPU_SECONDS = 20  # for the first megabyte; a sound booster of that size takes a fraction of one
_WALL_SECONDS = 1800  # however busy the machine is
# Optional imports of the libraries; CatBoost needs its own.
_NOT_NEEDED = ("dask", "distributed", "matplotlib", "pandas", "pyarrow", "sklearn", "torch")
_SPARE = 2 << 30  # bytes of memory beside the library itself; CatBoost's allocator reserves half
_TIMES = 40  # and so many times the size of the booster
_TRIES, _SECONDS_OF_TRIES = 40, 0.3

_known: set[bytes] = set()  # digests of the boosters that this process grew or tried out


def know(content: bytes) -> None:
    """Mark the booster ``content`` as known to be sound."""
    _known.add(hashlib.sha256(content).digest())


def try_out(content: bytes, library: str, width: int) -> None:
    """Have a child process read ``content`` and score some items of ``width`` features with it.

    Raises:
        CheckpointError: it crashes, does not end, needs too much memory, or is refused.
    """
    if not content or hashlib.sha256(content).digest() in _known:
        return
    seconds = CPU_SECONDS + len(content) // 1_000_000
    # -P: else the folder of this file, with files named as the libraries, comes first in sys.path
    command = [sys.executable, "-P", __file__, library, str(width), str(seconds)]
    try:
        done = subprocess.run(
            command, input=content, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=_WALL_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _refusal(library, "do not end") from error
    if done.returncode < 0:
        raise _refusal(library, f"end it by signal {-done.returncode}")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"]
        raise _refusal(library, f"are refused: {said[-1][:200]}")
    know(content)


def _refusal(library: str, what: str) -> Exception:
    from ltr.errors import CheckpointError  # not at the top: the child may not find ltr

    return CheckpointError(
        f"the trees kept are not a model that {library} reads: in a process of their own they "
        f"{what}; use another checkpoint, or the version of {library} that wrote it"
    )


def child(library: str, width: int, seconds: int) -> None:
    """Use the booster in every way that ``ltr.trees`` does; a fault ends this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if library != "catboost":
        sys.modules.update(dict.fromkeys(_NOT_NEEDED))  # type: ignore[arg-type]
    module = importlib.import_module(library)
    content = sys.stdin.buffer.read()
    _limit(len(content), seconds)
    import numpy as np

    rng = np.random.default_rng(0)
    sizes = np.array([0, 1e-6, 1e-3, 0.1, 1, 1, 1, 10, 1e3, 1e6, 1e30])
    items = (rng.normal(size=(20, len(sizes), width)) * sizes[:, None]).astype(np.float32)
    started, tries = time.process_time(), 0
    # A write out of bounds may show late: more tries find more of them.
    while tries < _TRIES and (tries < 2 or time.process_time() - started < _SECONDS_OF_TRIES):
        globals()[f"_use_{library}"](module, content, items.reshape(-1, width))
        tries += 1


def _limit(size: int, seconds: int) -> None:
    """Limit the memory and CPU of this process from here on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (end, end))
    with suppress(OSError, ValueError):  # no /proc, or a system that limits no memory
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + _SPARE + _TIMES * size
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _use_lightgbm(module: Any, content: bytes, items: Any) -> None:
    booster = module.Booster(model_str=content.decode())
    if booster.num_feature() == items.shape[1]:  # else the parent says so
        booster.predict(items, raw_score=True, num_threads=1)
        booster.model_to_string()
        for kind in ("gain", "split"):
            booster.feature_importance(kind)


def _use_xgboost(module: Any, content: bytes, items: Any) -> None:
    booster = module.Booster({"verbosity": 0, "nthread": 1})
    booster.load_model(bytearray(content))
    booster.set_param({"device": "cpu"})
    if booster.num_features() == items.shape[1]:
        booster.inplace_predict(items, predict_type="margin")
        booster.get_dump()
        for kind in ("total_gain", "weight"):
            booster.get_score(importance_type=kind)


def _use_catboost(module: Any, content: bytes, items: Any) -> None:
    booster = module.CatBoost()
    booster.load_model(blob=content)
    if len(booster.feature_names_) == items.shape[1]:
        if categories := booster.get_cat_feature_indices():
            import pandas as pd

            items = pd.DataFrame(items)
            for column in categories:  # whole numbers, as CatBoost takes them
                items[column] = items[column].clip(-1, 1e6).astype(int)
        booster.predict(items, prediction_type="RawFormulaVal", thread_count=1)
        booster.get_tree_leaf_counts()
        booster.get_feature_importance(type="PredictionValuesChange", thread_count=1)


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
