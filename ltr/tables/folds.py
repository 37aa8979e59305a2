"""Published rows beside ours, fold by fold: each fold's settings are chosen on its own vali."""

from collections.abc import Sequence
from itertools import product

import pandas as pd

from ltr.analysis.report import PUBLISHED, Block, Report
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.tables.config import TableConfig
from ltr.tables.measure import conventions_of
from ltr.tables.runs import Run
from ltr.tables.spec import FOLD_SPLITS, FOLDS, Table


def check_as_published(table: Table, order: TableConfig) -> None:
    """Raise ``ConfigError`` where ours would be of other settings than the published numbers."""
    for given in [*order.own("baseline", "margin", "percent", "budget"), *order.asked]:
        raise ConfigError(
            f"{given}: {table.name} stands beside published numbers, under the settings of its "
            "file; leave it out"
        )


def chosen_on_vali(table: Table, runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each row, fold, seed, split and metric: ours as chosen on vali, and the published.

    Of the choices of a row the best ``select_on`` of vali counts, in each fold and seed alone.
    """
    groups: dict[tuple[str, int, int], list[Run]] = {}
    for run in runs:
        group = table.rows[run.label].choice_of, run.fold or 1, run.seed
        groups.setdefault(group, []).append(run)
    lines = []
    for (row, fold, seed), tried in groups.items():
        results = {run.label: RunFolder(run.folder).results for run in tried}
        chosen = max(results, key=lambda label: results[label]["vali"][results[label]["select_on"]])
        for split, metric in product(FOLD_SPLITS, table.metrics):
            published = table.published[FOLDS].values[row][split][metric][fold - 1]
            lines.append(
                {
                    "row": row, "fold": fold, "seed": seed, "split": split, "metric": metric,
                    "ours": results[chosen][split][metric], PUBLISHED: published,
                    "chosen": chosen.removeprefix(row).strip(),
                    "epoch": results[chosen]["selected_epoch"],
                }
            )  # fmt: skip
    return pd.DataFrame(lines)


def fold_report(
    table: Table, runs: Sequence[Run], name: str, command: str
) -> tuple[Report, dict[str, pd.DataFrame]]:
    """The report of finished ``runs``, and the frame of its CSV file."""
    frame = chosen_on_vali(table, runs)
    levels = int(runs[0].config.suggested.levels)
    ((convention, of_convention),) = conventions_of(table, levels).items()
    folds = [f"fold {fold}" for fold in sorted(set(frame.fold))]
    blocks = []
    for split, metric in product(FOLD_SPLITS, table.metrics):
        numbers = frame[(frame.split == split) & (frame.metric == metric)]
        means = numbers.groupby(["row", "fold"], sort=False)[["ours", PUBLISHED]].mean()
        lines: list[list[str]] = []
        for label, of_row in means.groupby("row", sort=False):
            ours, theirs = ([*of_row[of], of_row[of].mean()] for of in ("ours", PUBLISHED))
            apart = [one - other for one, other in zip(ours, theirs, strict=True)]
            lines.append([str(label), *(f"{one:.4f}" for one in ours)])
            lines.append([f"{label} ({PUBLISHED})", *(f"{one:.4f}" for one in theirs)])
            lines.append(["difference", *(f"{one:+.4f}" for one in apart)])
        note = "the difference is ours less the published number"
        blocks.append(Block(f"{metric} of {split}", note, ("", *folds, "mean"), lines))
    one = frame[(frame.split == "test") & (frame.metric == table.metrics[0])]
    seeds = sorted(set(one.seed))
    settings = one.chosen + ", " + one.epoch.astype(str)
    chosen = [
        [f"{label}, seed {seed}" if len(seeds) > 1 else str(label), *of_row]
        for (label, seed), of_row in settings.groupby([one.row, one.seed], sort=False)
    ]
    note = "settings and epoch, of each fold alone"
    blocks.append(Block("Chosen on vali", note, ("", *folds), chosen))
    unknown = dict.fromkeys((row.choice_of, row.unknown) for row in table.rows.values())
    note = "what their source does not say"
    blocks.append(Block("Not known of the published rows", note, ("", "not known"), [*unknown]))
    facts = (
        ("runs", f"{len(runs)}, of which {len(one)} are shown: chosen on vali"),
        ("seeds", " ".join(map(str, seeds))),
        ("convention", f"{convention}: {of_convention.describe()}"),
        (PUBLISHED, table.published[FOLDS].source),
    )
    return Report(name, table.title, command, facts, blocks), {"table": frame}
