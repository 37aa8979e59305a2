"""Find config files, their keys and the choices of config groups. Importing it is fast."""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ltr.cli.command_keys import command_keys
from ltr.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]
# The folder is at the top of a clone, or inside an installed package.
CONFIGS = next(
    folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir()
)
# The environment variable that holds the value of --config-dir for the processes of a launcher too.
CONFIG_DIR = "LTR_CONFIG_DIR"
# Keys whose values are file names in a folder, although they are not Hydra groups.
FOLDERS = {
    "table": "tables", "space": "search", "metric": "metric", "conventions": "convention"
}  # fmt: skip
# Choices that only a program can use, by group; --help and the completion do not list them.
_FOR_PROGRAMS = {"dataset": {"memory"}}
# Names in other tools, and the last part of the corresponding key of this project.
_ALIASES = """d_model=fc_sizes early_stopping=patience gpu=device hidden=hidden_sizes
hidden_dim=hidden_sizes hidden_size=hidden_sizes layers=blocks learning_rate=lr n_layers=blocks
num_epochs=epochs num_heads=heads num_layers=blocks scheduler=schedule slate_length=list_size"""


@cache
def train_keys() -> dict[str, Any]:
    """Return the keys and groups of ``configs/train.yaml`` with their defaults.

    >>> train_keys()["loss"], train_keys()["seed"]
    ('neuralndcg', 1)
    """
    root = yaml.safe_load((CONFIGS / "train.yaml").read_text())
    for entry in root.pop("defaults"):
        root |= entry if isinstance(entry, dict) else {}
    return {key: value for key, value in root.items() if key != "hydra" and " " not in key}


def groups_of(command: str) -> list[str]:
    """Return the config groups in which the user of a command chooses files, sorted.

    >>> groups_of("prepare_data"), groups_of("predict")
    (['dataset'], [])
    """
    if command == "train":
        groups = {key for key in train_keys() if (CONFIGS / key).is_dir()}
        return sorted(groups | {"transform"})  # chosen by the data set
    return sorted(name for name, key in command_keys(command).items() if key.declared_by == "group")


def files_of(key: str) -> dict[str, Path]:
    """Return the file of each choice of ``key``, including the user's own files, by name.

    If the user and the project have files with the same name, the project's file is returned for a
    Hydra group, because Hydra would compose that file. For a key of ``FOLDERS``, the user's file is
    returned.
    """
    user_folder = own_configs()
    folder = FOLDERS.get(key, key)
    homes = (
        [CONFIGS]
        if user_folder is None
        else [CONFIGS, user_folder]
        if key in FOLDERS
        else [user_folder, CONFIGS]
    )
    files = {
        path.relative_to(home / folder).with_suffix("").as_posix(): path
        for home in homes
        for path in (home / folder).rglob("*.yaml")
    }
    return dict(sorted(files.items()))


def typed_choices(key: str) -> list[str]:
    """Return the names in ``files_of(key)`` that a user can type after ``key=``.

    >>> "memory" in files_of("dataset"), "memory" in typed_choices("dataset")
    (True, False)
    """
    return [name for name in files_of(key) if name not in _FOR_PROGRAMS.get(key, ())]


def similar_keys(key: str, existing_keys: Collection[str] | None = None) -> list[str]:
    """Return keys that the user may have meant by ``key``.

    These are the keys that end in the last part of ``key``; a name from another tool, such as
    ``d_model``, is first translated. If there are none, keys with a similar name are returned. The
    keys are chosen from ``existing_keys`` or, if it is None, from all keys of ``train`` and of its
    groups.

    >>> similar_keys("lr"), similar_keys("d_model"), similar_keys("model.blocs")
    (['optimizer.lr'], ['model.fc_sizes'], ['model.blocks'])
    """
    keys = {*(keys_of_train() if existing_keys is None else existing_keys)}
    keys.discard(key)  # it exists only with a different choice of its group
    same_depth = [key_ for key_ in keys if ("." in key_) == ("." in key)]
    return _ending_alike(key, keys) or get_close_matches(key, same_depth, 2, 0.7)


def keys_of_other_choices(key: str) -> list[str]:
    """Return the keys that exist with some choice of a group and end in the last part of ``key``.

    >>> keys_of_other_choices("hidden_size")
    ['model.hidden_sizes']
    """
    return _ending_alike(key, (key_ for key_ in keys_of_train() if "." in key_))


def _ending_alike(key: str, existing_keys: Iterable[str]) -> list[str]:
    """Return the existing keys that end in the last part of ``key``, which is first translated."""
    last_part = key.split(".")[-1]
    last_part = dict(pair.split("=") for pair in _ALIASES.split()).get(last_part, last_part)
    return sorted(
        existing_key for existing_key in existing_keys if existing_key.split(".")[-1] == last_part
    )


def keys_of_train() -> set[str]:
    """Return the keys of ``train``, and those of all choices of its groups."""
    keys = {*train_keys()}
    for group in {*groups_of("train")} - {"experiment"}:
        for path in files_of(group).values():
            with suppress(OSError, ValueError, yaml.YAMLError):  # choosing the file reports it
                values = yaml.safe_load(path.read_text())
                if isinstance(values, dict):
                    keys |= {f"{group}.{name}" for name in values.get(group) or values}
    return keys


def own_configs() -> Path | None:
    """Return the folder of the user's configs: ``--config-dir``, or ``./configs`` if it exists."""
    if CONFIG_DIR in os.environ:
        return Path(os.environ[CONFIG_DIR])
    user_folder = Path("configs").resolve()
    return user_folder if user_folder.is_dir() and user_folder != CONFIGS.resolve() else None


def set_config_dir(config_dir: str | None) -> None:
    """Make ``config_dir``, the value of ``--config-dir``, the user's own folder of configs."""
    if config_dir is None:
        return
    folder = Path(config_dir).resolve()
    if not folder.is_dir():
        raise ConfigError(f"--config-dir {config_dir}: no such folder; choose an existing folder")
    os.environ[CONFIG_DIR] = str(folder)


def composed_with(config_name: str) -> Path | None:
    """Return the folder of the user's configs if the command has config groups; otherwise None.

    Without groups, Hydra could mistake the command's key ``metric`` for the subfolder ``metric``.
    """
    return own_configs() if groups_of(config_name) else None
