"""Names of run folders and of sweeps, and the resolvers by which configs use them.

Importing this must stay cheap (no torch): every command does so.
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

LATEST = "latest"  # in output_dir, a link to the folder of the last run


def register_resolvers() -> None:
    """Register the resolvers that the configs use; calling it again changes nothing."""
    resolvers: dict[str, Callable[..., Any]] = {
        "run_dir": _run_dir, "hydra_subdir": _hydra_subdir, "sweep_dir": sweep_dir,
        "job_dir": job_dir, "help_of": help_of, "preset": _preset, "own_metrics": metric_configs,
    }  # fmt: skip
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def run_folder(path: str) -> Path:
    """The run folder of ``path``, which is that folder or a checkpoint in it."""
    given = Path(path)
    folder = given.parent if given.suffix == ".pt" else given
    linked = folder.name == LATEST and folder.is_symlink()
    return folder.parent / folder.readlink() if linked else folder


def _hydra_subdir(resume: str | None) -> str | None:
    """Where Hydra keeps a run's config in its folder; of torchrun's processes one does."""
    return None if rank() > 0 else ".hydra" if resume is None else ".hydra/resumed"


@functools.cache
def _run_dir(output_dir: str, resume: str | None, name: str) -> str:
    """The folder of a single run: that of ``resume``, else named by time and choices.

    Four random digits tell runs apart that start in the same second.
    """
    if resume is None:
        if rank() > 0:  # the name has the time: ``train_job`` takes that of the first process
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
    """The folder of a sweep: its name, or the keys that vary and a hash of all that counts.

    ``ConfigError`` where ``sweep`` is not a name, or a key that varies names no folders.

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
    """The folder of a sweep's job: its overrides, short enough for a file name, and a hash.

    >>> job_dir(["seed=1", "loss=rmse", "threads=2"]).rpartition("_")[0]
    'loss-rmse_seed-1'
    """
    return _named(asked(overrides) or ["run"], asked(overrides), 160)


def asked(overrides: Iterable[str]) -> list[str]:
    """The overrides that decide the results of a run, sorted."""
    return sorted(item for item in overrides if _key(item) not in keys(Kind.PLACE))


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def label_of(words: Sequence[str]) -> str:
    """Settings as part of a file's name; a hash is added where a character was replaced.

    >>> label_of(["seeds=3", "epochs=1"])
    'seeds-3_epochs-1'
    """
    plain, named = "_".join(words).replace("=", "-"), _named(words, words, 80)
    return plain if named.rpartition("_")[0] == plain else named


def _named(words: Sequence[str], hashed: Sequence[str], longest: int) -> str:
    slug = re.sub(r"[^A-Za-z0-9.+-]+", "_", "_".join(words).replace("=", "-"))[:longest].strip("_")
    return f"{slug}_{hashlib.sha256(chr(0).join(hashed).encode()).hexdigest()[:8]}"


def read_overrides(path: Path) -> list[str]:
    """The texts in an ``overrides.yaml`` of Hydra, uninterpreted; ``DataError`` if it is none."""
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: not what a run writes; run it again") from error
    return [item for item in found or [] if isinstance(item, str)]


def write_overrides(path: Path, overrides: Sequence[str]) -> None:
    """Write what ``read_overrides`` reads."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(list(overrides)))


def metric_configs(*named: Any) -> dict[str, Any]:
    """The configs of those metrics that are files of the user's own ``configs/metric``.

    ``named`` are metrics as configs write them, ``hits@5``, and lists of them; ``ConfigError``
    where such a file names no function.
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
    """The value of ``key`` in the convention that ``metrics_as`` names (its node has the name)."""
    chosen = _root_.get("metrics_as") or {}
    if len(chosen) != 1:
        raise ConfigError(
            f"metrics_as=[{','.join(chosen)}]: training takes one convention; "
            f"{as_started('evaluate')} compares several"
        )
    (convention,) = chosen.values()
    return convention[key]
