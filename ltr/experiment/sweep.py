"""The Hydra callback of ``train.py``: give each process a GPU, and summarise a sweep at its end.

The rows of the printed table are also in ``summary.csv`` in the folder of the sweep. A single run
is refused in the folder of another run.
"""

import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from tabulate import tabulate

from ltr.atomic import write_csv
from ltr.cli.arguments import quoted
from ltr.cli.cli import Stop
from ltr.cli.folders import jobs_of, result_overrides, swept
from ltr.cli.keys import Kind, keys
from ltr.cli.options import parse_flag
from ltr.cli.process import torchrun_rank
from ltr.errors import ConfigError, DataError, OutputError
from ltr.experiment.run_folder import RESUMED, RunFolder

if TYPE_CHECKING:
    import pandas as pd

_CONVENTION = "convention.text"  # column: in words; the key convention may be a column, too
_METRICS = ("vali ", "crossfit ", "test ")  # how the names of metric columns begin
_RUNS = "*/.hydra/overrides.yaml"  # a file of each run in the folder of a sweep
_TABLE_STYLE: Any = {"headers": "keys", "showindex": False, "missingval": ""}
_OFFERED = "LTR_GPUS"  # the GPUs for the processes of a launcher, such as 0,1,2,3
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def offer_gpus(count: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let each process of a launcher take one of ``count`` GPUs; do nothing for a single GPU."""
    if count > 1:
        visible = environ.get(_VISIBLE) or ",".join(map(str, range(count)))
        environ[_OFFERED] = ",".join(visible.split(",")[:count])


def take_gpu(job: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let this process use only one GPU, which the number of its first job gives it.

    Its later jobs use the same one. This must be called before CUDA starts.
    """
    gpus = environ.pop(_OFFERED).split(",")
    environ[_VISIBLE] = gpus[job % len(gpus)].strip()


class SweepSummary(Callback):
    """Hydra callback that prints the table of a sweep at its end and writes ``summary.csv``."""

    def __init__(self, quiet: bool = False, swept: Sequence[str] = ()) -> None:
        """With ``quiet``, print and write nothing at the end; ``swept`` is for ``job_dir``."""
        self._quiet = quiet
        self._sweep_process = 0
        self._show_test = False
        self._jobs: set[frozenset[str]] | None = None  # None: not known

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a folder that another run has, before anything is written there."""
        if torchrun_rank() > 0:
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
        """Add the folder of the sweep, and the keys that vary, to the overrides of each job."""
        self._sweep_process = os.getpid()
        hydra = config.hydra
        try:
            self._show_test = parse_flag("show_test", config.show_test)
        except ConfigError as error:
            raise Stop(error) from error
        # the sweep itself reports these errors
        with suppress(OmegaConfBaseException, HydraException):
            typed = hydra.overrides.task
            folder = quoted(str(hydra.sweep.dir))
            varied = ",".join(map(quoted, sorted(swept(typed))))
            hydra.overrides.hydra.append(f"hydra.sweep.dir={folder}")
            hydra.overrides.hydra.append(f"hydra.callbacks.summary.swept=[{varied}]")
            if hydra.runtime.choices["hydra/sweeper"] == "basic" and not hydra.sweeper.params:
                self._jobs = jobs_of(typed, GlobalHydra.instance().config_loader())

    def on_job_start(self, *args: Any, **kwargs: Any) -> None:
        """Take a GPU; remove the file ``hydra.yaml`` of the job, which names local folders."""
        hydra = HydraConfig.get()
        if _OFFERED in os.environ:
            take_gpu(int(hydra.job.num))
        folder = Path(hydra.runtime.output_dir)
        (folder / str(hydra.output_subdir) / "hydra.yaml").unlink(missing_ok=True)

    def on_job_end(self, *args: Any, **kwargs: Any) -> None:
        """End this process if its sweep was killed: nothing else ends it or gives it a job."""
        if current_process().name.startswith("Loky") and os.getppid() != self._sweep_process:
            os._exit(0)

    def on_multirun_end(self, *args: Any, **kwargs: Any) -> None:
        """Print the table and write ``summary.csv``; exit with status 1 if a run failed."""
        folder = Path(kwargs["config"].hydra.sweep.dir)
        rows = [] if self._quiet else read_runs(folder, self._jobs)
        if not rows:
            return
        print(format_summary(rows, test=self._show_test))
        try:
            write_csv(folder / "summary.csv", rows)
        except OutputError as error:
            raise Stop(error) from error  # Hydra turns any other error into a warning
        print(f"\nkept in {folder} (summary.csv)")
        not_shown = len([*folder.glob(_RUNS)]) - len(rows)
        if not_shown:
            print(f"runs of other grids there, not shown: {not_shown}")
        failed = [row for row in rows if row["status"] != "done"]
        for row in failed:
            print(f"{row['run']} failed: {row['status']}", file=sys.stderr)
        if failed:
            sys.exit(1)


def check_folder(folder: Path, resume: str | None, overrides: Sequence[str]) -> None:
    """Raise ``ConfigError`` if a single run with these ``overrides`` must not use ``folder``.

    It must not if the folder is in use, or if it holds a run of other overrides and is not to be
    resumed.
    """
    run = RunFolder(folder)
    if (folder / ".lock").is_file():
        with run.locked(wait=False):
            pass
    if resume is not None or not run.begun:
        return
    overrides_there = None
    with suppress(DataError):  # they cannot be read
        overrides_there = result_overrides(run.overrides)
    if overrides_there != result_overrides(overrides):
        raise ConfigError(
            f"hydra.run.dir={folder} holds another run: give another folder, remove that one, or "
            f"go on with its run by resume={folder}"
        )


def read_runs(folder: Path, jobs: set[frozenset[str]] | None = None) -> list[dict[str, Any]]:
    """Return a row for each run in ``folder``: the keys that vary, its status, its metrics.

    With ``jobs``, as ``jobs_of`` gives them, runs of other jobs are left out.
    """
    values_of_runs: dict[RunFolder, dict[str, str]] = {}
    for path in sorted((file.parents[1] for file in folder.glob(_RUNS)), key=_natural_order):
        run = RunFolder(path)
        overrides: list[str] = []
        with suppress(DataError):  # the status of the row reports it
            overrides = run.overrides
        if jobs is None or frozenset(result_overrides(overrides)) in jobs:
            pairs = (override.lstrip("+").partition("=")[::2] for override in overrides)
            values_of_runs[run] = dict(pairs)
    keys_of_runs = dict.fromkeys(key for values in values_of_runs.values() for key in values)
    varied = [
        key
        for key in keys_of_runs
        if len({values.get(key) for values in values_of_runs.values()}) > 1
    ]
    return [
        {
            "run": run.folder.name,
            **{key: values.get(key, "") for key in varied},
            **_outcome(run),
        }
        for run, values in values_of_runs.items()
    ]


def _natural_order(path: Path) -> str:
    """Return a sort key by which seed-2 comes before seed-10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), path.name)


def _outcome(run: RunFolder) -> dict[str, Any]:
    """Return the status of a run and, if it is done, its metrics."""
    if run.identity == RESUMED:  # its metrics do not belong to these keys
        return {"status": "resumed with other settings; its sweep, given again, runs it anew"}
    if not run.finished:
        return {"status": run.error or "not finished"}
    damage = run.damage()
    if damage is not None:
        return {"status": damage}
    results = run.results
    crossfit = results.get("crossfit")
    means_by_name = {
        "vali": results["vali"],
        "crossfit": {} if crossfit is None else {results["select_on"]: crossfit},
        "test": results.get("test", {}),
    }
    metrics = {
        f"{name} {metric}": value
        for name, means in means_by_name.items()
        for metric, value in means.items()
    }
    return {
        "status": "done",
        **metrics,
        "epoch": results["selected_epoch"],
        "seconds": round(results["wall_seconds"]),
        _CONVENTION: results["convention"]["text"],
    }


def format_summary(rows: list[dict[str, Any]], *, test: bool = False) -> str:
    """Return the text about a sweep.

    It has a line per run, then means over seeds and folds, then the convention.

    Args:
        rows: what ``read_runs`` returned.
        test: show the test metrics too; settings that are chosen by these look better than they
            are.
    """
    import pandas as pd  # slow to import, and needed only at the end of a sweep

    frame: Any = pd.DataFrame(rows, dtype=object).drop(columns="run")
    varied = [*frame.columns[: frame.columns.get_loc("status")]]
    hidden = [] if test else [name for name in frame if name.startswith("test ")]
    frame = frame.drop(columns=[_CONVENTION, *hidden], errors="ignore")
    shown = frame.where(frame.notna(), None)
    shown["status"] = shown["status"].where(shown["status"] == "done", "failed")
    sections = [tabulate(shown, floatfmt=".4f", **_TABLE_STYLE)]
    done = frame[frame["status"] == "done"].dropna(axis=1)
    if len(done) > 1 and any(name in keys(Kind.REPEAT) for name in varied):
        sections.append(_format_means(done, varied))
    conventions = sorted({str(row[_CONVENTION]) for row in rows if _CONVENTION in row})
    if conventions:
        sections.append("; ".join(conventions))
    remark = _remark_on_test(rows, test=test)
    if remark is not None:
        sections.append(remark)
    return "\n\n".join(sections)


def _format_means(done: "pd.DataFrame", varied: Sequence[str]) -> str:
    """Return means and standard deviations over seeds and folds.

    ``done`` has a row for each finished run, ``varied`` are its columns of settings.
    """
    repeated = [name for name in varied if name in keys(Kind.REPEAT)]
    compared: Any = [name for name in varied if name not in repeated]
    metrics: Any = [name for name in done if str(name).startswith(_METRICS)]
    groups = done.infer_objects().groupby(compared or (lambda _: ""), sort=False)[metrics]
    means = groups.mean().map("{:.4f}".format)
    deviations = groups.std().map(" ± {:.4f}".format).replace(" ± nan", "")
    cells = means + deviations
    cells.insert(0, "runs", groups.size())
    table = tabulate(cells.reset_index(drop=not compared), **_TABLE_STYLE)
    return f"mean ± standard deviation over {' and '.join(repeated)}\n{table}"


def _remark_on_test(rows: Sequence[Mapping[str, Any]], *, test: bool) -> str | None:
    """Return a sentence about the test metrics that the table does not show."""
    finished = [row for row in rows if row["status"] == "done"]
    untested = [row for row in finished if not any(name.startswith("test ") for name in row)]
    if untested:
        return f"{len(untested)} of {len(finished)} runs have no test split"
    if finished and not test:
        return "test is in summary.csv; the same command with show_test=true shows it"
    return None
