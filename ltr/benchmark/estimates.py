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


ESTIMATES: dict[str, list[Estimate]] = {
    "losses": [
        Estimate(
            "NeuralNDCG's kernel, [64, 240] in float32, one H100", "0.22 ms at least",
            "make bench ARGS='what=kernel': instructions of the compiled kernel at 1.755 GHz",
            "c586453",
        ),
    ],
    "runs": [
        Estimate(
            "the paper's 100-epoch Web30K run, one H200, compile=true", "18 s at least",
            "29,600 steps of 1,915 MB (make bench ARGS='what=step') at 4.8 TB/s and of the kernel",
            "d473760",
        ),
        Estimate(
            "the same, step by step", "48 to 96 s",
            "324 operators a step (make bench ARGS='what=step'), 5 to 10 us of the processor each",
            "d473760",
        ),
    ],
}  # fmt: skip
