"""Run the benchmark subject by subject; write tables, a plot, files and sections of a document."""

import json
import logging
import os
import platform
import shlex
import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from ltr.benchmark import evaluation, losses, peers, quality, reader, serving, step, training
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
A_DAY = 86400.0  # the time limit of a whole run


def benchmark(cfg: DictConfig) -> dict[str, list[Row]]:
    """Measure, print and save what ``cfg`` (``configs/benchmark.yaml``) chooses; return the rows.

    Raises:
        ConfigError: ``what`` or ``device`` is no choice, or ``only`` leaves nothing to measure.
    """
    if cfg.what == "step":
        print(step.counted_steps(cfg))
        return {}
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
        more["footnote"] = quality.footnote(cfg.quick_sizes if cfg.quick else cfg.sizes)
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
    print(f"kept in {folder}")
    return found


def _chosen(cfg: DictConfig) -> tuple[str, ...]:
    if cfg.what not in (*SUBJECTS, "all"):
        raise ConfigError(f"what={cfg.what}: choose one of {', '.join((*SUBJECTS, 'step', 'all'))}")
    if cfg.device not in ("cpu", "cuda"):
        raise ConfigError(f"device={cfg.device}: choose one of cpu, cuda")
    if cfg.what in ("reader", "serving") and cfg.device == "cuda":
        raise ConfigError(f"what={cfg.what} device=cuda: it uses no GPU; leave out device")
    if cfg.what != "all":
        return (cfg.what,)
    left_out = {"quality"} | (
        {"reader", "serving"} if cfg.device == "cuda" else set()
    )  # quality: hours
    return tuple(each for each in SUBJECTS if each not in left_out)


def _measured(subject: str, cfg: DictConfig, cache_dir: str) -> list[Row]:
    """The rows of one subject."""
    sizes = cfg.quick_sizes if cfg.quick else cfg.sizes
    free = free_memory(torch.device("cpu"))
    limit = None if free is None else int(0.7 * free)
    if cfg.memory_limit is not None:
        limit = int(float(cfg.memory_limit) * 1e9)
    options = {
        "device": cfg.device, "threads": cfg.threads, "memory_limit": limit,
        "time_limit": float(cfg.time_limit), "cache_dir": cache_dir,
    }  # fmt: skip
    if subject == "quality":
        kept = Path(cfg.output_dir, "benchmark_runs")
        wanted = [c for c in quality.cases(sizes) if cfg.only is None or str(cfg.only) in c.name]
        options["time_limit"] = A_DAY
        return quality.measured(wanted, options, sizes, kept, log.info)
    plan = Plan(int(sizes.repeats), float(sizes.seconds), float(sizes.long), bool(cfg.profile))
    if subject == "serving":
        plan = replace(plan, each=int(sizes.serving_calls))
        options["threads"] = cfg.threads or 1
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
    """The modules that make the work, their cases (growing in each list), and options of theirs."""
    if subject == "growth":
        lengths = [
            [losses.case(name, 1, int(n), half_padded=False) for n in sizes.growth_lengths]
            for name in sizes.growth_losses
        ]
        epochs = [[training.case("neuralndcg", sizes, int(n)) for n in sizes.growth_lists]]
        return [(losses, lengths, {}), (training, epochs, {})]
    if subject == "reader":
        return [(reader, [[case] for case in reader.cases(sizes, cache_dir, cfg.data)], {})]
    if subject == "serving":
        return [(serving, serving.cases(sizes), {})]
    module = {"losses": losses, "training": training, "evaluation": evaluation}[subject]
    whole = training.whole_runs(sizes) if (subject, cfg.device) == ("training", "cuda") else []
    return [
        (module, [[case] for case in module.cases(sizes)], {}),
        (training, [[case] for case in whole], {"time_limit": A_DAY}),
    ]


def _pictured(subject: str, rows: Sequence[Row], cfg: DictConfig, folder: Path) -> str:
    """Draw the plot beside the results and the document; return its name in the document."""
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
    """Time and memory against size, a line for each loss and side: of a pass, then of an epoch."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    times, memory, epochs = figure.subplots(1, 3)
    lines: dict[tuple[bool, str, str], list[tuple[float, float, float]]] = {}
    for row in rows:
        if row.median is not None and row.bytes is not None:
            name, size, is_loss = _size(row.case)
            point = size, row.median, max(row.bytes / 1e6, 0.01)
            lines.setdefault((is_loss, name, row.side), []).append(point)
    names = sorted({name for _, name, _ in lines})
    for (is_loss, name, side), points in lines.items():
        sizes, took, megabytes = zip(*sorted(points), strict=True)
        look: Any = {"markersize": 4, "label": f"{name}, {side}"}
        look["color"] = COLOURS[names.index(name) % len(COLOURS)]
        look["marker"], look["linestyle"] = ("o", "-") if side == OURS else ("x", "--")
        (times if is_loss else epochs).plot(sizes, took, **look)
        if is_loss:
            memory.plot(sizes, megabytes, **look)
    items, seconds = "items of the list", "seconds"
    times.set(title="Loss, forward and backward", xlabel=items, ylabel=seconds)
    memory.set(title="Loss, peak memory", xlabel=items, ylabel="MB")
    epochs.set(title="One epoch of training", xlabel="lists", ylabel=seconds)
    for axes in (times, memory, epochs):
        axes.set(xscale="log", yscale="log")
        if axes.has_data():
            axes.legend(fontsize=6.5)
    return figure


def _size(case: str) -> tuple[str, float, bool]:
    """``("listnet", 60, True)`` of the loss ``listnet [1, 60]``; False of ``x, 64 lists``."""
    name, of_loss, size = case.partition(" [1, ")
    if not of_loss:
        name, _, size = case.partition(", ")
    return name, float(size.removesuffix(" lists").replace(",", "").rstrip("]")), bool(of_loss)


def _command(subject: str, cfg: DictConfig) -> str:
    """The command that measures this section again."""
    typed = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    here = ("what", "device", "write", "cache_dir", "output_dir")  # set below, or by the machine
    given = [arg for arg in typed if arg.split("=")[0] not in here]
    words = shlex.join([f"what={subject}", f"device={cfg.device}", *given])
    return f"make bench ARGS={shlex.quote(words)}"


def _about(cfg: DictConfig, *, on_gpu: bool) -> dict[str, Any]:
    """The machine, the time and the versions; threads and command depend on the subject."""
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
    """The name of the processor."""
    with suppress(OSError):
        _, found, rest = Path("/proc/cpuinfo").read_text().partition("model name\t: ")
        if found:
            return rest.partition("\n")[0].strip()
    return platform.processor() or platform.machine()
