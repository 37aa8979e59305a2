"""What Hydra composes is kept from one run of the tests to the next, as compiled code is.

A composition takes a tenth of a second, and the tests ask for hundreds. One that is kept belongs
to the very code, files and versions of libraries from which it was made; a mistake is never kept.
"""

import functools
import hashlib
import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
import omegaconf

from ltr.cli import compose
from ltr.cli.command_keys import default_values
from ltr.cli.configs import CONFIGS, composed_with
from ltr.cli.folders import register_resolvers
from tests.helpers.paths import ROOT

_compose = compose.compose_by_hydra


def keep() -> None:
    """From here on, in this process, take what is kept; an interpolation is parsed once."""
    compose.compose_by_hydra = _kept
    parse = functools.cache(omegaconf.base.parse)
    omegaconf.base.parse = omegaconf._utils.parse = parse


def _kept(config_name: str, overrides: Sequence[str]) -> tuple[omegaconf.DictConfig, dict]:
    if composed_with(config_name) is not None or any(os.sep in text for text in overrides):
        return _compose(config_name, overrides)  # of a folder that lives as long as a test
    register_resolvers()
    defaults = default_values(config_name) if config_name != "train" else None
    made_of = (_code(), _files(CONFIGS), config_name, repr(defaults), *overrides)
    path = ROOT / ".pytest_cache" / "composed" / hashlib.sha256(repr(made_of).encode()).hexdigest()
    if not path.is_file():
        found = _compose(config_name, overrides)
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}")  # the other workers read whole files
        own.write_bytes(pickle.dumps(found))
        own.replace(path)
    return pickle.loads(path.read_bytes())


@functools.cache
def _code() -> tuple[object, ...]:
    return sys.version, hydra.__version__, omegaconf.__version__, *_files(ROOT / "ltr" / "cli")


def _files(folder: Path) -> list[tuple[str, int, int]]:
    found = [
        (str(path), path.stat()) for path in folder.rglob("*") if path.suffix in (".py", ".yaml")
    ]
    return sorted((path, stat.st_mtime_ns, stat.st_size) for path, stat in found)
