"""What part of a teacher's gain a row that learns from it keeps."""

from collections.abc import Mapping

import numpy as np

from ltr.errors import DataError
from ltr.statistics.compare import BETTER, draw
from ltr.statistics.values import SystemValues, align
from ltr.tables.spec import Table
from ltr.tables.verdicts import ALPHA, Verdicts

_SAMPLES = 10_000


def kept_gains(
    table: Table, verdicts: Mapping[str, Verdicts], baseline: str
) -> tuple[tuple[str, str], ...]:
    """A fact for each metric: (row - baseline) / (teacher - baseline) of the rows with a teacher.

    The interval is that of the ratio over samples of the queries, which all three rows share. Where
    the teacher is not better than the baseline there is no gain to keep.
    """
    facts = []
    for metric, judged in verdicts.items():
        said = [
            _said(judged, row, teacher, baseline)
            for row, teacher in table.teachers.items()
            if {row, teacher, baseline} <= judged.stacked.values.keys() and row != baseline
        ]
        if said:
            facts.append((f"kept gain, {metric}", "; ".join(said)))
    return tuple(facts)


def _said(judged: Verdicts, row: str, teacher: str, baseline: str) -> str:
    against = judged.against.get(teacher)
    if teacher == baseline or against is None or against.word != BETTER:
        return f"{row}: {teacher} is not better than {baseline}, no gain to keep"
    values, seeds = judged.stacked.values, judged.stacked.seeds
    names = (row, teacher, baseline)
    try:
        aligned = align(
            {
                name: SystemValues(values[name], judged.stacked.queries, seeds[name])
                for name in names
            }
        )
    except DataError:
        return f"{row}: no query has a value in all three rows"
    drawn = aligned.means + draw(aligned, samples=_SAMPLES)
    part = (aligned.means[0] - aligned.means[2]) / (aligned.means[1] - aligned.means[2])
    parts = (drawn[:, 0] - drawn[:, 2]) / (drawn[:, 1] - drawn[:, 2])
    low, high = np.quantile(parts, [ALPHA / 2, 1 - ALPHA / 2])
    return (
        f"{row} keeps {part:.0%} of what {teacher} gains over {baseline} "
        f"({low:.0%} to {high:.0%} over queries)"
    )
