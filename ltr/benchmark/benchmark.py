"""The benchmark: subject after subject; then its tables, its plot, its files, its section."""

import json
import logging
import os
import platform
import shlex
import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from ltr.benchmark import evaluation, losses, peers, reader, training
from ltr.benchmark.comparison import Comparison, Plan, Row
from ltr.benchmark.sections import TITLES, put_section, section
from ltr.benchmark.worker import OURS, Case
from ltr.errors import ConfigError
from ltr.experiment.provenance import commit, versions
from ltr.figures.drawing import COLOURS, save_figure, style
from ltr.training.device import free_memory
from ltr.whole import write_csv, write_whole

log = logging.getLogger(__name__)

SUBJECTS = tuple(TITLES)
GPU_SUBJECTS = tuple(subject for subject in SUBJECTS if subject != "reader")
DEVICES = ("cpu", "cuda")
A_DAY = 86400.0  # the time limit of a whole run


def benchmark(cfg: DictConfig) -> dict[str, list[Row]]:
    """Measure what ``cfg`` (``configs/benchmark.yaml``) asks for; print, save and return the rows.

    Raises:
        ConfigError: ``what`` or ``device`` is no choice, or nothing is left to measure.
    """
    subjects = _chosen(cfg)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path(cfg.output_dir, "benchmarks", f"{stamp}_{cfg.what}-{cfg.device}-{os.getpid()}")
    folder.mkdir(parents=True)
    cache_dir = Path(cfg.cache_dir).absolute()
    cache_dir.mkdir(parents=True, exist_ok=True)
    why_not = ""
    if cfg.device == "cuda" and not torch.cuda.is_available():
        why_not = "PyTorch sees no GPU here; run the command above on a machine with one."
    about = _about(cfg, on_gpu=cfg.device == "cuda" and not why_not)
    found: dict[str, list[Row]] = {}
    texts = []
    for subject in subjects:
        rows = found[subject] = [] if why_not else _measured(subject, cfg, str(cache_dir))
        threads = {str(row.threads) for row in rows if row.threads is not None}
        about |= {"threads": " or ".join(sorted(threads)), "command": _command(subject, cfg)}
        more: Any = {"with_goals": not cfg.quick, "why_not": why_not}
        more["picture"] = _pictured(subject, rows, cfg, folder)
        text = section(subject, cfg.device, rows, about, **more)
        texts.append(text)
        if cfg.write is not None:
            put_section(Path(cfg.write), subject, cfg.device, text)
        print(section(subject, cfg.device, rows, about, **more, markdown=bool(why_not)))
    if not why_not and not any(found.values()):
        raise ConfigError(f"only={cfg.only}: no case of what={cfg.what} has this in its name")
    write_whole(folder / "results.md", "\n".join(texts))
    rows = [row for rows in found.values() for row in rows]
    records = [asdict(row) | {"median": row.median} for row in rows]
    kept = json.dumps({"about": about, "rows": records}, indent=1)
    write_whole(folder / "results.json", kept + "\n")
    names = ("subject", "case", "side", "status", "median", "bytes", "amount", "unit", "text")
    write_csv(folder / "results.csv", records, names)
    log.info("kept in %s", folder)
    return found


def _chosen(cfg: DictConfig) -> tuple[str, ...]:
    if cfg.what not in (*SUBJECTS, "all"):
        raise ConfigError(f"what={cfg.what}: choose one of {', '.join((*SUBJECTS, 'all'))}")
    if cfg.device not in DEVICES:
        raise ConfigError(f"device={cfg.device}: choose one of {', '.join(DEVICES)}")
    possible = SUBJECTS if cfg.device == "cpu" else GPU_SUBJECTS
    if cfg.what == "all":
        return possible
    if cfg.what not in possible:
        raise ConfigError(f"what={cfg.what} device=cuda: reading uses no GPU; leave out device")
    return (cfg.what,)


def _measured(subject: str, cfg: DictConfig, cache_dir: str) -> list[Row]:
    """The rows of one subject."""
    sizes = cfg.quick_sizes if cfg.quick else cfg.sizes
    options = {
        "device": cfg.device,
        "threads": cfg.threads,
        "memory_limit": _memory_limit(cfg),
        "time_limit": float(cfg.time_limit),
        "cache_dir": cache_dir,
    }
    plan = Plan(int(sizes.repeats), float(sizes.seconds), float(sizes.long), bool(cfg.profile))
    rows: list[Row] = []
    for module, growing, more in _cases(subject, cfg, sizes, cache_dir):
        with closing(Comparison(module.__name__, options | more, plan, log.info)) as comparison:
            for cases in growing:
                wanted = [c for c in cases if cfg.only is None or str(cfg.only) in c.name]
                rows += comparison.grow(wanted)
    return rows


def _cases(
    subject: str, cfg: DictConfig, sizes: DictConfig, cache_dir: str
) -> list[tuple[ModuleType, list[list[Case]], dict[str, Any]]]:
    """Who makes the work, its cases (those of a list grow), and options of their own."""
    if subject == "growth":
        lengths = [
            [losses.case(name, 1, int(n), half_padded=False) for n in sizes.growth_lengths]
            for name in sizes.growth_losses
        ]
        epochs = [[training.case("neuralndcg", sizes, int(n)) for n in sizes.growth_lists]]
        return [(losses, lengths, {}), (training, epochs, {})]
    if subject == "reader":
        return [(reader, [[case] for case in reader.cases(sizes, cache_dir, cfg.data)], {})]
    module = {"losses": losses, "training": training, "evaluation": evaluation}[subject]
    found: list[tuple[ModuleType, list[list[Case]], dict[str, Any]]]
    found = [(module, [[case] for case in module.cases(sizes)], {})]
    if subject == "training" and cfg.device == "cuda":
        whole = [[case] for case in training.whole_runs(sizes)]
        found.append((training, whole, {"time_limit": A_DAY}))
    return found


def _memory_limit(cfg: DictConfig) -> int | None:
    """Bytes that a side may take on the CPU: as configured, else 0.7 of what is free now."""
    if cfg.memory_limit is not None:
        return int(float(cfg.memory_limit) * 1e9)
    free = free_memory(torch.device("cpu"))
    return None if free is None else int(0.7 * free)


def _pictured(subject: str, rows: Sequence[Row], cfg: DictConfig, folder: Path) -> str:
    """The plot, beside the results and beside the document; its path as the document names it."""
    if subject != "growth" or not rows:
        return ""
    with style():
        paths = save_figure(_growth(rows), folder, "growth", dpi=120)
    if cfg.write is None:
        return paths[0].name
    place = Path(cfg.write).parent
    place.mkdir(parents=True, exist_ok=True)
    names = [f"growth-{cfg.device}{path.suffix}" for path in paths]
    for path, name in zip(paths, names, strict=True):
        shutil.copyfile(path, place / name)
    return names[0]


def _growth(rows: Sequence[Row]) -> Figure:
    """Time and memory against size, a line for each side: of a loss, then of an epoch."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    places = times, memory, epochs = figure.subplots(1, 3)
    lines: dict[tuple[bool, str, str], list[tuple[float, float, float]]] = {}
    for row in rows:
        if row.median is not None and row.bytes is not None:
            name, size, is_loss = _size(row.case)
            point = size, row.median, max(row.bytes / 1e6, 0.01)
            lines.setdefault((is_loss, name, row.side), []).append(point)
    names = sorted({name for _, name, _ in lines})
    for (is_loss, name, side), points in lines.items():
        sizes, seconds, megabytes = zip(*sorted(points), strict=True)
        look: Any = {"marker": "o", "linestyle": "-"} if side == OURS else {"marker": "x"}
        look = {"linestyle": "--", "markersize": 4, **look, "label": f"{name}, {side}"}
        look["color"] = COLOURS[names.index(name) % len(COLOURS)]
        (times if is_loss else epochs).plot(sizes, seconds, **look)
        if is_loss:
            memory.plot(sizes, megabytes, **look)
    titles = (
        ("Loss, forward and backward", "items of the list", "seconds"),
        ("Loss, peak memory", "items of the list", "MB"),
        ("One epoch of training", "lists", "seconds"),
    )
    for axes, (title, across, up) in zip(places, titles, strict=True):
        axes.set(title=title, xlabel=across, ylabel=up, xscale="log", yscale="log")
        if axes.has_data():
            axes.legend(fontsize=6.5)
    return figure


def _size(case: str) -> tuple[str, float, bool]:
    """``("listnet", 60, True)`` of ``listnet [1, 60]``, a loss; of ``x, 64 lists`` an epoch."""
    name, of_loss, size = case.partition(" [1, ")
    if not of_loss:
        name, _, size = case.partition(", ")
    return name, float(size.removesuffix(" lists").replace(",", "").rstrip("]")), bool(of_loss)


def _command(subject: str, cfg: DictConfig) -> str:
    """What gives this section again."""
    typed = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    here = ("what", "device", "write", "cache_dir", "output_dir")  # or of this machine alone
    given = [arg for arg in typed if arg.split("=")[0] not in here]
    words = shlex.join([f"what={subject}", f"device={cfg.device}", *given])
    return f"make bench ARGS={shlex.quote(words)}"


def _about(cfg: DictConfig, *, on_gpu: bool) -> dict[str, Any]:
    """Where, when and with what; threads and command are filled in by subject."""
    used = {**versions(), **peers.versions()}
    return {
        "command": "",
        "commit": (commit() or "unknown").replace("+changes", " with changes"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": torch.cuda.get_device_name() if on_gpu else _processor(),
        "cores": os.cpu_count(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "threads": None,
        "versions": "; ".join(f"{name} {version}" for name, version in used.items()),
        "settings": OmegaConf.to_container(cfg.quick_sizes if cfg.quick else cfg.sizes),
    }


def _processor() -> str:
    """The processor's name as the system has it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
