"""The benchmark from its config: subject after subject; then tables, files, the docs' section."""

import logging
import os
import platform
import shlex
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ltr.benchmark import (
    evaluation,
    growth,
    losses,
    peers,
    plot,
    reader,
    report,
    training,
    whole_runs,
)
from ltr.benchmark.compare import Comparison, Plan, Row
from ltr.benchmark.work import Case
from ltr.errors import ConfigError
from ltr.experiment.provenance import commit, versions
from ltr.whole import write_whole

log = logging.getLogger(__name__)

SUBJECTS = tuple(report.TITLES)
GPU_SUBJECTS = tuple(subject for subject in SUBJECTS if subject != "reader")
DEVICES = ("cpu", "cuda")
A_DAY = 86400.0  # the time limit of a whole run


def benchmark(cfg: DictConfig) -> dict[str, list[Row]]:
    """Measure what ``cfg`` (``configs/benchmark.yaml``) asks for; print, save and return the rows.

    Raises:
        ConfigError: ``what`` or ``device`` is no choice, or nothing is left to measure.
    """
    subjects = _chosen(cfg)
    if cfg.device not in DEVICES:
        raise ConfigError(f"device={cfg.device}: choose one of {', '.join(DEVICES)}")
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path(cfg.output_dir, "benchmarks", f"{stamp}_{cfg.what}-{cfg.device}-{os.getpid()}")
    folder.mkdir(parents=True)
    cache_dir = Path(cfg.cache_dir).absolute()
    cache_dir.mkdir(parents=True, exist_ok=True)
    why_not = ""
    if cfg.device == "cuda" and not torch.cuda.is_available():
        why_not = "PyTorch sees no GPU here; run the command above on a machine with one."
    about = _about(cfg)
    found: dict[str, list[Row]] = {}
    texts = []
    for subject in subjects:
        found[subject] = [] if why_not else _measured(subject, cfg, str(cache_dir))
        about["threads"] = _threads(found[subject])
        picture = _pictured(subject, found[subject], cfg, folder)
        about["command"] = _command(subject, cfg)
        text = report.section(
            subject,
            cfg.device,
            found[subject],
            about,
            with_goals=not cfg.quick,
            why_not=why_not,
            picture=picture,
        )
        texts.append(text)
        if cfg.write is not None:
            report.put_section(Path(cfg.write), subject, cfg.device, text)
        rows = found[subject]
        goals = not cfg.quick
        print(text if why_not else report.printed(subject, cfg.device, rows, with_goals=goals))
    if not why_not and not any(found.values()):
        raise ConfigError(f"only={cfg.only}: no case of what={cfg.what} has this in its name")
    write_whole(folder / "results.md", "\n".join(texts))
    report.save(folder, about, [row for rows in found.values() for row in rows])
    log.info("kept in %s", folder)
    return found


def _chosen(cfg: DictConfig) -> tuple[str, ...]:
    if cfg.what == "all":
        return SUBJECTS if cfg.device == "cpu" else GPU_SUBJECTS
    if cfg.what not in SUBJECTS:
        raise ConfigError(f"what={cfg.what}: choose one of {', '.join((*SUBJECTS, 'all'))}")
    if cfg.device == "cuda" and cfg.what not in GPU_SUBJECTS:
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

    def compared(module: Any, cases: Sequence[Case], **other: Any) -> None:
        comparison = Comparison(module.__name__, {**options, **other}, plan, log.info)
        try:
            for case in cases:
                if cfg.only is None or str(cfg.only) in case.name:
                    rows.extend(comparison.run(case))
        finally:
            comparison.close()

    if subject == "losses":
        compared(losses, losses.cases(sizes))
    elif subject == "reader":
        compared(reader, reader.cases(sizes, cache_dir, cfg.data))
    elif subject == "training":
        compared(training, training.cases(sizes))
        if cfg.device == "cuda":
            compared(whole_runs, whole_runs.cases(sizes), time_limit=A_DAY)
    elif subject == "evaluation":
        compared(evaluation, evaluation.cases(sizes))
    else:
        for module, grow in ((losses, growth.lengths), (training, growth.epochs)):
            comparison = Comparison(module.__name__, options, plan, log.info)
            try:
                rows += grow(sizes, comparison)
            finally:
                comparison.close()
    return rows


def _memory_limit(cfg: DictConfig) -> int:
    """Bytes that a side may take on the CPU: as configured, else 0.7 of what is available now."""
    if cfg.memory_limit is not None:
        return int(float(cfg.memory_limit) * 1e9)
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return int(0.7 * available)


def _pictured(subject: str, rows: Sequence[Row], cfg: DictConfig, folder: Path) -> str:
    """The plot, beside the results and beside the document; its path as the document names it."""
    if subject != "growth" or not rows:
        return ""
    paths = plot.growth(rows, folder)
    if cfg.write is None:
        return paths[0].name
    place = Path(cfg.write).parent
    place.mkdir(parents=True, exist_ok=True)
    names = [f"growth-{cfg.device}{path.suffix}" for path in paths]
    for path, name in zip(paths, names, strict=True):
        shutil.copyfile(path, place / name)
    return names[0]


def _command(subject: str, cfg: DictConfig) -> str:
    """What gives this section again."""
    typed = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    here = ("what", "device", "write", "cache_dir", "output_dir")  # or of this machine alone
    given = [arg for arg in typed if arg.split("=")[0] not in here]
    words = shlex.join([f"what={subject}", f"device={cfg.device}", *given])
    return f"make bench ARGS={shlex.quote(words)}"


def _about(cfg: DictConfig) -> dict[str, Any]:
    """Where, when and with what."""
    device = torch.cuda.get_device_name() if _on_gpu(cfg) else _processor()
    used = {**versions(), **peers.versions()}
    load = f"{os.getloadavg()[0]:.1f}"
    return {
        "command": "",
        "commit": (commit() or "unknown").replace("+changes", " with changes"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": device,
        "cores": os.cpu_count(),
        "load before": load,
        "threads": None,
        "versions": "; ".join(f"{name} {version}" for name, version in used.items()),
        "settings": OmegaConf.to_container(cfg.quick_sizes if cfg.quick else cfg.sizes),
    }


def _on_gpu(cfg: DictConfig) -> bool:
    return cfg.device == "cuda" and torch.cuda.is_available()


def _threads(rows: Sequence[Row]) -> str:
    return " or ".join(sorted({str(row.threads) for row in rows if row.threads is not None}))


def _processor() -> str:
    """The processor's name as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
