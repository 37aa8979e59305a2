"""The tools this project is measured against: where they are, and what they need to run today."""

import importlib
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# What each needs to be imported; allRank's other needs have stand-ins below.
NEEDS = {"allrank": ("allrank", "attr"), "scikit-learn": ("sklearn",), "lightgbm": ("lightgbm",)}


def folder() -> Path:
    """Where ``make bench`` puts allRank: apart, as its package brings a folder ``tests`` along.

    ``LTR_PEERS`` names another place.
    """
    return Path(os.environ.get("LTR_PEERS") or Path(sys.prefix, "peers"))


def find() -> None:
    """Make what lies in ``folder()`` importable, after everything else."""
    place = str(folder())
    if place not in sys.path:
        sys.path.append(place)


def installed(peer: str) -> bool:
    """Whether a peer can be used here."""
    find()
    return all(importlib.util.find_spec(module) is not None for module in NEEDS[peer])


def need(module: str) -> Any:
    """Import a module of a peer that is installed."""
    find()
    if module == "allrank" or module.startswith("allrank."):
        _shim_allrank()
    return importlib.import_module(module)


def versions() -> dict[str, str]:
    """The version of each peer, or that it is not there."""
    find()
    found = {}
    for name in NEEDS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _shim_allrank() -> None:
    """Stand-ins for what allRank 1.4.3 imports and these measurements do not use.

    It names torch <= 1.8, torchvision, gcsfs 0.6.2 (Google's storage), tensorboardX and setuptools'
    pkg_resources; of torchvision it uses ``Compose`` alone. A package that is installed is used.
    """
    for name, parts in _STAND_INS.items():
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            continue
        module = types.ModuleType(name)
        module.__dict__.update(parts)
        sys.modules[name] = module
        for part, value in parts.items():
            if isinstance(value, types.ModuleType):
                sys.modules[f"{name}.{part}"] = value


class _Compose:
    """``torchvision.transforms.Compose``: one function after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


_transforms = types.ModuleType("torchvision.transforms")
_transforms.__dict__["Compose"] = _Compose
_STAND_INS: dict[str, dict[str, Any]] = {
    "torchvision": {"transforms": _transforms},
    "gcsfs": {"GCSFileSystem": None},
    "pkg_resources": {"Requirement": None, "resource_filename": None},
    "tensorboardX": {"SummaryWriter": None},
}
