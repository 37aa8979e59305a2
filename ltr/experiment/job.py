"""``train.py``'s job: begin, resume or skip a run; a failed run does not end a sweep."""

import logging
import shlex
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from ltr.console.compose import choices_of
from ltr.console.process import check_torchrun, is_full, one_line, processes, rank
from ltr.errors import ConfigError, OutputError, as_started
from ltr.experiment.gpus import take_gpu
from ltr.experiment.identity import identity
from ltr.experiment.provenance import asked_place, elsewhere
from ltr.experiment.resume import leave_sweep, resumed, with_shards
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder, lock_run_folder, prepare_folder
from ltr.training.distributed import broadcast, is_main, joined
from ltr.training.interruption import Interrupted, handing_on, stoppable

log = logging.getLogger(__name__)


@handing_on()
def train_job(cfg: DictConfig) -> float:
    """Run one job of Hydra; return ``select_on`` on vali (nan for a failed run of a sweep).

    A finished run of a sweep is not repeated, one that was cut off is resumed, and the job waits
    for one that is running in another process.
    """
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())  # as the user would type it
    sweep = hydra.mode == RunMode.MULTIRUN
    check_torchrun("train", several=sweep)
    if sweep:
        take_gpu(int(hydra.job.num))
    choices = choices_of(hydra)
    if cfg.resume is not None:
        if sweep:
            raise ConfigError("resume goes on with one run: leave out -m")
        cfg, choices = resumed(cfg, list(hydra.overrides.task))
    together: AbstractContextManager[None] = nullcontext()
    if processes() > 1:
        cfg, together = with_shards(cfg, processes()), joined(cfg.device)
    try:
        with stoppable(), together:
            folder = broadcast(folder)
            with lock_run_folder(folder, wait=sweep) if is_main() else nullcontext():
                if sweep:
                    value = _continued(cfg, folder, choices)
                else:
                    if is_main() and cfg.resume is not None:
                        leave_sweep(cfg, folder)
                    value = run(cfg, folder, choices, printed=True)[f"vali_{cfg.select_on}"]
    except Interrupted as stop:
        log.info("stopped by %s; %s", stop, _how_to_go_on(folder, sweep))
        raise
    except Exception as error:
        line = one_line(error)
        if is_full(error):  # the other runs of a sweep could not write either
            raise OutputError(f"{line}; then {_how_to_go_on(folder, sweep)}") from error
        if rank() == 0:
            RunFolder(folder).note_error(f"{type(error).__name__}: {line or error}")
        if not sweep:
            raise
        # The other runs of the sweep go on; the summary names this one.
        log.error("failed: %s", line or error, exc_info=line is None)
        return float("nan")
    if rank() == 0:
        RunFolder(folder).note_error(None)  # of an earlier attempt
    return value


def _continued(cfg: DictConfig, folder: Path, choices: dict[str, str]) -> float:
    """Do what is left of a sweep's run; return its value."""
    there = prepare_folder(folder, identity(cfg))
    if there == "done":
        log.info("%s is done already", folder)
        if note := elsewhere([folder], asked_place(cfg)):
            log.info("%s", note)
        return float(RunFolder(folder).results["vali"][str(cfg.select_on)])
    if there == "cut off":
        cfg = cfg.copy()
        cfg.resume = str(folder)
    return run(cfg, folder, choices)[f"vali_{cfg.select_on}"]


def _how_to_go_on(folder: Path, sweep: bool) -> str:
    if sweep or not (folder / "last.pt").is_file():
        return "give the same command again"
    return f"go on with: {as_started('train')} {shlex.quote(f'resume={folder}')}"
