"""A metric of any ranker's scores on the test lists of a finished run, under its convention."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ltr.atomic import safe_cell
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.labels import check_metrics
from ltr.experiment.parts import make_dataset, named_metrics
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.trust import trusted
from ltr.metrics import Convention
from ltr.scoring.evaluate import read_scored, scores_of
from ltr.training.evaluation import metrics_of_scores


def values_of_scores(
    scores: Path, run: RunFolder, metric: str, *, data: Path | None, places: Mapping[str, str]
) -> NDArray[np.float64]:
    """``metric`` of each test query of ``run``, ``[queries]`` in the order of its ``queries.csv``.

    Args:
        scores: the file, as for ``read_scores``.
        run: whose test lists are scored, and whose convention holds.
        metric: as ``named_metrics`` takes it; a function of the user's own is imported.
        data: the LETOR file whose rows are scored; None: the run's own test lists.
        places: ``cache_dir``, and perhaps ``data_dir``, of the run's own lists.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    (measure,), convention = named_metrics([metric]), Convention(**run.convention_keys)
    if data is not None:
        lists, values = read_scored(scores, data)
        _check_queries(run, lists, data)
    else:
        lists = _test_lists(run, places)
        values = scores_of(scores, lists, f"the test lists of {run.folder}")
    check_metrics("test", lists, [measure], convention)
    return metrics_of_scores(lists, values, [measure], convention)[str(measure)]


def _test_lists(run: RunFolder, places: Mapping[str, str]) -> Lists:
    protocol = {**run.results["protocol"], **places}
    node = trusted(protocol, ["dataset"]).dataset
    remedy = "give data=FILE, the LETOR file that was scored"
    if node.get("path"):
        raise ConfigError(
            f"{run.folder}: its test lists are cut from {node.path}, so that the scores of a file "
            "would have rows of train too: train on dataset.split with a table of its own for test"
        )
    if "data_dir" in places and "data_dir" in node:
        node.data_dir = places["data_dir"]
    lists = make_dataset(node).split("test")
    if lists.digest != run.digest:
        raise DataError(f"{run.folder}: its test lists have changed: {remedy}")
    return lists


def _check_queries(run: RunFolder, lists: Lists, data: Path) -> None:
    """Check that ``lists`` have the queries of ``run``: ids, items, and which are empty."""
    kept = run.queries
    of_data = {
        "qid": np.array([safe_cell(str(qid)) for qid in lists.qids]),
        "items": lists.lengths,
        "empty": lists.empty,
    }
    for name, column in of_data.items():
        if len(column) != len(kept):
            raise DataError(
                f"{data}: {len(column):,} queries, the test lists of {run.folder} have "
                f"{len(kept):,}: give the file that the run was tested on"
            )
        differ = np.flatnonzero(column != kept[name].to_numpy())
        if len(differ):
            row = int(differ[0])
            raise DataError(
                f"{data}: query {row + 1} has {name} {column[row]}, in {run.folder} it has "
                f"{kept[name][row]}: give the file that the run was tested on"
            )
