"""Published rows beside ours, fold by fold: each fold's settings are chosen on its own vali."""

from collections.abc import Sequence
from itertools import product

import pandas as pd

from ltr.analysis.report import PUBLISHED, Block, Report
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention
from ltr.tables.config import TableConfig
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
    table: Table, order: TableConfig, frame: pd.DataFrame, runs: int, convention: Convention
) -> Report:
    """The report of ``chosen_on_vali`` of ``runs`` runs."""
    labels, seeds = list(dict.fromkeys(frame.row)), sorted(set(frame.seed))
    folds = [f"fold {fold}" for fold in sorted(set(frame.fold))]
    blocks = []
    for split, metric in product(FOLD_SPLITS, table.metrics):
        numbers = frame[(frame.split == split) & (frame.metric == metric)]
        means = numbers.groupby(["row", "fold"])[["ours", PUBLISHED]].mean()
        lines = [line for label in labels for line in _beside(label, means.loc[label])]
        note = "the difference is ours less the published number"
        head = ("", *folds, "mean")
        blocks.append(Block(f"{metric} of {split}", note, head, lines))
    one = frame[(frame.split == "test") & (frame.metric == table.metrics[0])]
    chosen = [
        (
            label if len(seeds) == 1 else f"{label}, seed {seed}",
            *(
                f"{line.chosen}, {line.epoch}"
                for line in one[(one.row == label) & (one.seed == seed)].itertuples()
            ),
        )
        for label, seed in product(labels, seeds)
    ]
    unknown = {row.choice_of: row.unknown for row in table.rows.values()}
    return Report(
        name=order.name("folds", order.of_table),
        title=table.title,
        command=order.command(order.of_table),
        facts=(
            ("runs", f"{runs}, of which {len(one)} are shown: chosen on vali"),
            ("seeds", " ".join(map(str, seeds))),
            ("convention", f"{table.conventions[0]}: {convention.describe()}"),
            (PUBLISHED, table.published[FOLDS].source),
        ),
        blocks=(
            *blocks,
            Block(
                "Chosen on vali", "settings and epoch, of each fold alone", ("", *folds),
                chosen,
            ),
            Block(
                "Not known of the published rows", "what their source does not say",
                ("", "not known"), [(label, unknown[label]) for label in labels],
            ),
        ),
    )  # fmt: skip


def _beside(label: str, means: pd.DataFrame) -> list[tuple[str, ...]]:
    """Ours, the published numbers and the differences of one row, by fold and as a mean."""
    means = pd.concat([means, means.mean().to_frame("mean").T])
    lines = {
        label: (means.ours, ".4f"),
        f"{label} ({PUBLISHED})": (means[PUBLISHED], ".4f"),
        "difference": (means.ours - means[PUBLISHED], "+.4f"),
    }
    return [
        (name, *(f"{value:{form}}" for value in values)) for name, (values, form) in lines.items()
    ]
