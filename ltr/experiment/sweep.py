"""The table at the end of a sweep, and the same as ``summary.csv`` in the sweep's folder."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    import pandas as pd

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
            print(
                f"{len(failed)} of {len(rows)} runs failed; see error.txt and train.log in their "
                "folders",
                file=sys.stderr,
            )
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
    row |= {"epoch": results["selected_epoch"], "seconds": round(results["wall_seconds"])}
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

    conventions = sorted({row["convention"] for row in rows if "convention" in row})
    shown = [{k: v for k, v in row.items() if k not in ("run", "convention")} for row in rows]
    parts = [tabulate(shown, headers="keys", floatfmt=".4f", missingval="")]
    varied = list(shown[0])[: list(shown[0]).index("status")]
    if means := _means(table[table["status"] == "done"], varied):
        parts.append(means)
    parts += ["; ".join(conventions), f"kept in {folder} (summary.csv)"]
    return "\n\n".join(parts)


def _means(done: "pd.DataFrame", varied: list[str]) -> str:
    """Mean and standard deviation over what the sweep repeats, a row per thing it compares."""
    from tabulate import tabulate

    repeated = [name for name in varied if name in _REPEATS]
    compared = [name for name in varied if name not in _REPEATS]
    if not repeated or len(done) < 2:
        return ""
    metrics = [str(name) for name in done if str(name).startswith(("vali ", "test "))]
    rows: list[list[Any]] = []
    for key, group in done.groupby(compared, sort=False) if compared else [((), done)]:
        values = [f"{group[m].mean():.4f} ± {group[m].std():.4f}" for m in metrics]
        rows.append([*key, len(group), *values])
    title = f"mean ± standard deviation over {' and '.join(repeated)}"
    return f"{title}\n{tabulate(rows, [*compared, 'runs', *metrics])}"
