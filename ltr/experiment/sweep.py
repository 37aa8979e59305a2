"""The table at the end of a sweep, and the same as ``summary.csv`` in the sweep's folder."""

import os
import re
import sys
from contextlib import suppress
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from tabulate import tabulate

from ltr.atomic import atomic_write, write_csv
from ltr.console.arguments import quoted
from ltr.console.cli import Stop
from ltr.console.configs import CONFIGS
from ltr.console.folders import unshown_keys
from ltr.console.keys import Kind, flag, keys
from ltr.errors import ConfigError, DataError, OutputError
from ltr.experiment.run_folder import RunFolder

_METRICS = ("vali ", "crossfit ", "test ")  # how columns of metrics begin


class SweepSummary(Callback):
    """Hydra callback: keep ``summary.csv`` of a sweep up to date, and print it at the end."""

    def __init__(self, quiet: bool = False) -> None:
        """``quiet``: write and print nothing at the end."""
        self._quiet, self._sweep = quiet, 0

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Add what names the folders of the sweep and its jobs to the overrides of each job.

        A launcher's processes compose each job from its own overrides, which do not say it.
        """
        self._sweep = os.getpid()
        try:
            flag(config, "show_test")
        except ConfigError as error:
            raise Stop(error) from error
        try:
            folder = quoted(str(config.hydra.sweep.dir))
        except OmegaConfBaseException:
            return  # the sweep itself says what is wrong with it
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir={folder}")
        unshown = unshown_keys(config.hydra.overrides.task)
        if unshown != unshown_keys():
            key = "hydra.job.config.override_dirname.exclude_keys"
            config.hydra.overrides.hydra.append(f"{key}=[{','.join(unshown)}]")

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Remove the paths of this machine from what Hydra wrote."""
        folder = Path(config.hydra.runtime.output_dir)
        own = folder / str(config.hydra.output_subdir) / "hydra.yaml"
        for path in (own, folder.parent / "multirun.yaml"):
            if path.is_file():
                atomic_write(path, without_places(path.read_text(), Path.cwd()))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Write the summary of the sweep that this run is part of, also when it was resumed."""
        folder = Path(config.hydra.runtime.output_dir).parent
        if (folder / "multirun.yaml").is_file():
            with suppress(OutputError):  # the end of the sweep writes it again, or raises
                write_csv(folder / "summary.csv", read_runs(folder, check=False))
        if current_process().name.startswith("Loky") and os.getppid() != self._sweep:
            os._exit(0)  # the sweep was killed: nobody ends this process, nor gives it a job

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table; exit with 1 if a run failed."""
        folder = Path(config.hydra.sweep.dir)
        rows = [] if self._quiet else read_runs(folder)
        if not rows:
            return
        print(table_of(rows, test=flag(config, "show_test")))
        try:
            write_csv(folder / "summary.csv", rows)
        except OutputError as error:
            raise Stop(error) from error  # of any other error Hydra makes a warning
        print(f"\nkept in {folder} (summary.csv)")
        failed = [row for row in rows if row["status"] != "done"]
        for row in failed:
            print(f"{row['run']} failed: {row['status']}", file=sys.stderr)
        if failed:
            sys.exit(1)


def without_places(text: str, cwd: Path) -> str:
    """``text`` with paths as seen from ``cwd``.

    >>> without_places("cwd: /home/me/ltr\\ndir: /home/me/ltr/outputs/a", Path("/home/me/ltr"))
    'cwd: .\\ndir: ./outputs/a'
    """
    for place, name in ((CONFIGS, "configs"), (cwd, ".")):
        if place != Path("/"):
            text = re.sub(re.escape(str(place)) + r"(?![^/\s'\"])", name, text)
    return text


def read_runs(folder: Path, *, check: bool = True) -> list[dict[str, Any]]:
    """A row per run folder in ``folder``: the keys that vary, how it ended, its metrics.

    ``check``: read all files of a finished run, to find damage; else ``results.json`` alone.
    """
    typed: dict[RunFolder, dict[str, str]] = {}
    for hydra in sorted(folder.glob("*/.hydra/overrides.yaml"), key=_in_order):
        run = RunFolder(hydra.parents[1])
        typed[run] = {}
        with suppress(DataError):  # the row's status says so
            typed[run] = dict(item.lstrip("+").partition("=")[::2] for item in run.overrides)
    every = dict.fromkeys(key for overrides in typed.values() for key in overrides)
    varied = [key for key in every if len({one.get(key) for one in typed.values()}) > 1]
    return [
        {"run": run.folder.name}
        | {key: overrides.get(key, "") for key in varied}
        | _outcome(run, check=check)
        for run, overrides in typed.items()
    ]


def _in_order(hydra: Path) -> list[tuple[int, str]]:
    """Names in order, numbers in them by size: seed-2 stands before seed-10."""
    parts = re.split(r"(\d+)", hydra.parents[1].name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _outcome(run: RunFolder, *, check: bool) -> dict[str, Any]:
    if run.was_resumed:  # its metrics do not belong to these keys
        return {"status": "resumed with other settings; its sweep, given again, runs it anew"}
    if not run.finished:
        return {"status": run.error or "not finished"}
    try:
        _, results = run.overrides, run.checked_results() if check else run.results
    except DataError as error:
        return {"status": str(error)}
    row: dict[str, Any] = {"status": "done"}
    row |= {f"vali {name}": value for name, value in results["vali"].items()}
    if run.crossfit is not None:
        row[f"crossfit {results['select_on']}"] = run.crossfit
    row |= {f"test {name}": value for name, value in results["test"].items()}
    row |= {"epoch": results["selected_epoch"], "seconds": round(results["wall_seconds"])}
    row["convention"] = results["convention"]["text"]
    return row


def table_of(rows: list[dict[str, Any]], *, test: bool = False) -> str:
    """A line per run, below them the mean over seeds and folds, and the convention.

    ``test``: show its metrics too; settings that are chosen by them look better than they are.
    """
    of_test = {name for row in rows for name in row if name.startswith("test ")}
    conventions = sorted({row["convention"] for row in rows if "convention" in row})
    hidden = {"run", "convention", *(() if test else of_test)}
    rows = [{key: value for key, value in row.items() if key not in hidden} for row in rows]
    shown = [{key: _text(key, value) for key, value in row.items()} for row in rows]
    parts = [tabulate(shown, headers="keys", disable_numparse=True)]
    varied = list(shown[0])[: list(shown[0]).index("status")]
    if means := _means([row for row in rows if row["status"] == "done"], varied):
        parts.append(means)
    if conventions:
        parts.append("; ".join(conventions))
    if of_test and not test:
        parts.append("test is in summary.csv; the same command with show_test=true shows it")
    return "\n\n".join(parts)


def _text(name: str, value: Any) -> str:
    if name == "status":
        return "done" if value == "done" else "failed"
    return f"{value:.4f}" if name.startswith(_METRICS) else str(value)


def _means(done: list[dict[str, Any]], varied: list[str]) -> str:
    """Mean and standard deviation over seeds and folds, a row for each of the other settings."""
    import pandas as pd  # not before the end of a sweep

    repeated = [name for name in varied if name in keys(Kind.REPEAT)]
    compared = [name for name in varied if name not in repeated]
    if not repeated or len(done) < 2:
        return ""
    frame = pd.DataFrame(done)
    metrics = [name for name in done[0] if name.startswith(_METRICS)]
    metrics = [name for name in metrics if frame[name].notna().all()]  # select=last: no crossfit
    groups: Any = frame.groupby(compared, sort=False) if compared else [((), frame)]
    lines = []
    for key, group in groups:
        spread = [(group[name].mean(), group[name].std()) for name in metrics]
        cells = [f"{mean:.4f}" + f" ± {std:.4f}" * (len(group) > 1) for mean, std in spread]
        lines.append([*key, str(len(group)), *cells])
    table = tabulate(lines, [*compared, "runs", *metrics], disable_numparse=True)
    return f"mean ± standard deviation over {' and '.join(repeated)}\n{table}"
