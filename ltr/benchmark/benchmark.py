"""Run the benchmark subject by subject; write tables, a plot, files and sections of a document."""

import json
import logging
import os
import platform
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ltr.benchmark import bits, evaluation, losses, peers, quality, reader, runs, serving, training
from ltr.benchmark.comparison import Comparison, Plan, Row, now
from ltr.benchmark.gpu_kernel import counted_kernel
from ltr.benchmark.growth import growth
from ltr.benchmark.kept import Kept, code_of_benchmark
from ltr.benchmark.sections import TITLES, put_section, section
from ltr.benchmark.step import counted_steps
from ltr.benchmark.worker import Case
from ltr.errors import ConfigError
from ltr.experiment.identity import code_digest
from ltr.experiment.provenance import commit, versions
from ltr.figures.drawing import save_figure, style
from ltr.training.device import free_memory
from ltr.whole import without_nan, write_csv, write_whole

log = logging.getLogger(__name__)

SUBJECTS = tuple(TITLES)
COUNTED = {"step": counted_steps, "kernel": counted_kernel}  # nothing is measured
_HOURS = {"cpu": {"quality", "precision", "runs"}, "cuda": {"quality"}}  # all leaves these out
_NO_GPU = {"reader", "serving"}


def benchmark(cfg: DictConfig) -> dict[str, list[Row]]:
    """Measure, print and save what ``cfg`` (``configs/benchmark.yaml``) chooses; return the rows.

    Results are written after every case. A case that an earlier command measured before it was
    stopped is taken up, not measured again.

    Raises:
        ConfigError: ``what`` or ``device`` is no choice, or ``only`` leaves nothing to measure.
    """
    if cfg.what in COUNTED:
        print(COUNTED[cfg.what](cfg))
        return {}
    subjects = _chosen(cfg)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S.%f")
    folder = Path(cfg.output_dir, "benchmarks", f"{stamp}_{cfg.what}-{cfg.device}-{os.getpid()}")
    folder.mkdir(parents=True)
    cache_dir = Path(cfg.cache_dir).absolute()
    cache_dir.mkdir(parents=True, exist_ok=True)
    why_not = ""
    if cfg.device == "cuda" and not torch.cuda.is_available():
        why_not = "PyTorch sees no GPU here; run the command above on a machine with one."
    about = _about(cfg, on_gpu=cfg.device == "cuda" and not why_not)
    kept = Kept(Path(cfg.output_dir, "benchmark_runs"), _common(cfg, about))
    found: dict[str, list[Row]] = {}
    texts: dict[str, str] = {}
    for subject in subjects:
        rows = found[subject] = []
        more: Any = {"with_goals": not cfg.quick, "why_not": why_not}
        more["footnote"] = quality.footnote(_sizes(cfg))
        for some in [] if why_not else _measured(subject, cfg, str(cache_dir), kept):
            rows += some
            about = _told(about, subject, rows, cfg)
            texts[subject] = section(subject, cfg.device, rows, about, **more, ended=False)
            _write(folder, about, texts, found)
        about = _told(about, subject, rows, cfg)
        more["picture"] = _pictured(subject, rows, cfg, folder)
        texts[subject] = section(subject, cfg.device, rows, about, **more)
        if cfg.write is not None and (rows or why_not):
            put_section(Path(cfg.write), subject, cfg.device, texts[subject])
        print(section(subject, cfg.device, rows, about, **more, markdown=bool(why_not)))
    if not why_not and not any(found.values()):
        raise ConfigError(f"only={cfg.only}: no case of what={cfg.what} has this in its name")
    _write(folder, about, texts, found)
    kept.forget()
    print(f"kept in {folder}")
    return found


def _write(
    folder: Path,
    about: Mapping[str, Any],
    texts: Mapping[str, str],
    found: Mapping[str, Sequence[Row]],
) -> None:
    """The tables, all rows and samples so far."""
    write_whole(folder / "results.md", "\n".join(texts.values()))
    rows = [row for rows in found.values() for row in rows]
    records = [asdict(row) | {"median": row.median} for row in rows]
    whole = json.dumps(without_nan({"about": about, "rows": records}), indent=1)
    write_whole(folder / "results.json", whole + "\n")
    names = ("subject", "case", "side", "status", "median", "bytes", "amount", "unit", "text")
    write_csv(folder / "results.csv", records, names)


def _chosen(cfg: DictConfig) -> tuple[str, ...]:
    if cfg.what not in (*SUBJECTS, "all"):
        choices = ", ".join((*SUBJECTS, *COUNTED, "all", "needs"))
        raise ConfigError(f"what={cfg.what}: choose one of {choices}")
    if cfg.device not in ("cpu", "cuda"):
        raise ConfigError(f"device={cfg.device}: choose one of cpu, cuda")
    if cfg.what in _NO_GPU and cfg.device == "cuda":
        raise ConfigError(f"what={cfg.what} device=cuda: it uses no GPU; leave out device")
    if cfg.what != "all":
        return (cfg.what,)
    left_out = _HOURS[cfg.device] | (_NO_GPU if cfg.device == "cuda" else set())
    return tuple(each for each in SUBJECTS if each not in left_out)


def _sizes(cfg: DictConfig) -> DictConfig:
    sizes: DictConfig = cfg.quick_sizes if cfg.quick else cfg.sizes
    return sizes


def _measured(subject: str, cfg: DictConfig, cache_dir: str, kept: Kept) -> Iterator[list[Row]]:
    """The rows of one subject, case by case."""
    sizes = _sizes(cfg)
    free = free_memory(torch.device("cpu"))
    limit = None if free is None else int(0.7 * free)
    if cfg.memory_limit is not None:
        limit = int(float(cfg.memory_limit) * 1e9)
    options = {
        "device": cfg.device, "threads": cfg.threads, "memory_limit": limit,
        "time_limit": float(cfg.time_limit), "cache_dir": cache_dir,
    }  # fmt: skip

    def wanted(cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if cfg.only is None or str(cfg.only) in case.name]

    if subject in quality.CASES:
        for_good = Kept(kept.folder)  # hours, and the same again
        cases = wanted(quality.CASES[subject](sizes))
        yield quality.measured(subject, cases, options, sizes, for_good, log.info)
        return
    plan = Plan(int(sizes.repeats), float(sizes.seconds), float(sizes.long), bool(cfg.profile))
    if subject == "serving":
        plan = replace(plan, each=int(sizes.serving_calls))
        options["threads"] = cfg.threads or 1
    if subject in ("bits", "runs"):
        plan = replace(plan, once=True)
    for module, growing in _cases(subject, cfg, sizes, cache_dir):
        comparison = Comparison(module.__name__, options, plan, log.info, kept)
        with closing(comparison):
            for cases in growing:
                yield from comparison.grow(wanted(cases))


def _cases(
    subject: str, cfg: DictConfig, sizes: DictConfig, cache_dir: str
) -> list[tuple[ModuleType, list[list[Case]]]]:
    """The modules that make the work, and their cases, growing in each list."""
    if subject == "growth":
        lengths = [
            [losses.case(name, 1, int(n), half_padded=False) for n in sizes.growth_lengths]
            for name in sizes.growth_losses
        ]
        epochs = [[training.case("neuralndcg", sizes, int(n)) for n in sizes.growth_lists]]
        return [(losses, lengths), (training, epochs)]
    if subject == "serving":
        return [(serving, serving.cases(sizes))]
    module, cases = {
        "losses": (losses, lambda: losses.cases(sizes)),
        "reader": (reader, lambda: reader.cases(sizes, cache_dir, cfg.data)),
        "training": (training, lambda: training.cases(sizes, cfg.device)),
        "evaluation": (evaluation, lambda: evaluation.cases(sizes)),
        "bits": (bits, lambda: bits.cases(sizes)),
        "runs": (runs, lambda: runs.cases(sizes, float(cfg.time_limit))),
    }[subject]
    return [(module, [[case] for case in cases()])]


def _pictured(subject: str, rows: Sequence[Row], cfg: DictConfig, folder: Path) -> str:
    """Draw the plot beside the results and the document; return its name in the document."""
    if subject != "growth" or not rows:
        return ""
    with style():
        paths = save_figure(growth(rows), folder, "growth", dpi=120)
    if cfg.write is None:
        return paths[0].name
    place = Path(cfg.write).parent
    place.mkdir(parents=True, exist_ok=True)
    names = [f"growth-{cfg.device}{path.suffix}" for path in paths]
    for path, name in zip(paths, names, strict=True):
        shutil.copyfile(path, place / name)
    return names[0]


def _command(subject: str, cfg: DictConfig) -> str:
    """The command that measures this section again."""
    typed = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    here = ("what", "device", "write", "cache_dir", "output_dir")  # set below, or by the machine
    given = [arg for arg in typed if arg.split("=")[0] not in here]
    words = shlex.join([f"what={subject}", f"device={cfg.device}", *given])
    return f"make bench ARGS={shlex.quote(words)}"


def _about(cfg: DictConfig, *, on_gpu: bool) -> dict[str, Any]:
    """The code, the machine, the time and the versions; the subject adds to it."""
    used = {**versions(), **peers.versions()}
    return {
        "command": "",
        "commit": (commit() or "unknown").replace("+changes", " with changes"),
        "code": code_digest()[:12],
        "date": now(),
        "device": torch.cuda.get_device_name() if on_gpu else _processor(),
        "cores": os.cpu_count(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "threads": None,
        "versions": "; ".join(f"{name} {version}" for name, version in used.items()),
        "settings": OmegaConf.to_container(_sizes(cfg)),
    }


def _told(
    about: Mapping[str, Any], subject: str, rows: Sequence[Row], cfg: DictConfig
) -> dict[str, Any]:
    """``about`` with the command, the threads and the dates of a subject."""
    threads = sorted({str(row.threads) for row in rows if row.threads is not None})
    dates = sorted({row.date for row in rows if row.date})
    date = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else now()
    more = {"date": date, "threads": " or ".join(threads), "command": _command(subject, cfg)}
    return {**about, **more}


def _common(cfg: DictConfig, about: Mapping[str, Any]) -> dict[str, Any]:
    """What every measurement depends on, beside its case."""
    common = {key: cfg[key] for key in ("threads", "memory_limit", "time_limit")}
    own = {"device": about["device"], "torch": torch.__version__, "code": code_of_benchmark()}
    return common | own


def _processor() -> str:
    """The name of the processor."""
    with suppress(OSError):
        _, found, rest = Path("/proc/cpuinfo").read_text().partition("model name\t: ")
        if found:
            return rest.partition("\n")[0].strip()
    return platform.processor() or platform.machine()
