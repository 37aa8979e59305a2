"""Folders of sweeps, named by what is asked for: the same command goes on in the same folder.

Importing this must stay cheap (no torch): every command goes through it.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from ltr.console.keys import Kind, keys
from ltr.errors import ConfigError, DataError


def sweep_dir(output_dir: str, sweep: str | None, overrides: Sequence[str]) -> str:
    """The folder of a sweep: its name, or the keys it varies and a hash of what it asks for.

    Raises:
        ConfigError: ``sweep`` is not a name.

    >>> sweep_dir("outputs", "mine", ["seed=1,2"])
    'outputs/mine'
    >>> first = sweep_dir("outputs", None, ["loss=listnet,rmse", "seed=1"])
    >>> first == sweep_dir("outputs", None, ["seed=1", "loss=listnet,rmse", "threads=1"])
    True
    >>> first.rpartition("_")[0]
    'outputs/sweep_loss'
    """
    if sweep is not None:
        if Path(sweep).name != sweep or sweep in (".", ".."):
            raise ConfigError(f"sweep={sweep}: give a name, it becomes a folder of output_dir")
        return str(Path(output_dir) / sweep)
    wanted = asked(overrides)
    pairs = (item.partition("=")[::2] for item in wanted)
    varied = [key for key, value in pairs if "," in value and not value.startswith("[")]
    words = _slug("_".join(["sweep", *varied]), 60)
    return str(Path(output_dir) / f"{words}_{_hash(wanted)}")


def job_dir(overrides_shown: str, overrides: Sequence[str]) -> str:
    """The folder of a sweep's job: what it overrides, short enough for a file name, and a hash.

    Args:
        overrides_shown: Hydra's text of the overrides, without those that say nothing.
        overrides: all of them.

    >>> job_dir("loss=rmse,seed=1", ["loss=rmse", "seed=1"]).rpartition("_")[0]
    'loss-rmse_seed-1'
    >>> job_dir("", ["epochs=1"]) == job_dir("", ["epochs=2"])
    False
    """
    shown = _slug(overrides_shown.replace("=", "-"), 160)
    return f"{shown or 'run'}_{_hash(asked(overrides))}"


def unshown_keys() -> list[str]:
    """Keys that the name of a job's folder leaves out."""
    return [*keys(Kind.PLACE), "epochs", "dataset.folder"]


def asked(overrides: Iterable[str]) -> list[str]:
    """What decides the results of a run, in an order that typing does not change."""
    places = keys(Kind.PLACE)
    return sorted(item for item in overrides if item.lstrip("+~").partition("=")[0] not in places)


def typed(overrides: Path) -> list[str]:
    """The overrides in an ``overrides.yaml`` of Hydra, as text: what is in them means nothing here.

    Raises:
        DataError: it is not such a file.
    """
    try:
        found = yaml.safe_load(overrides.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{overrides}: not what train.py writes; run it again") from error
    return [item for item in found or [] if isinstance(item, str)]


def label_of(words: Sequence[str]) -> str:
    """Settings as part of a file's name; a hash where a character had to go.

    >>> label_of(["seeds=3", "epochs=1"])
    'seeds-3_epochs-1'
    >>> label_of(["rows=A B"]).rpartition("_")[0]
    'rows-A_B'
    """
    plain = "_".join(word.replace("=", "-") for word in words)
    slug = _slug(plain, 80)
    return slug if slug == plain else f"{slug}_{_hash(words)}"


def _slug(text: str, longest: int) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text)[:longest].strip("_")


def _hash(items: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(items).encode()).hexdigest()[:8]
