"""What the figures should reach, as ratios of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from ltr.benchmark.compare import Row
from ltr.benchmark.work import OURS

TIME, MEMORY, NEEDED = "time", "memory", "needed"


@dataclass(frozen=True)
class Figure:
    """A figure of the row of ``side`` in the case that begins with ``case``."""

    case: str
    side: str = OURS
    what: str = TIME

    def of(self, rows: Sequence[Row]) -> float | None:
        """The figure; None if it was not measured."""
        for row in rows:
            if row.case.startswith(self.case) and row.side == self.side:
                if self.what == TIME:
                    return row.median
                return None if row.bytes is None or row.median is None else (
                    float(row.bytes) if self.what == MEMORY else row.bytes_needed
                )  # fmt: skip
        return None


@dataclass(frozen=True)
class Goal:
    """``top`` over ``bottom`` is to be at least, or at most, ``bound``.

    Attributes:
        text: what is claimed, in words.
        subject, devices: where it holds.
        bottom: None: ``top`` itself is bounded, in seconds.
    """

    text: str
    subject: str
    top: Figure
    bottom: Figure | None
    bound: float
    at_most: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")

    def reached(self, rows: Sequence[Row]) -> float | None:
        """The ratio; None if a part of it was not measured."""
        top = self.top.of(rows)
        bottom = 1.0 if self.bottom is None else self.bottom.of(rows)
        return None if top is None or not bottom else top / bottom

    def verdict(self, rows: Sequence[Row]) -> tuple[str, str, str]:
        """Bound, what was reached, and whether that is enough, in words."""
        unit = " s" if self.bottom is None else " x"
        bound = f"{'<=' if self.at_most else '>='} {self.bound:g}{unit}"
        found = self.reached(rows)
        if found is None:
            return bound, "-", "not measured"
        met = found <= self.bound if self.at_most else found >= self.bound
        return bound, f"{found:.3g}{unit}", "met" if met else "not met"


def _faster(text: str, subject: str, case: str, peer: str, bound: float, *devices: str) -> Goal:
    at = devices or ("cpu", "cuda")
    return Goal(text, subject, Figure(case, peer), Figure(case), bound, devices=at)


def of(subject: str, device: str) -> list[Goal]:
    """The goals of a subject on a device."""
    return [goal for goal in GOALS if goal.subject == subject and device in goal.devices]


GOALS = [
    _faster("NeuralNDCG faster than allRank", "losses", "neuralndcg [64", "allrank", 10, "cpu"),
    _faster("NeuralNDCG faster than allRank", "losses", "neuralndcg [64", "allrank", 20, "cuda"),
    Goal(
        "NeuralNDCG with less memory than allRank",
        "losses",
        Figure("neuralndcg [64", "allrank", MEMORY),
        Figure("neuralndcg [64", OURS, MEMORY),
        20,
        devices=("cpu",),
    ),
    Goal(
        "stretch: NeuralNDCG's time within that of LambdaRank",
        "losses",
        Figure("neuralndcg [64"),
        Figure("lambdarank [64"),
        3,
        at_most=True,
    ),
    _faster("RankNet faster than allRank", "losses", "ranknet [64", "allrank", 3),
    _faster("LambdaRank faster than allRank", "losses", "lambdarank [64", "allrank", 3),
    Goal(
        "NeuralNDCG's memory from 5,000 to 20,000 items (linear: 4)",
        "losses",
        Figure("neuralndcg [1, 20000", OURS, MEMORY),
        Figure("neuralndcg [1, 5000", OURS, MEMORY),
        5,
        at_most=True,
    ),
    _faster("first parse faster than scikit-learn", "reader", "read", "scikit-learn", 5, "cpu"),
    Goal(
        "first parse: peak memory over the dense float32 array",
        "reader",
        Figure("read", OURS, MEMORY),
        Figure("read", OURS, NEEDED),
        1.3,
        at_most=True,
        devices=("cpu",),
    ),
    Goal(
        "a kept Web30K-sized set opens",
        "reader",
        Figure("open 18,919"),
        None,
        1,
        at_most=True,
        devices=("cpu",),
    ),
    _faster("training with NeuralNDCG", "training", "neuralndcg", "allrank", 5, "cpu"),
    _faster("training with LambdaRank", "training", "lambdarank", "allrank", 2, "cpu"),
    _faster("training with ListNet", "training", "listnet", "allrank", 2, "cpu"),
    Goal(
        "the paper's 100-epoch Web30K run, synthetic lists",
        "training",
        Figure("100 epochs"),
        None,
        60,
        at_most=True,
        devices=("cuda",),
    ),
    Goal(
        "the 16 neural rows of Table 3, synthetic lists",
        "training",
        Figure("16 neural rows"),
        None,
        900,
        at_most=True,
        devices=("cuda",),
    ),
    _faster("evaluation of full lists", "evaluation", "", "allrank", 3),
]
