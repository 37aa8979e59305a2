"""How cost grows: losses against the length of a list, an epoch against the number of lists."""

from dataclasses import replace

from omegaconf import DictConfig

from ltr.benchmark import losses, training
from ltr.benchmark.compare import MEASURED, Comparison, Row
from ltr.benchmark.work import Case

NOT_TRIED = "not tried"


def lengths(sizes: DictConfig, comparison: Comparison) -> list[Row]:
    """Forward and backward of one full list, from the shortest to the longest."""
    rows: list[Row] = []
    for name in sizes.growth_losses:
        rows += growing(
            comparison,
            [losses.case(str(name), 1, int(n), half_padded=False) for n in sizes.growth_lengths],
        )
    return rows


def epochs(sizes: DictConfig, comparison: Comparison) -> list[Row]:
    """One epoch with NeuralNDCG, from few lists to many."""
    return growing(
        comparison, [training.case("neuralndcg", sizes, int(n)) for n in sizes.growth_lists]
    )


def growing(comparison: Comparison, cases: list[Case]) -> list[Row]:
    """Cases from small to large; a side that fails at one takes no part in the larger ones."""
    rows: list[Row] = []
    out: dict[str, Row] = {}
    for case in cases:
        sides = tuple(side for side in case.sides if side not in out)
        done = comparison.run(replace(case, sides=sides)) if sides else []
        rows += done
        rows += [
            replace(row, case=case.name, status=NOT_TRIED, text=f"as {row.case}: {row.text}")
            for row in out.values()
        ]
        out |= {row.side: row for row in done if row.status != MEASURED}
    return rows
