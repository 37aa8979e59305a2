"""Figures of a GPU that nobody has measured: what they are estimated to be, and how.

They stand in the section of their subject under a heading of their own, never among what was
measured. An estimate is of the code of the commit it names.
"""

from typing import NamedTuple


class Estimate(NamedTuple):
    """A figure in words."""

    what: str
    figure: str
    how: str
    commit: str


_TRACED = "operators of a training step counted in a trace, their bytes and launches, "
_KERNEL = "the kernel compiled ahead of time for sm_80 and sm_90, its instructions"
ESTIMATES: dict[str, list[Estimate]] = {
    "losses": [
        Estimate("NeuralNDCG faster than allRank", "9 to 17 x", f"{_KERNEL} a tile", "17c0bfa"),
    ],
    "runs": [
        Estimate(
            "the paper's 100-epoch Web30K run, one H200", "95 to 135 s", _TRACED + _KERNEL,
            "17c0bfa",
        ),
    ],
}  # fmt: skip
