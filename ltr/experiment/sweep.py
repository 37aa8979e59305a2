"""A sweep of ``ltr train``: its folder, a GPU for each process, and the table of its runs.

The rows of the printed table are also in ``summary.csv`` in the folder of the sweep. This module
also refuses to start a single run if its folder already holds another run.
"""

import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.atomic import write_csv
from ltr.cli.arguments import quoted
from ltr.cli.compose import explained
from ltr.cli.folders import jobs_of, result_overrides, swept
from ltr.cli.keys import Kind, keys
from ltr.cli.options import parse_flag
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RESUMED, RunFolder

if TYPE_CHECKING:
    import pandas as pd

_CONVENTION = "convention.text"  # column: the convention in words; convention may be a column too
_METRICS = ("vali ", "crossfit ", "test ")  # how the names of metric columns begin
_RUNS = "*/.hydra/overrides.yaml"  # a file of each run in the folder of a sweep
_TABLE_STYLE: Any = {"headers": "keys", "showindex": False, "missingval": ""}
_OFFERED = "LTR_GPUS"  # the GPUs for the processes of a launcher, such as 0,1,2,3
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def offer_gpus(count: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """If ``count`` > 1, let each process that a launcher starts use only one of ``count`` GPUs."""
    if count > 1:
        visible = environ.get(_VISIBLE) or ",".join(map(str, range(count)))
        environ[_OFFERED] = ",".join(visible.split(",")[:count])


def take_gpu(job: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Restrict this process to one GPU, chosen by the number ``job`` of its first job.

    Later jobs of the process use the same GPU. Call this function before CUDA starts.
    """
    gpus = environ.pop(_OFFERED).split(",")
    environ[_VISIBLE] = gpus[job % len(gpus)].strip()


class JobCallback(Callback):
    """Hydra callback that prepares and ends each job of a sweep, in the process of the job."""

    def __init__(self, swept: Sequence[str] = ()) -> None:
        """Remember the process of the sweep.

        ``swept`` is not used here: ``job_dir`` (``ltr/cli/folders.py``) reads it from the config.
        """
        self._sweep_process = os.getpid()

    def on_job_start(self, *args: Any, **kwargs: Any) -> None:
        """Take a GPU; remove the file ``hydra.yaml`` of the job, which names local folders."""
        hydra = HydraConfig.get()
        if _OFFERED in os.environ:
            take_gpu(int(hydra.job.num))
        folder = Path(hydra.runtime.output_dir)
        (folder / str(hydra.output_subdir) / "hydra.yaml").unlink(missing_ok=True)

    def on_job_end(self, *args: Any, **kwargs: Any) -> None:
        """End this process if its sweep was killed; it would otherwise wait for jobs forever."""
        if current_process().name.startswith("Loky") and os.getppid() != self._sweep_process:
            os._exit(0)


@dataclass(frozen=True)
class Sweep:
    """A sweep of ``ltr train``, before its jobs start."""

    folder: Path  # contains the folders of the runs
    varied: Sequence[str]  # the keys that have several values
    jobs: set[frozenset[str]] | None  # the ``result_overrides`` of each job; None: unknown
    show_test: bool  # whether the table shows test metrics

    @property
    def overrides(self) -> list[str]:
        """The overrides with which any process computes the same folder name for a job."""
        varied = ",".join(map(quoted, self.varied))
        return [
            f"hydra.sweep.dir={quoted(str(self.folder))}",
            f"hydra.callbacks.job.swept=[{varied}]",
        ]


def plan_sweep(config: DictConfig, loader: ConfigLoader | None = None) -> Sweep:
    """Return the sweep of ``config``, which ``HydraApp.compose`` returned.

    ``loader`` is Hydra's config loader.

    Raises:
        ConfigError: a key has a value that is not allowed in a sweep.
    """
    with explained():
        show_test = parse_flag("show_test", config.show_test)
        if config.resume is not None:
            raise ConfigError("resume=... continues a single run, not a sweep: leave out -m")
        hydra = config.hydra
        typed = list(hydra.overrides.task)
        jobs = None
        if hydra.runtime.choices["hydra/sweeper"] == "basic" and not hydra.sweeper.params:
            with suppress(HydraException):  # the sweeper reports it
                jobs = jobs_of(typed, loader)
        return Sweep(Path(hydra.sweep.dir), sorted(swept(typed)), jobs, show_test)


def summarise(sweep: Sweep) -> bool:
    """Print the table of a finished sweep, and write ``summary.csv``; return whether no run failed.

    Raises:
        OutputError: the file cannot be written.
    """
    folder = sweep.folder
    rows = read_runs(folder, sweep.jobs)
    if not rows:
        return True
    print(format_summary(rows, test=sweep.show_test))
    write_csv(folder / "summary.csv", rows)
    print(f"\nkept in {folder} (summary.csv)")
    not_shown = len([*folder.glob(_RUNS)]) - len(rows)
    if not_shown:
        print(f"not shown: {not_shown} runs in this folder that belong to other sweeps")
    failed = [row for row in rows if row["status"] != "done"]
    for row in failed:
        print(f"{row['run']} failed: {row['status']}", file=sys.stderr)
    return not failed


def check_folder(folder: Path, resume: str | None, overrides: Sequence[str]) -> None:
    """Raise ``ConfigError`` if a single run with these ``overrides`` must not use ``folder``.

    The run must not use the folder if another process is using it. If ``resume`` is None, the run
    must not use a folder that holds a run with other overrides either.
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
            f"hydra.run.dir={folder} holds another run: choose another folder, remove this folder, "
            f"or continue its run with resume={folder}"
        )


def read_runs(folder: Path, jobs: set[frozenset[str]] | None = None) -> list[dict[str, Any]]:
    """Return a row for each run in ``folder``: the keys that vary, the status and the metrics.

    If ``jobs``, a result of ``jobs_of``, is given, the runs of other jobs are left out.
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
        return {"status": "resumed with other settings; repeat the sweep to train it as before"}
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
    """Return the summary of a sweep as text.

    The summary has a line for each run, then means over seeds and folds, then the convention.

    Args:
        rows: the rows that ``read_runs`` returned.
        test: whether the test metrics are shown too; settings that are chosen by test metrics look
            better than they are.
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
    """Return means and standard deviations over seeds and folds, as text.

    ``done`` has a row for each finished run; ``varied`` names its columns of settings.
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
    """Return a sentence about test metrics that the table does not show; None if there are none."""
    finished = [row for row in rows if row["status"] == "done"]
    untested = [row for row in finished if not any(name.startswith("test ") for name in row)]
    if untested:
        return f"{len(untested)} of {len(finished)} runs have no test split"
    if finished and not test:
        return "the test metrics are in summary.csv; add show_test=true to show them here"
    return None
