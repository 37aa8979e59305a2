"""What a sweep does besides its runs: give each process a GPU, and print a table at the end.

``summary.csv`` in the folder of the sweep has the rows of this table. A single run is refused in
the folder of another run.
"""

import os
import re
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from tabulate import tabulate

from ltr.atomic import write_csv
from ltr.console.arguments import quoted
from ltr.console.cli import Stop
from ltr.console.folders import asked, jobs_of, swept
from ltr.console.keys import Kind, flag, keys
from ltr.console.process import rank
from ltr.errors import ConfigError, DataError, OutputError
from ltr.experiment.run_folder import RESUMED, RunFolder

_METRICS = ("vali ", "crossfit ", "test ")  # how the names of metric columns begin
_RUNS = "*/.hydra/overrides.yaml"  # a file of each run in the folder of a sweep
_OFFERED = "LTR_GPUS"  # the GPUs for the processes of a launcher, such as 0,1,2,3
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def offer_gpus(count: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let each process of a launcher take one of ``count`` GPUs; do nothing for a single GPU."""
    if count > 1:
        named = environ.get(_VISIBLE) or ",".join(map(str, range(count)))
        environ[_OFFERED] = ",".join(named.split(",")[:count])


def take_gpu(job: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let this process use only the GPU that the number of its first job gives it, for all its
    jobs. This must be called before CUDA starts.
    """
    gpus = environ.pop(_OFFERED).split(",")
    environ[_VISIBLE] = gpus[job % len(gpus)].strip()


class SweepSummary(Callback):
    """Hydra callback that prints the table of a sweep at its end and writes ``summary.csv``."""

    def __init__(self, quiet: bool = False, swept: Sequence[str] = ()) -> None:
        """With ``quiet``, print and write nothing at the end; ``swept`` is for ``job_dir``."""
        self._quiet, self._sweep = quiet, 0
        self._jobs: set[frozenset[str]] | None = None  # None: not known

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a folder that another run has, before anything is written there."""
        if rank() > 0:
            return
        HydraConfig.instance().set_config(config)  # the folder's name may refer to it
        try:
            folder = Path(config.hydra.run.dir)
        except OmegaConfBaseException:
            return  # Hydra resolves the name again, and reports the error
        try:
            check_folder(folder, config.resume, config.hydra.overrides.task)
        except ConfigError as error:
            raise Stop(error) from error

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Add the folder of the sweep, and the keys that vary, to the overrides from which a
        launcher composes each job.
        """
        self._sweep, hydra = os.getpid(), config.hydra
        try:
            flag(config, "show_test")
        except ConfigError as error:
            raise Stop(error) from error
        # the sweep itself reports these errors
        with suppress(OmegaConfBaseException, HydraException):
            typed, folder = hydra.overrides.task, quoted(str(hydra.sweep.dir))
            varied = ",".join(map(quoted, sorted(swept(typed))))
            more = [f"hydra.sweep.dir={folder}", f"hydra.callbacks.summary.swept=[{varied}]"]
            hydra.overrides.hydra.extend(more)
            if hydra.runtime.choices["hydra/sweeper"] == "basic" and not hydra.sweeper.params:
                self._jobs = jobs_of(typed, GlobalHydra.instance().config_loader())

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Take a GPU; remove the file ``hydra.yaml`` of the job, which names local folders."""
        if _OFFERED in os.environ:
            take_gpu(int(config.hydra.job.num))
        folder = Path(config.hydra.runtime.output_dir)
        (folder / str(config.hydra.output_subdir) / "hydra.yaml").unlink(missing_ok=True)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """End this process if its sweep was killed: nothing else ends it or gives it a job."""
        if current_process().name.startswith("Loky") and os.getppid() != self._sweep:
            os._exit(0)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table and write ``summary.csv``; exit with status 1 if a run failed."""
        folder = Path(config.hydra.sweep.dir)
        rows = [] if self._quiet else read_runs(folder, self._jobs)
        if not rows:
            return
        print(table_of(rows, test=flag(config, "show_test")))
        try:
            write_csv(folder / "summary.csv", rows)
        except OutputError as error:
            raise Stop(error) from error  # Hydra turns any other error into a warning
        print(f"\nkept in {folder} (summary.csv)")
        if others := sum(1 for _ in folder.glob(_RUNS)) - len(rows):
            print(f"runs of other grids there, not shown: {others}")
        failed = [row for row in rows if row["status"] != "done"]
        for row in failed:
            print(f"{row['run']} failed: {row['status']}", file=sys.stderr)
        if failed:
            sys.exit(1)


def check_folder(folder: Path, resume: str | None, overrides: Sequence[str]) -> None:
    """Raise ``ConfigError`` if a single run with these ``overrides`` must not use ``folder``: it is
    in use, or it holds a run of other overrides and is not to be resumed.
    """
    run = RunFolder(folder)
    if (folder / ".lock").is_file():
        with run.locked(wait=False):
            pass
    if resume is not None or not run.begun:
        return
    before = None
    with suppress(DataError):  # unreadable
        before = asked(run.overrides)
    if before != asked(overrides):
        raise ConfigError(
            f"hydra.run.dir={folder} holds another run: give another folder, remove that one, or "
            f"go on with its run by resume={folder}"
        )


def read_runs(folder: Path, jobs: set[frozenset[str]] | None = None) -> list[dict[str, Any]]:
    """Return a row for each run in ``folder``: the keys that vary, its status, its metrics. With
    ``jobs``, as ``jobs_of`` gives them, runs of other jobs are left out.
    """
    typed: dict[RunFolder, dict[str, str]] = {}
    runs = (hydra.parents[1] for hydra in folder.glob(_RUNS))
    # sorted so that seed-2 comes before seed-10
    for path in sorted(runs, key=lambda run: re.sub(r"\d+", lambda n: n[0].zfill(9), run.name)):
        run, overrides = RunFolder(path), list[str]()
        with suppress(DataError):  # the status of the row reports it
            overrides = run.overrides
        if jobs is None or frozenset(asked(overrides)) in jobs:
            typed[run] = dict(item.lstrip("+").partition("=")[::2] for item in overrides)
    every = dict.fromkeys(key for overrides in typed.values() for key in overrides)
    varied = [key for key in every if len({one.get(key) for one in typed.values()}) > 1]
    return [
        {
            "run": run.folder.name,
            **{key: overrides.get(key, "") for key in varied},
            **_outcome(run),
        }
        for run, overrides in typed.items()
    ]


def _outcome(run: RunFolder) -> dict[str, Any]:
    if run.identity == RESUMED:  # its metrics do not belong to these keys
        return {"status": "resumed with other settings; its sweep, given again, runs it anew"}
    if not run.finished:
        return {"status": run.error or "not finished"}
    if damage := run.damage():
        return {"status": damage}
    results = run.results
    worth = results.get("crossfit")
    parts = {
        "vali": results["vali"],
        "crossfit": {} if worth is None else {results["select_on"]: worth},
        "test": results.get("test", {}),
    }
    return {
        "status": "done",
        **{f"{part} {name}": one for part, means in parts.items() for name, one in means.items()},
        "epoch": results["selected_epoch"],
        "seconds": round(results["wall_seconds"]),
        "convention": results["convention"]["text"],
    }


def table_of(rows: list[dict[str, Any]], *, test: bool = False) -> str:
    """Return a text: a line per run, then means over seeds and folds, then the convention. With
    ``test`` it has the test metrics too; settings that are chosen by these look better than they
    are.
    """
    import pandas as pd  # slow to import, and needed only at the end of a sweep

    frame: Any = pd.DataFrame(rows, dtype=object).drop(columns="run")
    varied = [*frame.columns[: frame.columns.get_loc("status")]]
    conventions = sorted({str(row["convention"]) for row in rows if "convention" in row})
    of_test = [name for name in frame if name.startswith("test ")]
    frame = frame.drop(columns=["convention", *([] if test else of_test)], errors="ignore")
    done = frame[frame["status"] == "done"].dropna(axis=1)
    shown = frame.where(frame.notna(), None)
    shown["status"] = shown["status"].where(shown["status"] == "done", "failed")
    look: Any = {"headers": "keys", "showindex": False, "missingval": ""}
    parts = [tabulate(shown, floatfmt=".4f", **look)]
    repeated = [name for name in varied if name in keys(Kind.REPEAT)]
    if repeated and len(done) > 1:
        compared = [name for name in varied if name not in repeated]
        whole = [name for name in done if name.startswith(_METRICS)]
        groups = done.infer_objects().groupby(compared or (lambda _: ""), sort=False)[whole]
        count, mean, deviation = groups.size(), groups.mean(), groups.std()
        cells = mean.map("{:.4f}".format) + deviation.map(" ± {:.4f}".format).replace(" ± nan", "")
        cells.insert(0, "runs", count)
        means = tabulate(cells.reset_index(drop=not compared), **look)
        parts.append(f"mean ± standard deviation over {' and '.join(repeated)}\n{means}")
    parts += ["; ".join(conventions)] if conventions else []
    finished = [row for row in rows if row["status"] == "done"]
    untested = [row for row in finished if not any(name.startswith("test ") for name in row)]
    if untested:
        parts.append(f"{len(untested)} of {len(finished)} runs have no test split")
    elif finished and not test:
        parts.append("test is in summary.csv; the same command with show_test=true shows it")
    return "\n\n".join(parts)
