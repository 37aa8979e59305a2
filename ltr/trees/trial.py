"""A booster from elsewhere is tried out in a process of its own before this one reads it.

The libraries read their files in C++ and believe them: a crafted one crashes the process, or never
returns. In the child it does that to nobody. The child runs with the user's rights: it keeps a
crash away, not code that a flaw of the library would let such a file run.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from ltr.errors import CheckpointError

CPU_SECONDS = 20  # for the first megabyte; a sound booster of that size takes a fraction of one
_WALL_SECONDS = 1800  # however busy the machine is
_CHILD = Path(__file__).with_name("child.py")

_known: set[bytes] = set()  # digests of what this process grew, or tried out before


def know(content: bytes) -> None:
    """``content`` is a booster that this process grew itself."""
    _known.add(hashlib.sha256(content).digest())


def try_out(content: bytes, library: str, width: int) -> None:
    """Have a child process read ``content`` and score some items of ``width`` features with it.

    Raises:
        CheckpointError: it crashes, does not end, takes too much memory, or is refused.
    """
    if not content or hashlib.sha256(content).digest() in _known:
        return
    seconds = CPU_SECONDS + len(content) // 1_000_000
    # -P: or the folder of the child, in which files are named as the libraries, comes first
    command = [sys.executable, "-P", str(_CHILD), library, str(width), str(seconds)]
    try:
        done = subprocess.run(
            command,
            input=content,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            timeout=_WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _refusal(library, "do not end") from error
    if done.returncode < 0:
        raise _refusal(library, f"end it by signal {-done.returncode}")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"]
        raise _refusal(library, f"are refused: {said[-1][:200]}")
    know(content)


def _refusal(library: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"the trees kept are not a model that {library} reads: in a process of their own they "
        f"{what}; use another checkpoint, or the version of {library} that wrote it"
    )
