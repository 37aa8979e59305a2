"""Where a run was computed: commit, versions, device and threads.

Device, threads, on a GPU ``deterministic``, and the versions of PyTorch, NumPy, Numba and SciPy
change the last digits of a run, not its identity.
"""

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.experiment.run_folder import RunFolder

_PACKAGE = Path(__file__).resolve().parents[1]


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that compute the numbers."""
    names = (
        "ltr-torch", "torch", "numpy", "numba", "scipy", "pandas", "scikit-learn", "hydra-core",
        "omegaconf",
    )  # fmt: skip
    found = {"python": platform.python_version()}
    for name in names:
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
    said = os.environ.get("LTR_COMMIT") or None

    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=package, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != package.parent:
            return said
        head = git("rev-parse", "HEAD")
        return head + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return said


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


def places_of(results: Mapping[str, Any]) -> tuple[str, ...]:
    """The places where the run of a ``results.json`` was computed, such as ``cpu, 2 threads``."""
    return tuple(results.get("computed_on", ()))


def asked_place(cfg: DictConfig, threads: int | None = None) -> str:
    """The place where ``cfg`` would be computed now.

    Args:
        cfg: of a run.
        threads: where ``cfg`` has none; None: as PyTorch chooses.
    """
    import torch  # not where finished runs are compared

    from ltr.training.device import pick_device

    device, threads = pick_device(cfg.device).type, cfg.threads or threads
    steady = cfg.deterministic is True
    return place_of(device, threads or torch.get_num_threads(), deterministic=steady)


def elsewhere(folders: Sequence[Path], asked: str) -> str | None:
    """A line about the finished runs in ``folders`` that were computed on other places too."""
    of_run = {folder: places_of(RunFolder(folder).results) for folder in folders}
    others = {folder: places for folder, places in of_run.items() if set(places) - {asked}}
    if not others:
        return None
    where = " and ".join(dict.fromkeys(place for places in others.values() for place in places))
    return (
        f"kept, though computed on {where} and not on {asked}, by which results differ slightly: "
        f"{len(others)} finished, such as {next(iter(others))}; to run one again remove its folder"
    )


def mixed(runs: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """A note where runs side by side were computed on several places; None where on one.

    Args:
        runs: the name of the row or system, and ``results.json``, of each run.
    """
    counts: dict[str, Counter[str]] = {}
    for name, results in runs:
        for place in places_of(results):
            counts.setdefault(place, Counter())[name] += 1
    if len(counts) < 2:
        return None
    listed = {
        place: ", ".join(f"{name} ({count})" for name, count in names.items())
        for place, names in counts.items()
    }
    where = "; ".join(f"{place}: {names}" for place, names in listed.items())
    return f"computed on several places, and results differ slightly by it: {where}"
