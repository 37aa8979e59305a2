"""Decide whether the runs of a table can be compared with its published numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from ltr.cli.arguments import merged
from ltr.cli.compose import run_config
from ltr.cli.configs import files_of
from ltr.cli.keys import Kind, flat, without
from ltr.data.lists import splits_of
from ltr.data.public_sets import public_sets
from ltr.experiment.prepare_data import counts_of, differences
from ltr.lab.tables.runs import Run
from ltr.lab.tables.spec import Table, key_of
from ltr.parts.components import build_dataset

# Keys that change neither the training nor the choice of the epoch.
_MEASUREMENT = ("metrics", "own_metrics", "monitor")


def why_left_out(
    table: Table, overrides: Sequence[str], runs: Sequence[Run], split: str, searched: str | None
) -> str | None:
    """Return why the published numbers of ``table`` cannot be compared with ``runs``.

    The numbers are comparable only with runs that are measured on the test split of the data set
    for which they were published, and that have the settings in the table's file.

    Args:
        table: the table, with the rows that are shown.
        overrides: the user's overrides that can change a result.
        runs: the planned runs of the table.
        split: the split that the runs are measured on.
        searched: the argument that replaces settings with those of a search, such as
            ``budget=20``; None if there is none.

    Returns:
        The reason in words; None if the numbers can be compared, or if the table has none.

    Raises:
        DataError: the data are missing.
    """
    if not table.published:
        return None
    names = list(dict.fromkeys(str(run.config.dataset.name) for run in runs))
    if len(names) > 1 or names[0] not in table.published:
        return (
            f"they were measured on {' and '.join(table.published)}, not on {' and '.join(names)}"
        )
    (name,) = names
    difference = data_difference(name, runs)
    if difference:
        return f"they were measured on other data: {difference}"
    if split != "test":
        return f"they were measured on test, but these runs were measured on {split}"
    override = changed_setting(table, overrides, name)
    if override:
        return f"{override} changes the settings for which they were published"
    if searched is not None and not table.published[name].searched:
        return f"{searched} changes the settings for which they were published"
    return None


def data_difference(name: str, runs: Sequence[Run]) -> str | None:
    """Return how the lists of ``runs`` differ from the known counts of the data set ``name``.

    Returns:
        The difference in words; None if there is none, or if ``name`` is not a public data set.

    Raises:
        DataError: the lists are missing.
    """
    folds_of_dataset: dict[str, dict[int | None, Any]] = {}
    for run in runs:
        node: Any = OmegaConf.to_container(run.config.dataset, resolve=True)
        settings = {key: value for key, value in node.items() if key != "fold"}
        folds_of_dataset.setdefault(str(settings), {}).setdefault(run.fold, run.config.dataset)
    for folds in folds_of_dataset.values():
        datasets = {fold: build_dataset(node) for fold, node in folds.items()}
        for dataset in datasets.values():
            dataset.check()
        if name not in public_sets():
            continue
        records = [record for record in public_sets()[name].counts if record.fold in folds]
        if not records:
            return f"none of the folds of {name} was read"
        rows = [
            {"fold": fold, "split": split, **counts_of(dataset.split(split))}
            for fold, dataset in datasets.items()
            for split in splits_of(dataset)
        ]
        found_differences = differences(rows, records)
        if found_differences:
            return found_differences[0]
    return None


def changed_setting(table: Table, overrides: Sequence[str], name: str) -> str | None:
    """Return the first of ``overrides`` that changes a setting of a row; None if none does.

    If no single override explains the change, return all of them.

    A different folder for the public data set ``name`` does not count as a change, because
    ``data_difference`` compares the lists in it.
    """
    chooses_dataset = any(key_of(override) == "dataset" for override in overrides)
    harmless = [f"dataset={name}"] if chooses_dataset and name in files_of("dataset") else []
    suspects = [override for override in overrides if override not in harmless]
    if not suspects:
        return None
    ignored = set(_MEASUREMENT)
    if name in public_sets():
        ignored.add("dataset.folder")
    for row in table.rows.values():
        if row.ensemble:
            continue
        published = _settings(merged(table.settings, harmless, row.settings))
        ours = _settings(merged(table.settings, overrides, row.settings))
        differing = [
            key
            for key in {**published, **ours}
            if published.get(key) != ours.get(key) and key not in ignored
        ]
        if differing:
            causes = [
                override
                for override in suspects
                if any(_can_set(key_of(override), key) for key in differing)
            ]
            return causes[0] if causes else " ".join(suspects)
    return None


def _settings(overrides: Sequence[str]) -> Mapping[str, Any]:
    """Return the settings of ``ltr train`` with ``overrides`` that can change a result.

    The dict is flat: its keys are those of the config, joined by dots.
    """
    config: Any = OmegaConf.to_container(run_config(overrides)[0], resolve=True)
    return flat(without(config, Kind.PLACE))


def _can_set(overridden: str, key: str) -> bool:
    """Return whether overriding ``overridden``, which is a key or a group, can set ``key``."""
    return key == overridden or key.startswith(f"{overridden}.")
