"""Decide whether the published numbers of a table may stand beside its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.configs import files_of
from ltr.console.keys import Kind, flat, without
from ltr.data.lists import splits_of
from ltr.data.public_sets import public_sets
from ltr.experiment.prepare_data import counts_of, differences
from ltr.scorers.parts import make_dataset
from ltr.tables.runs import Run
from ltr.tables.spec import Table, key_of

# Keys that change neither what is trained nor which epoch is measured.
_MEASUREMENT = ("metrics", "own_metrics", "monitor")


def why_left_out(
    table: Table, given: Sequence[str], runs: Sequence[Run], split: str, budget: int | None
) -> str | None:
    """Return why the published numbers of ``table`` do not belong beside ``runs``, in words; None
    if they do, or if the table has none.

    Published numbers belong to a data set, its test split, and the settings in the table's file.

    Args:
        table: the table, with the rows that are shown.
        given: overrides by the user that can change a result.
        runs: the planned runs of the table.
        split: the split that the runs are measured on.
        budget: the number of trials with which settings of the rows are searched; None: none are.

    Raises:
        DataError: the data are missing.
    """
    if not table.published:
        return None
    names = list(dict.fromkeys(str(run.config.dataset.name) for run in runs))
    if len(names) > 1 or names[0] not in table.published:
        return f"they are of {' and '.join(table.published)}, not of {' and '.join(names)}"
    (name,) = names
    if other := other_data(name, runs):
        return f"they are of other data: {other}"
    if split != "test":
        return f"they are of test, these values of {split}"
    if override := changed_setting(table, given, name):
        return f"{override} is not of their settings"
    if budget is not None and not table.published[name].searched:
        return f"budget={budget} searches other settings"
    return None


def other_data(name: str, runs: Sequence[Run]) -> str | None:
    """Return in words how the lists of ``runs`` differ from the known counts of the public data set
    ``name``; None if they do not, or if it is no public data set. ``DataError``: they are missing.
    """
    datasets: dict[str, dict[int | None, Any]] = {}
    for run in runs:
        node: Any = OmegaConf.to_container(run.config.dataset, resolve=True)
        settings = {key: value for key, value in node.items() if key != "fold"}
        datasets.setdefault(str(settings), {}).setdefault(run.fold, run.config.dataset)
    for folds in datasets.values():
        sources = {fold: make_dataset(node) for fold, node in folds.items()}
        for dataset in sources.values():
            dataset.check()
        if name not in public_sets():
            continue
        known = [record for record in public_sets()[name].counts if record.fold in folds]
        if not known:
            return f"{name} has folds, and none of them is read"
        rows = [
            {"fold": fold, "split": split, **counts_of(dataset.split(split))}
            for fold, dataset in sources.items()
            for split in splits_of(dataset)
        ]
        if different := differences(rows, known):
            return different[0]
    return None


def changed_setting(table: Table, given: Sequence[str], name: str) -> str | None:
    """Return an override in ``given`` that changes a setting of a row; None if none does.

    The folder of a public data set may change: ``other_data`` compares what is in it.
    """
    choices = [one for one in given if key_of(one) == "dataset"]
    own = [f"dataset={name}"] if choices and name in files_of("dataset") else []
    others = [one for one in given if one not in own]
    if not others:
        return None
    ignored = {*_MEASUREMENT, *(["dataset.folder"] if name in public_sets() else [])}
    for row in table.rows.values():
        if row.ensemble:
            continue
        published = _settings(merged(table.settings, own, row.settings))
        ours = _settings(merged(table.settings, given, row.settings))
        differing = [
            key
            for key in {**published, **ours}
            if published.get(key) != ours.get(key) and key not in ignored
        ]
        if differing:
            typed = [one for one in others if any(_sets(key_of(one), key) for key in differing)]
            return typed[0] if typed else " ".join(others)
    return None


def _settings(overrides: Sequence[str]) -> Mapping[str, Any]:
    """Return the settings of ``ltr train`` with ``overrides`` that can change a result, flat."""
    config: Any = OmegaConf.to_container(run_config(overrides)[0], resolve=True)
    return flat(without(config, Kind.PLACE))


def _sets(override: str, key: str) -> bool:
    """Return whether an override of ``override`` can set ``key``: the key itself or its group."""
    return key == override or key.startswith(f"{override}.")
