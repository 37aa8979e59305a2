"""The config of a run as its checkpoints hold it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.keys import Resumed, keys
from ltr.experiment.kept import LINK, RELATIVE


def config_to_keep(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """The config of a run as its checkpoints hold it.

    Relative paths are kept as seen from the run folder, so that they hold from any working
    directory.
    """
    text: Any = OmegaConf.to_container(cfg)
    kept: Any = _with_links(text, OmegaConf.to_container(cfg, resolve=True), text)
    of_user = keys(Resumed.OWN, Resumed.FOLDER)
    kept = {key: value for key, value in kept.items() if key not in of_user}
    return seen_from(kept, folder)


def seen_from(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """``config`` with its relative paths, seen from here, as seen from ``folder``."""
    seen = dict(config)
    for key in RELATIVE:
        if seen.get(key) is not None and not Path(seen[key]).is_absolute():
            seen[key] = os.path.relpath(seen[key], folder)
    return seen


def _with_links(text: Any, value: Any, root: Mapping[str, Any]) -> Any:
    """``value``, with those of its ``text`` that are links to what is not itself one."""
    if isinstance(text, str):
        link = LINK.fullmatch(text)
        return text if link and not LINK.fullmatch(str(root.get(link[1]))) else value
    if isinstance(text, Mapping) and isinstance(value, Mapping):
        return {key: _with_links(text[key], one, root) for key, one in value.items()}
    if isinstance(text, list) and isinstance(value, list):
        return [_with_links(one, other, root) for one, other in zip(text, value, strict=True)]
    return value
