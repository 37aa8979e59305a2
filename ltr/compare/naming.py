"""What systems are called: what differs between their configs, as it would be typed."""

from collections.abc import Sequence
from typing import Any

from ltr.experiment.run_folder import RunFolder

_ABSENT = object()


def name_systems(systems: Sequence[tuple[Sequence[RunFolder], dict[str, Any]]]) -> list[str]:
    """A name for each system, such as ``loss=neuralndcg`` or ``epochs=0``; no two are the same.

    Named are the choices of a group that differ, and the keys that differ and were typed for some
    run; a key that only follows from a choice is not. Where that does not tell two apart, every
    key that differs between those two is named.

    Args:
        systems: runs and config of each.
    """
    choices = [dict(runs[0].results["choices"]) for runs, _ in systems]
    configs = [_flat(config) for _, config in systems]
    if len(systems) == 1:
        (only,) = choices
        return [_joined({key: only[key] for key in ("model", "loss") if key in only})]
    groups = [key for key in _differing(choices) if key not in ("metrics_as", "experiment")]
    typed = {key for runs, _ in systems for run in runs for key in _typed(run)}
    keys = [key for key in _differing(configs) if key in typed]
    names = [
        _joined(_present(choice, groups) | _present(config, keys)) or "default"
        for choice, config in zip(choices, configs, strict=True)
    ]
    for name in [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        same = [i for i, other in enumerate(names) if other == name]
        apart = _differing([configs[i] for i in same])
        for i in same:
            more = _joined(_present(configs[i], apart))
            names[i] = ", ".join(part for part in (name, more) if part)
    return names


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    """``{"optimizer.lr": 0.001, ...}``."""
    if not isinstance(node, dict) or not node:
        return {prefix: node}
    return {
        key: value
        for name, below in node.items()
        for key, value in _flat(below, f"{prefix}.{name}" if prefix else str(name)).items()
    }


def _differing(mappings: Sequence[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for mapping in mappings for key in mapping)
    return [
        key
        for key in keys
        if any(m.get(key, _ABSENT) != mappings[0].get(key, _ABSENT) for m in mappings)
    ]


def _present(mapping: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: mapping[key] for key in keys if key in mapping}


def _joined(parts: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_text(value)}" for key, value in parts.items())


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(run: RunFolder) -> list[str]:
    """The keys on the run's command line, as Hydra kept it; none where it did not."""
    return [item.lstrip("+~").partition("=")[0] for item in run.overrides]
