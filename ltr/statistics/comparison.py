"""What is known of a pair of systems."""

from dataclasses import dataclass, replace

from ltr.statistics.effect import Effect
from ltr.statistics.power import resolvable_difference
from ltr.statistics.spread import Spread
from ltr.statistics.verdict import BETTER, WORSE


@dataclass(frozen=True)
class Comparison:
    """One pair; ``first`` is ``word`` beside ``second``.

    Attributes:
        first, second: names of the systems.
        word: better, worse, differ, equivalent or undecided.
        note: what the word leaves out, or nothing.
        difference: mean of first less mean of second.
        interval: of the difference, 1 - alpha.
        inner: the same, 1 - 2 alpha, which equivalence asks for.
        p_randomisation: of the sign-flip test over queries.
        p_t: of the paired t test over queries.
        p_training: of the t test whose error holds the training's variance as well.
        p: the larger of ``p_randomisation`` and ``p_training``.
        p_holm: ``p`` corrected for all pairs compared.
        p_equivalence: of the two one-sided tests, not corrected.
        effect: Cohen's d_z over queries.
        wins, ties, losses: queries on which first is above, at and below second, means over seeds.
        queries: how many there are.
        spread: the standard error and what it covers.
        margin, alpha: as given.
    """

    first: str
    second: str
    word: str
    note: str
    difference: float
    interval: tuple[float, float]
    inner: tuple[float, float]
    p_randomisation: float
    p_t: float
    p_training: float
    p: float
    p_holm: float
    p_equivalence: float
    effect: Effect
    wins: int
    ties: int
    losses: int
    queries: int
    spread: Spread
    margin: float
    alpha: float

    def swapped(self) -> "Comparison":
        """The same pair from the side of ``second``."""
        other = {BETTER: WORSE, WORSE: BETTER}
        return replace(
            self,
            first=self.second,
            second=self.first,
            word=other.get(self.word, self.word),
            difference=-self.difference,
            interval=(-self.interval[1], -self.interval[0]),
            inner=(-self.inner[1], -self.inner[0]),
            effect=Effect(-self.effect.value, -self.effect.high, -self.effect.low),
            wins=self.losses,
            losses=self.wins,
        )

    def resolvable(self, *, power: float = 0.8, pairs: int = 1) -> float:
        """The true difference that would be found with probability ``power``.

        Args:
            power: between 0 and 1.
            pairs: alpha is divided by it, as in Holm's first step.
        """
        return resolvable_difference(
            self.spread.error, self.queries, self.spread.df, alpha=self.alpha / pairs, power=power
        )
