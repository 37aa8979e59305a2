"""The same scores under one or more conventions: a column for each, described below the table."""

from collections.abc import Mapping
from pathlib import Path

from ltr.data.lists import Lists
from ltr.experiment.results import metric_table, write_queries
from ltr.metrics import Convention
from ltr.training.evaluation import PerQuery, means


def report(
    title: str,
    lists: Lists,
    values: Mapping[str, PerQuery],
    conventions: Mapping[str, Convention],
    *,
    alone: str,
    output: str | None,
) -> str:
    """The table of the means, and the conventions in words.

    Args:
        title: what was evaluated.
        lists: the lists that ``values`` belong to.
        values: for each convention every metric of every list.
        conventions: by name, the same names.
        alone: the head of the column where there is one convention only.
        output: a CSV file for the metrics of every query, or None; a column is ``letor4 ndcg@5``
            where there are several conventions.
    """
    single = len(conventions) == 1
    if output is not None:
        columns = {
            name if single else f"{convention} {name}": of_list
            for convention, of_metric in values.items()
            for name, of_list in of_metric.items()
        }
        write_queries(Path(output), lists, columns)
    table = metric_table(
        {
            alone if single else name: means(values[name], convention)
            for name, convention in conventions.items()
        }
    )
    described = "\n".join(
        convention.describe() if single else f"{name}: {convention.describe()}"
        for name, convention in conventions.items()
    )
    return f"{title}, {len(lists):,} lists\n\n{table}\n\n{described}"
