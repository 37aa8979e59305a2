"""``train.py``'s job: begin, resume or skip a run; a failed run does not end a sweep."""

import hashlib
import logging
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ltr.console.compose import choices_of
from ltr.console.ending import is_full, one_line
from ltr.console.folders import run_folder
from ltr.console.keys import Resumed, keys
from ltr.console.torchrun import check_torchrun, processes, rank
from ltr.errors import ConfigError, OutputError, as_started
from ltr.experiment.build import build
from ltr.experiment.gpus import take_gpu
from ltr.experiment.identity import SHOWN, identity
from ltr.experiment.kept import kept_config, trusted
from ltr.experiment.parts import PARTS, by_rounds
from ltr.experiment.provenance import asked_place, elsewhere
from ltr.experiment.run import run
from ltr.experiment.run_folder import NOTE, RESULTS, RunFolder, by_identity
from ltr.tracking import KEPT
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.device import pick_device
from ltr.training.interruption import Interrupted, handing_on, stoppable
from ltr.training.processes import first, joined, of_first
from ltr.whole import write_whole

log = logging.getLogger(__name__)

_RESUMED = " resumed"  # ends a note that is the identity of no run
_NOT_RESULTS = (".hydra", ".lock", "train.log", "error.txt", NOTE)
_OF_TEST = (RESULTS, "scores.csv", "queries.csv")
_OWN = (*_NOT_RESULTS, *_OF_TEST, KEPT)  # what a run takes from no other
_OTHER = {"best": "last", "last": "best"}


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
    if processes() > 1:
        cfg = _sliced(cfg)
    try:
        with stoppable(), _together(cfg):
            folder = of_first(folder)
            with alone(folder, wait=sweep) if first() else nullcontext():
                if sweep:
                    value = _continued(cfg, folder, choices)
                else:
                    if first() and cfg.resume is not None and (folder / NOTE).is_file():
                        _leave_sweep(cfg, folder)
                    value = run(cfg, folder, choices, printed=True)[f"vali_{cfg.select_on}"]
    except Interrupted as stop:
        log.info("stopped by %s; %s", stop, _how_to_go_on(folder, sweep))
        raise
    except Exception as error:
        line = one_line(error)
        if is_full(error):  # the other runs of a sweep could not write either
            raise OutputError(f"{line}; then {_how_to_go_on(folder, sweep)}") from error
        with suppress(OutputError):
            if rank() == 0:
                write_whole(folder / "error.txt", f"{type(error).__name__}: {line or error}\n")
        if not sweep:
            raise
        # The other runs of the sweep go on; the summary names this one.
        log.error("failed: %s", line or error, exc_info=line is None)
        return float("nan")
    with suppress(OSError):
        if rank() == 0:
            (folder / "error.txt").unlink(missing_ok=True)  # of an earlier attempt
    return value


def _together(cfg: DictConfig) -> AbstractContextManager[None]:
    """Within, torchrun's processes are joined; nothing where this is the only one."""
    return joined(pick_device(cfg.device)) if processes() > 1 else nullcontext()


def _sliced(cfg: DictConfig) -> DictConfig:
    """``cfg`` for torchrun's processes: with a slice for each, where it sets no number of slices.

    Raises:
        ConfigError: its model or its slices are not for so many processes.
    """
    count = processes()
    if by_rounds(cfg.model):
        name = str(cfg.model._target_).rpartition(".")[2]
        raise ConfigError(
            f"torchrun with {count} processes: one fits {name}, with all threads; start it without "
            "torchrun"
        )
    if cfg.shards is None and cfg.resume is not None:
        raise ConfigError(
            f"resume={cfg.resume}: one process began it with shards=null, and {count} would give "
            "other numbers; resume it without torchrun, or begin anew with shards=N"
        )
    if cfg.shards is None:
        cfg = cfg.copy()
        cfg.shards = count
    if cfg.shards < count:
        raise ConfigError(
            f"shards={cfg.shards} gives {count} processes no work: set --nproc-per-node lower"
            + (", or shards higher" if cfg.resume is None else "")
        )
    return cfg


def _how_to_go_on(folder: Path, sweep: bool) -> str:
    if sweep or not (folder / "last.pt").is_file():
        return "give the same command again"
    return f"go on with: {as_started('train')} {shlex.quote(f'resume={folder}')}"


def _continued(cfg: DictConfig, folder: Path, choices: dict[str, str]) -> float:
    """Do what is left of a sweep's run; return its value."""

    def identity_of(select: str) -> str:
        other = cfg.copy()
        other.select = select
        return identity(other)

    standing = take_up(folder, identity(cfg))
    if standing is Standing.NEW and adopt(folder, str(cfg.select), identity_of):
        standing = Standing.CUT_OFF
    if standing is Standing.DONE:
        log.info("%s is done already", folder)
        if note := elsewhere([folder], asked_place(cfg)):
            log.info("%s", note)
        return float(RunFolder(folder).results["vali"][str(cfg.select_on)])
    if standing is Standing.CUT_OFF:
        cfg = cfg.copy()
        cfg.resume = str(folder)
    return run(cfg, folder, choices)[f"vali_{cfg.select_on}"]


def _leave_sweep(cfg: DictConfig, folder: Path) -> None:
    """Note a sweep's run that is resumed as another, so that the sweep does not take it for its."""
    build(cfg)  # a mistake ends here, and changes nothing
    if note_resumed(folder, identity(cfg)):
        log.info(
            "%s goes on with other settings, data or code than its sweep began it with: given "
            "again, the sweep runs it anew and keeps this one beside it",
            folder,
        )


@contextmanager
def alone(folder: Path, *, wait: bool) -> Iterator[None]:
    """Lock the run folder, so that no two processes run it at once."""
    try:
        held = FileLock(folder / ".lock").acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise ConfigError(
            f"{folder} is in use: another process is training it; wait for it or stop it"
        ) from None
    with held:
        yield


def resumed(cfg: DictConfig, overrides: list[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config and choices of the run ``cfg.resume``, with what the command line may change.

    Raises:
        CheckpointError: there is no readable ``last.pt``.
        ConfigError: the command line changes what the run computes, or asks for fewer epochs than
            it has done, or the checkpoint's config names code that is not trusted.
    """
    folder = run_folder(cfg.resume)
    kept = load_checkpoint(folder / "last.pt")
    typed = [override.lstrip("+~").split("=")[0] for override in overrides]
    may = keys(Resumed.TYPED, Resumed.OWN)
    other = [key for key in typed if key not in may]
    if other:
        raise ConfigError(
            f"resume goes on with the run's own config, {other[0]} cannot change; leave it out "
            f"(only {', '.join(may)} may differ) or start a new run"
        )
    given: Any = OmegaConf.to_container(cfg, resolve=True)
    done = kept["progress"]["epoch"] + (kept["progress"]["step"] > 0)
    if "epochs" in typed and isinstance(given["epochs"], int) and 0 <= given["epochs"] < done:
        raise ConfigError(
            f"resume={cfg.resume} epochs={given['epochs']}: epoch {done} is done or begun: give "
            f"epochs={done} or more, or start a new run"
        )
    of_user = keys(Resumed.OWN, Resumed.FOLDER)
    own = kept_config(kept, folder) | {
        key: given[key] for key in (*of_user, *typed) if key in given
    }
    choices = {str(group): str(choice) for group, choice in kept["choices"].items()}
    return trusted(own, [*PARTS, "metrics"], cfg.trust), choices


class Standing(Enum):
    """How far a sweep's run is."""

    DONE = "done"
    CUT_OFF = "cut off"
    NEW = "new"


def take_up(folder: Path, identity: str) -> Standing:
    """Find how far the run in ``folder`` is, and prepare the folder for it.

    Results of another identity (code or data have changed since) move to ``before-<their
    identity>`` in the folder. Hold the folder's lock when you call this.

    Args:
        folder: exists; Hydra has written its own files to it.
        identity: of the run that is asked for.
    """
    run = RunFolder(folder)
    if run.identity == identity:
        damage = run.damage() if run.finished else None
        if run.finished and damage is None:
            return Standing.DONE
        if damage is not None:
            log.warning("%s", damage)
        return Standing.CUT_OFF if run.last.is_file() else Standing.NEW
    old = folder / f"before-{_shown(folder)}"
    for path in sorted(folder.iterdir()):
        if path.name not in _NOT_RESULTS and not path.name.startswith(("before-", ".")):
            old.mkdir(exist_ok=True)
            path.replace(old / path.name)
    if old.is_dir():
        log.info("%s: results of other code or data, now in %s", folder, old.name)
    write_whole(folder / NOTE, identity + "\n")
    return Standing.NEW


def adopt(folder: Path, select: str, identity_of: Callable[[str], str]) -> bool:
    """Copy the training of a finished run beside ``folder`` that differs in ``select`` alone.

    That run keeps both its best and its last epoch, so there is nothing left to train. Where it
    cannot be read or copied, nothing is copied.

    Args:
        folder: of a run that is new; hold its lock when you call this.
        select: the epoch that this run tests, ``best`` or ``last``.
        identity_of: the identity of the same run with another ``select``.

    Returns:
        Whether there is such a run, and it was copied.
    """
    twin = by_identity(folder.parent).get(identity_of(_OTHER[select]))
    if twin is None or not RunFolder(twin).finished or RunFolder(twin).damage() is not None:
        return False
    taken = []
    try:
        for path in sorted(twin.iterdir()):
            own = folder / path.name
            if path.is_file() and path.suffix != ".pt" and path.name not in _OWN:
                taken.append(own)
                shutil.copyfile(path, own)
        for name in ("best.pt", "last.pt"):  # the copy is complete with the last one
            taken.append(folder / name)
            content = load_checkpoint(twin / name)
            content["config"]["select"] = select
            save_checkpoint(folder / name, content)
    except Exception:  # whatever is wrong with that run, this one can be trained
        for own in taken:
            own.unlink(missing_ok=True)
        return False
    log.info("trained as %s, which tested another epoch", twin)
    return True


def note_resumed(folder: Path, identity: str) -> bool:
    """Before a sweep's run is resumed by itself as ``identity``: if that is another, note it.

    Begun as one run and ended as another (other epochs, other code) it is neither: a schedule may
    follow ``epochs``. ``take_up`` never takes the new note for an identity, and it is written
    before the first step, so that this holds wherever the run is killed.

    Returns:
        Whether it is another.
    """
    before = RunFolder(folder).identity
    if before == identity:
        return False
    mixed = hashlib.sha256(f"{before} {identity}".encode()).hexdigest()
    write_whole(folder / NOTE, f"{mixed}{_RESUMED}\n")
    return True


def _shown(folder: Path) -> str:
    """A few characters that tell the note of ``folder`` from others."""
    note = folder / NOTE
    if not note.is_file():
        return "unknown"
    content = note.read_bytes()
    begins = re.match(rb"[0-9a-f]{64}", content)
    return (begins[0].decode() if begins else hashlib.sha256(content).hexdigest())[:SHOWN]
