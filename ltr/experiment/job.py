"""One Hydra job of ``ltr train``: start, resume or skip a run. A failure does not end a sweep."""

import logging
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from ltr.cli.compose import choices_of
from ltr.cli.keys import resolved
from ltr.cli.process import is_full, one_line, processes, torchrun_rank
from ltr.errors import OutputError, as_started
from ltr.experiment.build import Experiment, build
from ltr.experiment.identity import identity, user_code
from ltr.experiment.resume import resumed_config
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder
from ltr.training.distributed import broadcast, joined
from ltr.training.hooks import quiet
from ltr.training.interruption import Interrupted, handing_on, stoppable

log = logging.getLogger(__name__)


@handing_on()
def train_job(cfg: DictConfig) -> float:
    """Run one Hydra job; return the metric ``select_on`` on the validation lists.

    In a sweep, a finished run is not repeated, an interrupted run is resumed, and the job waits
    while another process is working on its run. If a run of a sweep fails, NaN is returned.
    """
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())  # as the user would type it
    is_sweep = hydra.mode == RunMode.MULTIRUN
    choices = choices_of(hydra)
    if cfg.resume is not None:
        cfg, choices = resumed_config(cfg, list(hydra.overrides.task))
    try:
        with stoppable(), joined(cfg.device) if processes() > 1 else nullcontext():
            folder = broadcast(folder)
            locked = (
                RunFolder(folder).locked(wait=is_sweep) if torchrun_rank() == 0 else nullcontext()
            )
            with locked, quiet(is_sweep):
                experiment = build(cfg, choices)
                value = _train(experiment, RunFolder(folder), is_sweep=is_sweep)
    except Interrupted as stop:
        log.info("stopped by %s; %s", stop, how_to_go_on(resolved(cfg), folder, is_sweep=is_sweep))
        raise
    except Exception as error:
        line = one_line(error)
        if is_full(error):  # the disk is full: the other runs of a sweep could not write either
            remedy = how_to_go_on(resolved(cfg), folder, is_sweep=is_sweep)
            raise OutputError(f"{line}; then {remedy}") from error
        if torchrun_rank() == 0:
            RunFolder(folder).note_error(f"{type(error).__name__}: {line or error}")
        if not is_sweep:
            raise
        # The sweep continues with its other runs; its summary names this one.
        log.error("failed: %s", line or error, exc_info=line is None)
        return float("nan")
    if torchrun_rank() == 0:
        RunFolder(folder).note_error(None)  # removes the error of an earlier attempt
    return value


def _train(experiment: Experiment, run_folder: RunFolder, *, is_sweep: bool) -> float:
    """Train a run, or the rest of it; return its ``select_on`` metric on the validation lists."""
    folder = run_folder.folder
    if is_sweep:
        if run_folder.prepare(identity(experiment)):
            log.info("%s is already finished", folder)
            return run_folder.value_that_chooses
        if (folder / "last.pt").is_file():
            experiment = replace(experiment, is_resumed=True)
    elif experiment.is_resumed and run_folder.identity is not None and torchrun_rank() == 0:
        run_folder.note_resumed(identity(experiment))
    report = run(experiment, folder, printed=not is_sweep)
    if torchrun_rank():
        return report.figures[f"vali_{experiment.settings.select_on}"]
    return RunFolder(folder).value_that_chooses


def how_to_go_on(config: Mapping[str, Any], folder: Path, *, is_sweep: bool) -> str:
    """Return what to type to continue a stopped run.

    The command sets ``trust`` to the user's own modules, which would otherwise not be imported.
    """
    if is_sweep or not (folder / "last.pt").is_file():
        return "repeat the command"
    arguments = [f"resume={folder}"]
    targets = user_code(config)
    modules = sorted({target.rpartition(".")[0] for target in targets})
    if modules:
        arguments.append(f"trust=[{','.join(modules)}]")
    return f"continue with: {as_started('train')} {shlex.join(arguments)}"
