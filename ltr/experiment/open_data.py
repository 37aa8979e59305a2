"""Open the lists of an experiment, and fill in the settings that depend on the training lists."""

import logging
from collections.abc import Mapping, Sequence

from ltr.data.lists import SPLITS, Columns, Dataset, Lists, splits_of
from ltr.data.public_sets import public_sets
from ltr.experiment.build import Experiment
from ltr.experiment.data_checks import check_signs
from ltr.experiment.leaks import warn_of_leaks
from ltr.training.caveats import warn_of_nothing_to_rank

log = logging.getLogger(__name__)


def open_data(
    experiment: Experiment, columns: Columns | None = None, splits: Sequence[str] = SPLITS
) -> tuple[Experiment, dict[str, Lists]]:
    """Open and check the lists of ``splits``.

    The test lists are also opened before training. A bad file is then found at the start.

    Args:
        experiment: the experiment that ``build`` returned before data were read.
        columns: the column names and categories with which the lists must be read; if None, those
            of the data set itself.
        splits: the splits to open; a missing test split is skipped.

    Returns:
        The experiment, rebuilt with what is now known about the training lists (``Facts``), and the
        lists of each split.

    Raises:
        ConfigError: the loss or a metric cannot use a label, or finds no relevant item.
        DataError: a file cannot be read.
    """
    dataset = experiment.dataset
    dataset.check()
    if columns is not None and hasattr(dataset, "with_columns"):
        dataset = dataset.with_columns(columns)
    lists = {split: dataset.split(split) for split in splits_of(dataset) if split in splits}
    if "test" in splits and "test" not in lists:
        log.info("%s", _describe_missing_test(dataset))
    if splits == SPLITS:
        warn_of_leaks(lists)
    return complete_settings(experiment, lists), lists


def complete_settings(experiment: Experiment, lists: Mapping[str, Lists]) -> Experiment:
    """Check the labels of ``lists``; return the experiment rebuilt for the training lists.

    The settings that depend on the training lists, such as the number of grades, are filled in.
    Raises ``ConfigError`` if the loss or a metric cannot use a label, or finds no relevant item.
    """
    for split, split_lists in lists.items():
        check_signs(split, split_lists)
    complete = experiment.with_facts_of(lists["train"])
    for sentence in filter(None, complete.suggestions):
        log.info("%s", sentence)
    complete.check_labels(lists)
    warn_of_nothing_to_rank(lists)
    return complete


def _describe_missing_test(dataset: Dataset) -> str:
    fold = "" if dataset.fold is None else f" fold {dataset.fold}"
    public = ", though it is published with one" if dataset.name in public_sets() else ""
    return f"{dataset.name}{fold} has no test split{public}: metrics are computed on vali only"
