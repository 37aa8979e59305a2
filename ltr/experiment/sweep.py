"""The table at the end of a sweep, and the same as ``summary.csv`` in the sweep's folder."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

log = logging.getLogger(__name__)

_REPEATS = ("seed", "dataset.fold", "dataset.seed")  # what a sweep repeats rather than compares


class SweepSummary(Callback):
    """Hydra callback: summarise all runs of a sweep; exit with 1 if one of them failed."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read the folders of the runs, print and write the table."""
        folder = Path(config.hydra.sweep.dir)
        rows = read_runs(folder)
        if not rows:
            return
        print(summarise(folder, rows))
        failed = [row["run"] for row in rows if row["status"] != "done"]
        if failed:
            print(f"{len(failed)} of {len(rows)} runs failed; see error.txt and train.log in their "
                  "folders", file=sys.stderr)
            sys.exit(1)


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """A row per run folder in ``folder``: what varied, how it ended, its metrics."""
    runs = []
    for hydra in sorted(folder.glob("*/.hydra/overrides.yaml"), key=_number):
        run = hydra.parents[1]
        overrides = dict(
            str(item).lstrip("+").partition("=")[::2] for item in OmegaConf.load(hydra)
        )
        runs.append((run, overrides))
    varied = [
        key
        for key in dict.fromkeys(key for _, overrides in runs for key in overrides)
        if len({overrides.get(key) for _, overrides in runs}) > 1
    ]
    return [
        {"run": run.name, **{key: overrides.get(key, "") for key in varied}, **_outcome(run)}
        for run, overrides in runs
    ]


def _number(hydra: Path) -> tuple[int, str]:
    name = hydra.parents[1].name
    head = name.partition("-")[0]
    return (int(head) if head.isdigit() else sys.maxsize, name)


def _outcome(run: Path) -> dict[str, Any]:
    if not (run / "results.json").is_file():
        error = run / "error.txt"
        reason = error.read_text().strip().splitlines()[0] if error.is_file() else "cut off"
        return {"status": reason}
    results = json.loads((run / "results.json").read_text())
    row: dict[str, Any] = {"status": "done"}
    row |= {f"vali {name}": value for name, value in results["vali"].items()}
    row |= {f"test {name}": value for name, value in results["test"].items()}
    row |= {"epoch": results["selected_epoch"], "seconds": round(results["wall_seconds"], 1)}
    row["convention"] = results["convention"]["text"]
    return row


def summarise(folder: Path, rows: list[dict[str, Any]]) -> str:
    """Write ``summary.csv``; return the table, and below it the mean over seeds and folds."""
    import pandas as pd  # slow to import; only needed at the end
    from tabulate import tabulate

    table = pd.DataFrame(rows)
    part = folder / ".summary.csv.part"
    table.to_csv(part, index=False)
    part.replace(folder / "summary.csv")

    conventions = sorted(set(table.get("convention", pd.Series(dtype=str)).dropna()))
    shown = table.drop(columns=["run", "convention"], errors="ignore")
    parts = [tabulate(shown, "keys", showindex=False, floatfmt=".4f", missingval="")]
    metrics = [name for name in shown if str(name).startswith(("vali ", "test "))]
    last = shown.columns.get_loc("status")
    varied = list(shown.columns[:last])
    repeated = [name for name in varied if name in _REPEATS]
    compared = [name for name in varied if name not in _REPEATS]
    done = shown[shown["status"] == "done"]
    if repeated and len(done) > 1:
        lines = []
        groups = done.groupby(compared, sort=False) if compared else [((), done)]
        for key, group in groups:
            means, spread = group[metrics].mean(), group[metrics].std()
            values = [f"{means[m]:.4f} ± {spread[m]:.4f}" for m in metrics]
            lines.append([*key, len(group), *values])
        title = f"mean ± standard deviation over {' and '.join(repeated)}"
        parts.append(f"{title}\n{tabulate(lines, [*compared, 'runs', *metrics])}")
    parts.append("; ".join(conventions))
    parts.append(f"kept in {folder} (summary.csv)")
    return "\n\n".join(parts)
