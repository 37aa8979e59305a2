"""One job of ``train.py``: begin, resume or skip a run; a failed run does not end a sweep."""

import logging
import shlex
from contextlib import nullcontext
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from ltr.console.compose import choices_of
from ltr.console.process import is_full, one_line, processes, rank
from ltr.errors import ConfigError, OutputError, as_started
from ltr.experiment.build import build
from ltr.experiment.identity import identity, own_code
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.start import resumed, with_shards
from ltr.training.distributed import broadcast, joined
from ltr.training.hooks import quiet
from ltr.training.interruption import Interrupted, handing_on, stoppable

log = logging.getLogger(__name__)


@handing_on()
def train_job(cfg: DictConfig) -> float:
    """Run one job of Hydra; return ``select_on`` on the validation lists.

    In a sweep, a finished run is not repeated, an interrupted one is resumed, and the job waits if
    another process is working on the run. For a failed run of a sweep the result is NaN.
    """
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())  # as the user would type it
    sweep, choices = hydra.mode == RunMode.MULTIRUN, choices_of(hydra)
    if cfg.resume is not None:
        if sweep:
            raise ConfigError("resume goes on with one run: leave out -m")
        cfg, choices = resumed(cfg, list(hydra.overrides.task))
    if processes() > 1:
        cfg = with_shards(cfg, processes())
    try:
        with stoppable(), joined(cfg.device) if processes() > 1 else nullcontext():
            folder = broadcast(folder)
            locked = RunFolder(folder).locked(wait=sweep) if rank() == 0 else nullcontext()
            with locked, quiet(sweep):
                value = _train(cfg, RunFolder(folder), choices, sweep)
    except Interrupted as stop:
        log.info("stopped by %s; %s", stop, how_to_go_on(cfg, folder, sweep))
        raise
    except Exception as error:
        line = one_line(error)
        if is_full(error):  # disk full: the other runs of a sweep could not write either
            raise OutputError(f"{line}; then {how_to_go_on(cfg, folder, sweep)}") from error
        if rank() == 0:
            RunFolder(folder).note_error(f"{type(error).__name__}: {line or error}")
        if not sweep:
            raise
        # The sweep continues with its other runs; its summary names this one.
        log.error("failed: %s", line or error, exc_info=line is None)
        return float("nan")
    if rank() == 0:
        RunFolder(folder).note_error(None)  # removes the error of an earlier attempt
    return value


def _train(cfg: DictConfig, kept: RunFolder, choices: dict[str, str], sweep: bool) -> float:
    """Do what is left of a run; return its ``select_on`` metric on the validation lists."""
    if sweep:
        if kept.prepare(identity(cfg)):
            log.info("%s is done already", kept.folder)
            return kept.value_that_chooses
        if (kept.folder / "last.pt").is_file():
            cfg = cfg.copy()
            cfg.resume = str(kept.folder)
    elif cfg.resume is not None and kept.identity is not None and rank() == 0:
        build(cfg)  # an error here leaves the run unchanged
        kept.go_on_as(identity(cfg))
    figures = run(cfg, kept.folder, choices, printed=not sweep)
    return figures[f"vali_{cfg.select_on}"] if rank() else RunFolder(kept.folder).value_that_chooses


def how_to_go_on(cfg: DictConfig, folder: Path, sweep: bool) -> str:
    """Return what to type after a stop; it names the user's own modules, which need ``trust``."""
    if sweep or not (folder / "last.pt").is_file():
        return "give the same command again"
    own = ",".join(sorted({name.rpartition(".")[0] for name in own_code(cfg)}))
    words = [f"resume={folder}"] + [f"trust=[{own}]"] * bool(own)
    return f"go on with: {as_started('train')} {shlex.join(words)}"
