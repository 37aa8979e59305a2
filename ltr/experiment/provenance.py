"""Where a run was computed: commit, versions, device and threads.

Device, threads, on a GPU ``deterministic``, and the versions of PyTorch, NumPy, Numba and SciPy
change the last digits of a run, not its identity.
"""

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
_COMPUTE = (
    "ltr-torch", "torch", "numpy", "numba", "scipy", "pandas", "scikit-learn", "hydra-core",
    "omegaconf",
)  # fmt: skip


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that compute the numbers."""
    found = {"python": platform.python_version()}
    for name in _COMPUTE:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def commit(package: Path = _PACKAGE) -> str | None:
    """The commit of the clone that holds ``package``, ``+changes`` where tracked files differ.

    Outside a clone of this project, also where the package is installed in a folder of another
    repository, it is what ``LTR_COMMIT`` says, else None.
    """

    def git(*args: str) -> str:
        return subprocess.check_output(
            ["git", *args], cwd=package, text=True, stderr=subprocess.DEVNULL
        ).strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() == package.parent:
            changes = git("status", "--porcelain", "--untracked-files=no")
            return git("rev-parse", "HEAD") + "+changes" * bool(changes)
    except (OSError, subprocess.CalledProcessError):
        pass
    return os.environ.get("LTR_COMMIT") or None


def short_commit(commit: str) -> str:
    """The first 12 digits of a ``commit()``, with ``+changes`` where that is its end."""
    return commit[:12] + ("+changes" if commit.endswith("+changes") else "")


def place_of(device: str, threads: int, *, deterministic: bool = False) -> str:
    """The device type with, on a CPU, the number of threads; a GPU may be ``deterministic``.

    >>> place_of("cpu", 1, deterministic=True), place_of("cuda", 8)
    ('cpu, 1 thread', 'cuda')
    """
    if device != "cpu":
        return f"{device}, deterministic" if deterministic else device
    return f"cpu, {threads} thread{'s' * (threads != 1)}"


def mixed(runs: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """A note where runs side by side were computed on several places; None where on one.

    Args:
        runs: the name of the row or system, and ``results.json``, of each run.
    """
    counts: dict[str, Counter[str]] = {}
    for name, results in runs:
        for place in results.get("computed_on", ()):
            counts.setdefault(place, Counter())[name] += 1
    if len(counts) < 2:
        return None
    where = "; ".join(
        f"{place}: {', '.join(f'{name} ({count})' for name, count in names.items())}"
        for place, names in counts.items()
    )
    return f"computed on several places, and results differ slightly by it: {where}"
