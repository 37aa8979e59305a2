"""Name run folders and sweeps, and register the resolvers that configs use.

Importing this module must stay cheap (no torch), because every command does it.
"""

import functools
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from ltr.console.configs import files_of, help_of
from ltr.console.keys import Kind, keys
from ltr.console.process import rank
from ltr.errors import CheckpointError, ConfigError, DataError, as_started

LATEST = "latest"  # link in output_dir to the folder of the last run


def register_resolvers() -> None:
    """Register the OmegaConf resolvers that the configs use; calling it again is harmless."""
    resolvers: dict[str, Callable[..., Any]] = {
        "run_dir": _run_dir, "hydra_subdir": _hydra_subdir, "sweep_dir": sweep_dir,
        "job_dir": job_dir, "help_of": help_of, "preset": _preset, "own_metrics": metric_configs,
        "either": lambda *values: next((value for value in values if value is not None), None),
    }  # fmt: skip
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def run_folder(path: str) -> Path:
    """Return the run folder for ``path``: the folder, the link ``latest`` or a checkpoint in it."""
    given = Path(path)
    folder = given.parent if given.suffix == ".pt" else given
    linked = folder.name == LATEST and folder.is_symlink()
    return folder.parent / folder.readlink() if linked else folder


def _hydra_subdir(resume: str | None) -> str | None:
    """Return the subfolder for Hydra's copy of the config; None in torchrun's other processes."""
    return None if rank() > 0 else ".hydra" if resume is None else ".hydra/resumed"


@functools.cache
def _run_dir(output_dir: str, resume: str | None, name: str) -> str:
    """Return the folder of a single run: the one to resume (``CheckpointError`` if it cannot be),
    or a new one with time, choices and four random digits, for runs that start in the same second.
    """
    if resume is None:
        if rank() > 0:  # the first process chooses the name, see ``train_job``
            return output_dir
        name = name.replace("-None-", "-")  # a group without a choice
        now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        return str(Path(output_dir) / f"{now}_{name}_{secrets.token_hex(2)}")
    folder = run_folder(resume)
    if not (folder / "last.pt").is_file():  # before Hydra makes the folder
        wrong = f"{folder / 'last.pt'} is not there"
        raise CheckpointError(f"resume={resume}: {wrong}; give the folder of a run")
    if links := [path for path in folder.rglob("*") if path.is_symlink()]:
        raise CheckpointError(f"resume={resume}: {links[0]} is a link, no run makes one: remove it")
    return str(folder)


def sweep_dir(output_dir: str, sweep: str | None, overrides: Sequence[str]) -> str:
    """Return the folder of a sweep: ``sweep`` in ``output_dir``, or else a new name.

    That name has the keys that vary and a hash of all overrides that decide the results.

    Raises:
        ConfigError: ``sweep`` is a path, or a key that varies does not affect the results.

    >>> sweep_dir("outputs", None, ["loss=listnet,rmse", "seed=1"]).rpartition("_")[0]
    'outputs/sweep_loss'
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    several = {one.key_or_group for one in parsed if one.is_sweep_override()}
    if places := several & {*keys(Kind.PLACE)}:
        raise ConfigError(
            f"{min(places)}: runs that differ in it alone are one: start a sweep each"
        )
    if sweep is None:
        wanted = asked(overrides)
        sweep = _named(["sweep", *(key for key in map(_key, wanted) if key in several)], wanted, 60)
    elif Path(sweep).name != sweep or sweep in (".", ".."):
        raise ConfigError(f"sweep={sweep}: give a name, it becomes a folder of output_dir")
    return str(Path(output_dir) / sweep)


def job_dir(overrides: Sequence[str]) -> str:
    """Name the folder of a job in a sweep by its overrides, shortened if necessary, and a hash.

    >>> job_dir(["seed=1", "loss=rmse", "threads=2"]).rpartition("_")[0]
    'loss-rmse_seed-1'
    """
    return _named(asked(overrides) or ["run"], asked(overrides), 160)


def asked(overrides: Iterable[str]) -> list[str]:
    """Return the overrides that can change the results of a run, sorted."""
    return sorted(item for item in overrides if _key(item) not in keys(Kind.PLACE))


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def label_of(words: Sequence[str]) -> str:
    """Turn settings into part of a file name, with a hash if it was shortened or changed.

    >>> label_of(["seeds=3", "epochs=1"])
    'seeds-3_epochs-1'
    """
    plain, named = "_".join(words).replace("=", "-"), _named(words, words, 80)
    return plain if named.rpartition("_")[0] == plain else named


def _named(words: Sequence[str], hashed: Sequence[str], longest: int) -> str:
    slug = re.sub(r"[^A-Za-z0-9.+-]+", "_", "_".join(words).replace("=", "-"))[:longest].strip("_")
    return f"{slug}_{hashlib.sha256(chr(0).join(hashed).encode()).hexdigest()[:8]}"


def read_overrides(path: Path) -> list[str]:
    """Read the overrides in Hydra's ``overrides.yaml``; raise ``DataError`` if it is unreadable."""
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: not what a run writes; run it again") from error
    return [item for item in found or [] if isinstance(item, str)]


def write_overrides(path: Path, overrides: Sequence[str]) -> None:
    """Write ``overrides`` to a file that ``read_overrides`` can read."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(list(overrides)))


def metric_configs(*named: Any) -> dict[str, Any]:
    """Return name -> config of those of ``named`` that are files in the user's ``configs/metric``.

    ``named`` has metrics as in a config, such as ``hits@5``, or lists of them.

    Raises:
        ConfigError: such a file does not name a function.
    """
    files, found = files_of("metric"), {}
    texts = [str(text) for one in named for text in ([one] if isinstance(one, str) else one or ())]
    for name in {text.partition("@")[0]: None for text in texts if files}:
        if name in files:
            node = OmegaConf.load(files[name])
            if not isinstance(node, DictConfig) or "_target_" not in node:
                raise ConfigError(f"{files[name]}: write _target_: module.function")
            found[name] = OmegaConf.to_container(node, resolve=True)
    return found


def _preset(key: str, *, _root_: DictConfig) -> Any:
    """Return ``key`` of the convention in ``metrics_as``; ``ConfigError`` if it is not just one."""
    chosen = _root_.get("metrics_as") or {}
    if len(chosen) != 1:
        raise ConfigError(
            f"metrics_as=[{','.join(chosen)}]: training takes one convention; "
            f"{as_started('evaluate')} compares several"
        )
    (convention,) = chosen.values()
    return convention[key]
