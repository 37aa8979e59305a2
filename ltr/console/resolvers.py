"""The resolvers that the configs use: names of folders, conventions, help."""

import functools
import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.configs import help_of
from ltr.console.sweep_names import job_dir, sweep_dir, unshown_keys
from ltr.errors import CheckpointError, ConfigError


def register_resolvers() -> None:
    """Make the resolvers that the configs use known; calling again changes nothing.

    A run folder is named by time, choices and four random digits, so that two runs started in the
    same second do not collide; ``resume`` goes on in its own folder without touching what Hydra
    wrote there. Folders of sweeps are named by what is asked for (``ltr.console.sweep_names``).
    """
    OmegaConf.register_new_resolver("run_dir", _run_dir, replace=True)
    OmegaConf.register_new_resolver(
        "hydra_subdir",
        lambda resume: ".hydra" if resume is None else ".hydra/resumed",
        replace=True,
    )
    OmegaConf.register_new_resolver("sweep_dir", sweep_dir, replace=True)
    OmegaConf.register_new_resolver("job_dir", job_dir, replace=True)
    OmegaConf.register_new_resolver("unshown_keys", unshown_keys, replace=True)
    OmegaConf.register_new_resolver("help_of", help_of, replace=True)
    OmegaConf.register_new_resolver("preset", _preset, replace=True)


def _preset(key: str, *, _root_: DictConfig) -> Any:
    """The value of ``key`` in the convention that ``metrics_as`` names (its node has the name)."""
    chosen = _root_.get("metrics_as") or {}
    if len(chosen) != 1:
        raise ConfigError(
            f"metrics_as=[{','.join(chosen)}]: training takes one convention; "
            "scripts/evaluate.py compares several"
        )
    (convention,) = chosen.values()
    return convention[key]


# What a run that goes on writes to in its folder without putting a new file in the place.
_WRITTEN_THROUGH = (
    ".lock", "train.log", "error.txt", ".hydra", ".hydra/resumed",
    *(f".hydra/resumed/{name}.yaml" for name in ("config", "hydra", "overrides")),
)  # fmt: skip


@functools.cache
def _run_dir(output_dir: str, resume: str | None, name: str) -> str:
    if resume is not None:
        folder = run_folder(resume)
        if not (folder / "last.pt").is_file():  # before Hydra makes the folder
            raise CheckpointError(
                f"resume={resume}: {folder / 'last.pt'} is not there; give the folder of a run of "
                "train.py, such as outputs/<run>"
            )
        for path in [folder / name for name in _WRITTEN_THROUGH]:
            if path.is_symlink():
                raise CheckpointError(
                    f"resume={resume}: {path} is a link, which train.py does not make, and writing "
                    "would follow it: remove it if you know where the run comes from"
                )
        return str(folder)
    name = name.replace("-None-", "-")  # a group without a choice
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return str(Path(output_dir) / f"{now}_{name}_{secrets.token_hex(2)}")


def run_folder(path: str) -> Path:
    """The run folder of ``path``, which is that folder or a checkpoint in it."""
    given = Path(path)
    return given.parent if given.suffix == ".pt" else given
