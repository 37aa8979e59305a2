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

_LONGEST = 160  # the maximum number of letters in a name, without its hash
LATEST = "latest"  # a link in output_dir to the folder of the last run


def register_resolvers() -> None:
    """Register the OmegaConf resolvers that the configs use; you may call this several times.

    Configs of version 0.2 choose a convention from the group ``metrics_as``. This group is also
    registered.
    """
    resolvers: dict[str, Callable[..., Any]] = {
        "run_dir": _run_dir, "hydra_subdir": _hydra_subdir, "sweep_dir": sweep_dir,
        "job_dir": job_dir, "key_or": _key_or,
        "own_metrics": metric_configs,
    }  # fmt: skip
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    store = ConfigStore.instance()
    store.repo.pop(FORMER_CONVENTION, None)  # the working directory may have changed
    for name in files_of("convention"):
        choose = {"defaults": [{"override /convention": name}]}
        store.store(name, choose, group=FORMER_CONVENTION, package="_global_")


def run_folder(path: str) -> Path:
    """Return the run folder that ``path`` names: a folder, the link ``latest``, or a checkpoint."""
    checkpoint_or_folder = Path(path)
    folder = (
        checkpoint_or_folder.parent
        if checkpoint_or_folder.suffix == ".pt"
        else checkpoint_or_folder
    )
    linked = folder.name == LATEST and folder.is_symlink()
    return folder.parent / folder.readlink() if linked else folder


def _hydra_subdir(resume: str | None) -> str | None:
    """Return the subfolder for Hydra's copy of the config, which only one process must write.

    It is None in all processes of torchrun except the first.
    """
    return None if torchrun_rank() > 0 else ".hydra" if resume is None else ".hydra/resumed"


@functools.cache
def _run_dir(output_dir: str, resume: str | None, name: str) -> str:
    """Return the folder of a single run: the folder of the run to resume, or a new one.

    The name of a new folder consists of the time, ``name`` (the choices), and four random digits.
    The digits distinguish runs that start in the same second.

    Raises:
        CheckpointError: the run cannot be resumed.
    """
    if resume is None:
        if torchrun_rank() > 0:  # the first process chooses the name, see ``train_job``
            return output_dir
        name = name.replace("-None-", "-")  # a group without a choice
        timestamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        return str(Path(output_dir) / f"{timestamp}_{name}_{secrets.token_hex(2)}")
    folder = run_folder(resume)
    if not (folder / "last.pt").is_file():  # before Hydra makes the folder
        problem = f"{folder / 'last.pt'} does not exist"
        raise CheckpointError(
            f"resume={resume}: {problem}; set resume to the folder of a stopped run"
        )
    if links := [path for path in folder.rglob("*") if path.is_symlink()]:
        raise CheckpointError(
            f"resume={resume}: {links[0]} is a symbolic link, which no run creates: remove the link"
        )
    return str(folder)


def sweep_dir(output_dir: str, sweep: str | None, overrides: Sequence[str]) -> str:
    """Return the folder of a sweep in ``output_dir``; if ``sweep`` is None, a name is generated.

    The generated name contains the keys that vary and a hash of all overrides that affect results.

    Raises:
        ConfigError: ``sweep`` is a path, or a key that varies does not affect the results.

    >>> sweep_dir("outputs", None, ["loss=listnet,rmse", "seed=1"]).rpartition("_")[0]
    'outputs/sweep_loss'
    """
    swept_keys = swept(overrides)
    if runtime_keys := swept_keys & {*keys(Kind.PLACE)}:
        raise ConfigError(
            f"{min(runtime_keys)}: this key cannot vary within a sweep, because it does not "
            "change results: start one sweep for each value"
        )
    if sweep is None:
        former_name = _sweep_name(output_dir, [*map(former_override, overrides)])
        has_former = Path(output_dir, former_name).is_dir()
        sweep = former_name if has_former else _sweep_name(output_dir, overrides)
    elif Path(sweep).name != sweep or sweep in (".", ".."):
        raise ConfigError(f"sweep={sweep}: expected the name of a folder in output_dir, not a path")
    return str(Path(output_dir) / sweep)


def _sweep_name(output_dir: str, overrides: Sequence[str]) -> str:
    """Return a name for the sweep with ``overrides``."""
    swept_keys = swept(overrides)
    result_keys = result_overrides(overrides)
    name_parts = ["sweep", *(key for key in map(_key, result_keys) if key in swept_keys)]
    return _named(name_parts, result_keys, 60, f"{output_dir}/")


def job_dir(overrides: Sequence[str], sweep_dir: str = ".", swept: Sequence[str] = ()) -> str:
    """Return a name, made of the overrides and a hash, for the folder of a job in ``sweep_dir``.

    If the name is too long, it is shortened; the overrides of the keys ``swept`` are shortened
    last.

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
    """Return the keys that have several values.

    >>> swept(["loss=listnet,rmse", "seed=1"])
    {'loss'}
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return {override.key_or_group for override in parsed if override.is_sweep_override()}


def jobs_of(overrides: Sequence[str], loader: Any = None) -> set[frozenset[str]]:
    """Return the ``result_overrides`` of each job of a sweep.

    ``loader`` is Hydra's config loader, which ``glob(*)`` needs.

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
    """Return the overrides that a recorded command must repeat.

    These are the overrides that can change the results of a run, and ``threads``, on which the last
    digits of the results depend.

    >>> recorded(["epochs=1", "threads=2", "data_dir=lists"])
    ['epochs=1', 'threads=2']
    """
    return [item for item in overrides if _key(item) == "threads" or result_overrides([item])]


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def label_of(settings: Sequence[str], beside: str = "") -> str:
    """Turn settings into a part of a file name; if they are shortened or changed, append a hash.

    ``beside`` is the path to which this part is appended.

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
    """Return a name made of ``texts`` and a hash of ``hashed_texts``.

    If the name is too long, the longest text is shortened until the name fits; the texts in
    ``shorten_last`` are shortened after all others. Earlier versions cut the name after
    ``short_length`` letters. If a file with such a name exists at ``path_before``, that name is
    returned.
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
    """Return the overrides in Hydra's ``overrides.yaml``, in the form that this version writes.

    Raises:
        DataError: the file cannot be read, or does not hold a list of strings.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise DataError(
            f"{path}: expected the overrides of a run, got a damaged file: repeat the run"
        ) from error
    overrides = [] if content is None else content
    if not isinstance(overrides, list) or not all(isinstance(item, str) for item in overrides):
        raise DataError(
            f"{path}: expected a list of strings (the overrides of a run), got another type: "
            "repeat the run"
        )
    return [*map(upgrade_override, overrides)]


def write_overrides(path: Path, overrides: Sequence[str]) -> None:
    """Write ``overrides`` to a file that ``read_overrides`` can read."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(list(overrides)))


def metric_configs(*metrics: Any) -> dict[str, Any]:
    """Return the configs of the metrics that have a file in the user's ``configs/metric``, by name.

    ``metrics`` are names as written in a config, such as ``hits@5``, or lists of such names.

    Raises:
        ConfigError: a file does not name a function.
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
                raise ConfigError(
                    f"{files[name]}: expected the name of a function, got none: add the line "
                    "_target_: module.function"
                )
            configs[name] = OmegaConf.to_container(node, resolve=True)
    return configs


def _key_or(key: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return the value of ``key``, or ``default`` if it is null or missing."""
    value = _root_.get(key)
    return default if value is None else value


def convention_keys(name: str) -> dict[str, Any]:
    """Return the keys that ``convention=name`` sets, with their values.

    A key that is missing in the file of the convention has the value of ``convention=paper``.

    >>> convention_keys("trec")["gain"]
    'linear'
    """
    files = files_of("convention")
    check_choice("convention", name, [*files])
    register_resolvers()
    keys_of_paper = OmegaConf.load(files["paper"])
    # The node is inside another config. Otherwise, the gain in the file would refer to itself.
    convention = OmegaConf.create(
        {"node": OmegaConf.merge(keys_of_paper, OmegaConf.load(files[name]))}
    )
    return resolved(convention.node)


def former_convention(choices: Mapping[str, str]) -> dict[str, dict[str, Any]] | None:
    """Return the extra node that configs of version 0.2 had for the chosen convention.

    The node has the name and the keys of the convention. It is part of the identities of runs and
    searches; without it, runs and searches of version 0.2 would not be found.
    """
    name = choices.get("convention")
    return {name: convention_keys(name)} if name in files_of("convention") else None
