"""Where runs were computed: threads and device change its digits, not what a run is."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.experiment.run_folder import RunFolder


def place_of(device: str, threads: int) -> str:
    """What of a machine changes the digits of a run: device type, on a CPU the threads.

    >>> place_of("cpu", 1), place_of("cuda", 8)
    ('cpu, 1 thread', 'cuda')
    """
    return device if device != "cpu" else f"cpu, {threads} thread{'s' * (threads != 1)}"


def places_of(results: Mapping[str, Any]) -> tuple[str, ...]:
    """Every place that a run in ``results.json`` was computed on, such as ``cpu, 2 threads``."""
    return tuple(results.get("computed_on", ()))


def asked_place(cfg: DictConfig, threads: int | None = None) -> str:
    """Where ``cfg`` would be computed now; ``threads`` where neither it nor PyTorch says."""
    import torch  # not where finished runs are compared

    from ltr.training.device import pick_device

    device = pick_device(cfg.device).type
    return place_of(device, cfg.threads or threads or torch.get_num_threads())


def elsewhere(folders: Sequence[Path], asked: str) -> str | None:
    """A line about the finished runs in ``folders`` that were not all computed on ``asked``."""
    of_run = {folder: places_of(RunFolder(folder).results) for folder in folders}
    others = {folder: places for folder, places in of_run.items() if set(places) - {asked}}
    if not others:
        return None
    first = next(iter(others))
    where = " and ".join(dict.fromkeys(place for several in others.values() for place in several))
    count = f"{len(others)} finished runs, such as {first}," if len(others) > 1 else str(first)
    return (
        f"{count} {'were' if len(others) > 1 else 'was'} computed on {where}, now {asked} is asked "
        "for: results differ somewhat by it; what is done stays, to do it anew remove its folder"
    )


def mixed(runs: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """A note where runs side by side were computed on different places; None where on one.

    Args:
        runs: name of the row or system, and ``results.json``, of each run.
    """
    counts: dict[str, Counter[str]] = {}
    for name, results in runs:
        for place in places_of(results):
            counts.setdefault(place, Counter())[name] += 1
    if len(counts) < 2:
        return None
    said = [
        f"{place}: {', '.join(f'{name} ({count})' for name, count in names.items())}"
        for place, names in counts.items()
    ]
    return f"computed on different threads or devices, results differ by it: {'; '.join(said)}"
