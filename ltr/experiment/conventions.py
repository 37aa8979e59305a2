"""Conventions by name: ``metrics_as=letor4`` is ``configs/metrics_as/letor4.yaml``."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.metrics import Convention


def chosen_conventions(cfg: DictConfig, own: Mapping[str, Any]) -> dict[str, Convention]:
    """The conventions that ``cfg.metrics_as`` holds by name.

    Args:
        cfg: of ``configs/evaluate.yaml``; the keys of its ``convention`` that are not null go over
            those of every name.
        own: what holds for the keys that neither a name nor ``cfg`` sets; where ``metrics_as`` was
            not given this alone, under the name ``own``.

    Raises:
        ConfigError: a value is wrong.
    """
    given: Any = OmegaConf.to_object(cfg.convention)
    set_here = {key: value for key, value in given.items() if value is not None}
    named: Any = OmegaConf.to_object(cfg.metrics_as) if cfg.get("metrics_as") else {"own": {}}
    return {name: Convention(**{**own, **keys, **set_here}) for name, keys in named.items()}
