"""Name run folders and sweeps, and register the resolvers that configs use.

Importing this module must stay cheap (no torch), because every command does it.
"""

import functools
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from glob import escape
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from ltr.cli.configs import files_of
from ltr.cli.help import help_of
from ltr.cli.keys import (
    FORMER_CONVENTION,
    Kind,
    former_override,
    keys,
    resolved,
    upgrade_override,
)
from ltr.cli.process import torchrun_rank
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.knobs import check_choice

_LONGEST = 160  # letters of a name, without its hash
LATEST = "latest"  # link in output_dir to the folder of the last run


def register_resolvers() -> None:
    """Register the OmegaConf resolvers that the configs use; calling it again is harmless.

    The group that ``convention`` was in version 0.2 is registered too, for configs that choose it.
    """
    resolvers: dict[str, Callable[..., Any]] = {
        "run_dir": _run_dir, "hydra_subdir": _hydra_subdir, "sweep_dir": sweep_dir,
        "job_dir": job_dir, "help_of": _help_template, "key_or": _key_or,
        "own_metrics": metric_configs,
    }  # fmt: skip
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    for name in files_of("convention"):
        choose = {"defaults": [{"override /convention": name}]}
        ConfigStore.instance().store(name, choose, group=FORMER_CONVENTION, package="_global_")


def _help_template(command: str) -> str:
    """Return the help of a command as Hydra's template, in which ``$$`` is a ``$``."""
    return help_of(command).replace("$", "$$")


def run_folder(path: str) -> Path:
    """Return the run folder for ``path``: the folder, the link ``latest`` or a checkpoint in it."""
    checkpoint_or_folder = Path(path)
    folder = (
        checkpoint_or_folder.parent
        if checkpoint_or_folder.suffix == ".pt"
        else checkpoint_or_folder
    )
    linked = folder.name == LATEST and folder.is_symlink()
    return folder.parent / folder.readlink() if linked else folder


def _hydra_subdir(resume: str | None) -> str | None:
    """Return the subfolder for Hydra's copy of the config; None in torchrun's other processes."""
    return None if torchrun_rank() > 0 else ".hydra" if resume is None else ".hydra/resumed"


@functools.cache
def _run_dir(output_dir: str, resume: str | None, name: str) -> str:
    """Return the folder of a single run: the one to resume (``CheckpointError`` if it cannot be),
    or a new one with time, choices and four random digits, for runs that start in the same second.
    """
    if resume is None:
        if torchrun_rank() > 0:  # the first process chooses the name, see ``train_job``
            return output_dir
        name = name.replace("-None-", "-")  # a group without a choice
        timestamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        return str(Path(output_dir) / f"{timestamp}_{name}_{secrets.token_hex(2)}")
    folder = run_folder(resume)
    if not (folder / "last.pt").is_file():  # before Hydra makes the folder
        problem = f"{folder / 'last.pt'} is not there"
        raise CheckpointError(f"resume={resume}: {problem}; give the folder of a run")
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
    swept_keys = swept(overrides)
    if runtime_keys := swept_keys & {*keys(Kind.PLACE)}:
        raise ConfigError(
            f"{min(runtime_keys)}: runs that differ in it alone are one: start a sweep each"
        )
    if sweep is None:
        former_name = _sweep_name(output_dir, [*map(former_override, overrides)])
        has_former = Path(output_dir, former_name).is_dir()
        sweep = former_name if has_former else _sweep_name(output_dir, overrides)
    elif Path(sweep).name != sweep or sweep in (".", ".."):
        raise ConfigError(f"sweep={sweep}: give a name, it becomes a folder of output_dir")
    return str(Path(output_dir) / sweep)


def _sweep_name(output_dir: str, overrides: Sequence[str]) -> str:
    """Return a name for the sweep with ``overrides``."""
    swept_keys = swept(overrides)
    result_keys = result_overrides(overrides)
    name_parts = ["sweep", *(key for key in map(_key, result_keys) if key in swept_keys)]
    return _named(name_parts, result_keys, 60, f"{output_dir}/")


def job_dir(overrides: Sequence[str], sweep_dir: str = ".", swept: Sequence[str] = ()) -> str:
    """Name the folder of a job in ``sweep_dir`` by its overrides and a hash. If that is too long,
    the overrides of the keys ``swept`` are shortened last.

    >>> job_dir(["seed=1", "loss=rmse", "threads=2"]).rpartition("_")[0]
    'loss-rmse_seed-1'
    """
    former_overrides = [*map(former_override, overrides)]
    former_name = _job_name(former_overrides, sweep_dir, [*map(former_override, swept)])
    has_former = Path(sweep_dir, former_name).is_dir()
    return former_name if has_former else _job_name(overrides, sweep_dir, swept)


def _job_name(overrides: Sequence[str], sweep_dir: str, swept: Sequence[str]) -> str:
    """Return a name for the job with ``overrides``."""
    result_keys = result_overrides(overrides)
    shorten_last = [override for override in result_keys if _key(override) in swept]
    return _named(result_keys or ["run"], result_keys, 160, f"{sweep_dir}/", shorten_last)


def swept(overrides: Sequence[str]) -> set[str]:
    """Return the keys that are given several values.

    >>> swept(["loss=listnet,rmse", "seed=1"])
    {'loss'}
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return {override.key_or_group for override in parsed if override.is_sweep_override()}


def jobs_of(overrides: Sequence[str], loader: Any = None) -> set[frozenset[str]]:
    """Return the ``result_overrides`` of each job of a sweep.

    ``loader`` is Hydra's, for ``glob(*)``.

    >>> sorted(map(sorted, jobs_of(["loss=listnet,rmse", "seed=1", "threads=2"])))
    [['loss=listnet', 'seed=1'], ['loss=rmse', 'seed=1']]
    """
    grid = {}
    for override in OverridesParser.create(loader).parse_overrides(list(overrides)):
        is_swept = override.is_sweep_override()
        key = override.get_key_element()
        values = (
            override.sweep_string_iterator() if is_swept else [override.get_value_element_as_str()]
        )
        grid[key] = [f"{key}={value}" for value in values]
    return {frozenset(result_overrides(job)) for job in product(*grid.values())}


def result_overrides(overrides: Iterable[str]) -> list[str]:
    """Return the overrides that can change the results of a run, sorted."""
    return sorted(item for item in overrides if _key(item) not in keys(Kind.PLACE))


def recorded(overrides: Iterable[str]) -> list[str]:
    """Return the overrides that a recorded command has: those that can change the results of a run,
    and ``threads``, on which the last digits depend.

    >>> recorded(["epochs=1", "threads=2", "data_dir=lists"])
    ['epochs=1', 'threads=2']
    """
    return [item for item in overrides if _key(item) == "threads" or result_overrides([item])]


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def label_of(settings: Sequence[str], beside: str = "") -> str:
    """Turn settings into part of a file name, with a hash if it was shortened or changed;
    ``beside`` is the path before it.

    >>> label_of(["seeds=3", "epochs=1"])
    'seeds-3_epochs-1'
    """
    unshortened = "_".join(settings).replace("=", "-")
    label = _named(settings, settings, 80, beside)
    return unshortened if label.rpartition("_")[0] == unshortened else label


def _named(
    texts: Sequence[str],
    hashed_texts: Sequence[str],
    short_length: int,
    path_before: str,
    shorten_last: Sequence[str] = (),
) -> str:
    """Join ``words`` and a hash of ``hashed`` to a name. If it is too long, the longest word is
    shortened until it fits, those in ``last`` after all others.

    Earlier versions cut the name after ``cut`` letters: it stays so where such a file exists, with
    ``beside`` before its name.
    """
    digest = hashlib.sha256(chr(0).join(hashed_texts).encode()).hexdigest()[:8]
    label = _slug(texts)
    short_label = f"{label[:short_length].strip('_')}_{digest}"
    (folder, name_prefix) = os.path.split(path_before)
    if len(label) <= short_length or any(Path(folder).glob(f"{escape(name_prefix)}{short_label}*")):
        return short_label
    shortened = [text[:_LONGEST] for text in texts]
    while len(label := _slug(shortened)) > _LONGEST:
        index = max(
            range(len(texts)),
            key=lambda index: (
                shortened[index] != "" and texts[index] not in shorten_last,
                len(shortened[index]),
            ),
        )
        shortened[index] = shortened[index][:-1]
    return f"{label}_{digest}"


def _slug(texts: Sequence[str]) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", "_".join(texts).replace("=", "-")).strip("_")


def read_overrides(path: Path) -> list[str]:
    """Read the overrides in Hydra's ``overrides.yaml``, as this version writes them.

    Raises:
        DataError: the file holds no list of texts.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise DataError(f"{path}: not what a run writes; run it again") from error
    overrides = [] if content is None else content
    if not isinstance(overrides, list) or not all(isinstance(item, str) for item in overrides):
        raise DataError(f"{path}: not what a run writes, a list of texts; run it again")
    return [*map(upgrade_override, overrides)]


def write_overrides(path: Path, overrides: Sequence[str]) -> None:
    """Write ``overrides`` to a file that ``read_overrides`` can read."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(list(overrides)))


def metric_configs(*metrics: Any) -> dict[str, Any]:
    """Return name -> config of those of ``named`` that are files in the user's ``configs/metric``.

    ``named`` has metrics as in a config, such as ``hits@5``, or lists of them.

    Raises:
        ConfigError: such a file does not name a function.
    """
    files = files_of("metric")
    configs = {}
    names = [
        str(text)
        for name_or_list in metrics
        for text in ([name_or_list] if isinstance(name_or_list, str) else name_or_list or ())
    ]
    for name in {text.partition("@")[0]: None for text in names if files}:
        if name in files:
            node = OmegaConf.load(files[name])
            if not isinstance(node, DictConfig) or "_target_" not in node:
                raise ConfigError(f"{files[name]}: write _target_: module.function")
            configs[name] = OmegaConf.to_container(node, resolve=True)
    return configs


def _key_or(key: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return the value of ``key``; ``default`` if it is null or not there."""
    value = _root_.get(key)
    return default if value is None else value


def convention_keys(name: str) -> dict[str, Any]:
    """Return the keys that ``convention=name`` sets; those that its file lacks are as in paper.

    >>> convention_keys("trec")["gain"]
    'linear'
    """
    files = files_of("convention")
    check_choice("convention", name, [*files])
    register_resolvers()
    keys_of_paper = OmegaConf.load(files["paper"])
    # a node inside another config: the gain of the file must not refer to itself
    convention = OmegaConf.create(
        {"node": OmegaConf.merge(keys_of_paper, OmegaConf.load(files[name]))}
    )
    return resolved(convention.node)


def former_convention(choices: Mapping[str, str]) -> dict[str, dict[str, Any]] | None:
    """Return what the configs of version 0.2 held of the chosen convention, besides its keys.

    It is part of the identities of runs and searches, so that those of version 0.2 are found.
    """
    name = choices.get("convention")
    return {name: convention_keys(name)} if name in files_of("convention") else None
