"""Open the lists of an experiment, and complete its settings with what the lists tell."""

import logging
import math
from collections.abc import Mapping, Sequence

from ltr.data.lists import SPLITS, Columns, Dataset, Lists, splits_of
from ltr.data.public_sets import public_sets
from ltr.experiment.build import LARGEST_BATCH, Experiment
from ltr.experiment.data_checks import check_levels, check_loss, check_metrics, check_signs
from ltr.experiment.leaks import warn_of_leaks
from ltr.experiment.train_lists import draw_count
from ltr.scorers.parts import by_rounds
from ltr.training.caveats import warn_of_nothing_to_rank

log = logging.getLogger(__name__)


def open_data(
    experiment: Experiment, columns: Columns | None = None, splits: Sequence[str] = SPLITS
) -> tuple[Experiment, dict[str, Lists]]:
    """Open and check the lists of ``splits``.

    Test lists are opened before training too, so that a bad file is not found hours later.

    Args:
        experiment: as built before data were read.
        columns: names and categories with which the lists must be read; None: their own.
        splits: those that may be read; the data set may lack test.

    Returns:
        The experiment built again with the facts of the training lists, and the lists by split.

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
    """Check the labels of ``lists``; return the experiment with the facts of the training lists.

    ``ConfigError``: the loss or a metric cannot use a label, or finds no relevant item.
    """
    for split, part in lists.items():
        check_signs(split, part)
    complete = experiment.with_facts_of(lists["train"])
    _log_suggestions(complete, len(lists["train"]))
    measured = {*complete.settings.monitor, "vali", "test"}
    for split, part in lists.items():
        check_levels(complete.loss, split, part)
        if split in measured:
            check_metrics(split, part, complete.metrics, complete.convention)
    warn_of_nothing_to_rank(lists)
    if complete.loss is not None:
        check_loss(complete.loss, lists["train"], complete.settings.list_size)
    return complete


def _describe_missing_test(dataset: Dataset) -> str:
    fold = "" if dataset.fold is None else f" fold {dataset.fold}"
    public = ", though it is published with one" if dataset.name in public_sets() else ""
    return f"{dataset.name}{fold} has no test split{public}: vali alone is measured"


def _log_suggestions(experiment: Experiment, train_count: int) -> None:
    """Log the settings that were taken from the training lists."""
    suggested = experiment.record.config["suggested"]
    if "levels" in experiment.assumed:
        levels = suggested["levels"]
        log.info("%d grades (levels): the largest label of train, plus 1", levels)
    batch_size = experiment.settings.batch_size
    is_small = "batch_size" in experiment.assumed and batch_size < LARGEST_BATCH
    if is_small and not by_rounds(experiment.make_model):
        drawn = draw_count(train_count, experiment.bagging)
        steps = math.ceil(drawn / batch_size)  # fewer than suggested with many shards
        log.info(
            "batch_size %d: at least %d steps an epoch of few lists",
            batch_size, min(suggested["steps"], steps),
        )  # fmt: skip
