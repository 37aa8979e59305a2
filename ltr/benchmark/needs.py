"""List what the benchmark needs on this machine and what is missing: ``what=needs``.

It needs nothing but Python itself, as it runs where the packages that it lists are missing, and
where no network is.
"""

import importlib.util
import os
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from ltr.benchmark import peers

_ROOT = Path(__file__).resolve().parents[2]
_UNUSED = ("hydra-joblib-launcher", "jinja2", "statsmodels")  # dependencies, not of the benchmark
_ALLRANK = "allrank==1.4.3"  # as the Makefile has it
_OF_PEERS = {"lightgbm": ["lightgbm>=4.5"], "allrank": [_ALLRANK, "attrs>=23"]}


def needs() -> int:
    """Print the list; 0 where the benchmark can run, else 1."""
    lines, missing = [], []
    for requirement in _dependencies():
        name, here = _name(requirement), version_here(_name(requirement))
        fits = here is not None and satisfies(here, requirement[len(name) :])
        lines.append(f"  {'has  ' if fits else 'lacks'} {requirement:<26}{here or 'not installed'}")
        missing += [] if fits else [requirement]
    print("The benchmark needs", *lines, sep="\n")
    print("Beside it are measured, and left out where they are missing")
    absent = [name for name in peers.NEEDS if not peers.installed(name)]
    for name, version in peers.versions().items():
        print(f"  {'lacks' if name in absent else 'has  '} {name:<26}{version}")
    print(*_here(), sep="\n")
    wanted = [part for name in absent for part in _OF_PEERS.get(name, [])]
    if missing or wanted:
        print(*_how(missing, wanted), sep="\n")
    return int(bool(missing))


def _dependencies() -> list[str]:
    """As ``pyproject.toml`` has them, or the installed package."""
    path = _ROOT / "pyproject.toml"
    if path.is_file():
        found = tomllib.loads(path.read_text())["project"]["dependencies"]
    else:
        found = [each for each in metadata.requires("ltr-torch") or () if ";" not in each]
    return [each for each in found if _name(each) not in _UNUSED]


def _name(requirement: str) -> str:
    found = re.match(r"[\w-]+", requirement)
    assert found is not None
    return found[0]


def version_here(name: str) -> str | None:
    """The installed version of a package, a folder of ``PYTHONPATH`` included."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def satisfies(version: str, bounds: str) -> bool:
    """Whether ``version`` is within ``bounds``, such as ``>=1.3,<1.5``; its numbers count alone.

    >>> satisfies("2.11.0+cu130", ">=2.6"), satisfies("1.5.0", ">=1.3.6,<1.5")
    (True, False)
    """
    own = _numbers(version)
    for bound in filter(None, bounds.split(",")):
        sign, limit = bound[:2].rstrip("0123456789"), _numbers(bound.lstrip("<>="))
        if (sign == ">=" and own < limit) or (sign == "<" and own >= limit):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]", version)[0]))
    return (*numbers, 0, 0)[:3]


def _here() -> list[str]:
    """The GPU, the folders and the code."""
    python = f"Python {sys.version.split()[0]}"
    gpu = "torch is not installed"
    if importlib.util.find_spec("torch"):
        import torch

        seen = torch.cuda.is_available()
        gpu = torch.cuda.get_device_name() if seen else "torch sees no GPU"
    code = commit = "unknown"
    if importlib.util.find_spec("omegaconf") and importlib.util.find_spec("torch"):
        from ltr.experiment.identity import code_digest
        from ltr.experiment.provenance import commit as commit_here

        code, commit = code_digest()[:12], commit_here() or "unknown: set LTR_COMMIT"
    return [
        f"Machine: {python}; GPU: {gpu}; {os.cpu_count()} cores",
        "Lists: none to bring, they are made from a seed in cache_dir (what=runs: about 2.5 GB)",
        f"Code: {code}; commit: {commit}",
    ]


def _how(missing: list[str], wanted: list[str]) -> list[str]:
    """The commands that bring along what is missing."""
    version = ".".join(map(str, sys.version_info[:2]))
    install = "  python -m pip install --target carried --constraint constraints.txt"
    return [
        f"To bring them along: on a machine with network, this processor and Python {version}, say",
        *([f"{install} {_quoted(missing)}"] if missing else []),
        *([f"{install} --no-deps {_quoted(wanted)}"] if wanted else []),
        "in a clone, copy the folder 'carried' here, and put before each command",
        "  PYTHONPATH=.:carried LTR_PEERS=carried",
    ]


def _quoted(requirements: list[str]) -> str:
    return " ".join(f"'{each}'" for each in requirements)
