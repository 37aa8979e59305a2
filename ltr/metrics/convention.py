"""What a figure of NDCG depends on besides the scores. No torch here."""

from dataclasses import dataclass

from ltr.metrics.checks import check_choice, check_empty

GAINS = {"exp2": "2^y-1", "linear": "y"}
DISCOUNTS = {
    "log2": "1/log2(1+rank)",
    "letor": "1 at ranks 1 and 2, then 1/log2(rank)",
}


@dataclass(frozen=True)
class Convention:
    """The conventions of a metric; every printed or stored figure names them.

    Attributes:
        empty: what a list without a relevant item counts, from 0 to 1, or ``"skip"``: the mean
            leaves it out.
        gain: ``"exp2"`` (2^y - 1) or ``"linear"`` (y).
        discount: ``"log2"`` (1/log2(1+rank)) or ``"letor"`` (the LETOR script: 1 at ranks 1 and 2,
            1/log2(rank) from rank 3 on).

    Raises:
        ConfigError: a value is not one of these.

    >>> Convention(empty=0).describe()
    'empty list = 0, gain 2^y-1, discount 1/log2(1+rank), ties in file order'
    """

    empty: float | int | str = 1.0
    gain: str = "exp2"
    discount: str = "log2"

    def __post_init__(self) -> None:
        """Check the values."""
        check_empty(self.empty)
        check_choice("gain", self.gain, list(GAINS))
        check_choice("discount", self.discount, list(DISCOUNTS))

    def describe(self) -> str:
        """All of it in one line, to stand beside a figure."""
        empty = "empty lists left out" if self.empty == "skip" else f"empty list = {self.empty:g}"
        return (
            f"{empty}, gain {GAINS[self.gain]}, discount {DISCOUNTS[self.discount]}, "
            "ties in file order"
        )
