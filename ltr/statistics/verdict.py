"""The comparison of a pair of systems, and its verdict in one word, by one rule."""

from dataclasses import dataclass, replace

from ltr.statistics.significance import Effect, resolvable_difference
from ltr.statistics.values import Spread

BETTER, WORSE, DIFFER = "better", "worse", "differ"
EQUIVALENT, UNDECIDED = "equivalent", "undecided"
WORDS = (BETTER, WORSE, DIFFER, EQUIVALENT, UNDECIDED)


def rule(margin: float, alpha: float) -> str:
    """The rule in one line, for under a table."""
    sure, inner = f"{1 - alpha:.0%}", f"{1 - 2 * alpha:.0%}"
    return (
        f"equivalent: two one-sided tests (p < {alpha:g}) and the {inner} interval put the "
        f"difference within ±{margin:g}; else better or worse: p < {alpha:g} after Holm, p the "
        "larger of the randomisation test over queries and the t test over queries and trainings, "
        f"and 0 outside the {sure} interval; with one seed of either row not better or worse but "
        "differ: these models do, of the methods one seed cannot tell; else undecided"
    )


@dataclass(frozen=True)
class Comparison:
    """A pair of systems; ``first`` is ``word`` beside ``second``.

    Attributes:
        first, second: names of the systems.
        difference: mean of first minus mean of second.
        interval: of the difference, 1 - alpha.
        inner: the same, 1 - 2 alpha, for equivalence.
        p_randomisation: of the sign-flip test over queries.
        p_t: of the paired t test over queries.
        p_training: of the t test whose error holds the training's variance as well.
        p: the larger of ``p_randomisation`` and ``p_training``.
        p_holm, p_queries: ``p`` and ``p_randomisation`` corrected for all pairs compared.
        p_equivalence: of the two one-sided tests, not corrected.
        effect: Cohen's d_z over queries.
        wins, ties, losses: queries on which first is above, at and below second, means over seeds.
        queries: how many there are.
        spread: the standard error and what it covers.
        margin, alpha: as given.
        one_system: the pair is two trainings of one system, of which neither can be better.
    """

    first: str
    second: str
    difference: float
    interval: tuple[float, float]
    inner: tuple[float, float]
    p_randomisation: float
    p_t: float
    p_training: float
    p: float
    p_holm: float
    p_queries: float
    p_equivalence: float
    effect: Effect
    wins: int
    ties: int
    losses: int
    queries: int
    spread: Spread
    margin: float
    alpha: float
    one_system: bool

    @property
    def word(self) -> str:
        """The verdict: better, worse, differ, equivalent or undecided.

        ``equivalent`` goes before ``better``: a difference below the margin was said beforehand not
        to matter, even where so many queries show that it is not 0 (Lakens, 2017, "Equivalence
        tests", Social Psychological and Personality Science 8: different, but practically
        equivalent). With one seed of either the models may differ where the methods do not.
        """
        low, high = self.inner
        if self.p_equivalence < self.alpha and -self.margin < low and high < self.margin:
            return EQUIVALENT
        significant = self.p_holm < self.alpha and not self.interval[0] <= 0 <= self.interval[1]
        if not significant or self.one_system:
            return UNDECIDED
        if self.spread.uncovered:
            return DIFFER
        return BETTER if self.difference > 0 else WORSE

    @property
    def note(self) -> str:
        """What the word leaves out; often nothing."""
        sure_of_queries = self.p_queries < self.alpha
        if self.one_system:
            differ = "; they differ on these queries, as trainings do" if sure_of_queries else ""
            return f"two trainings of one system{differ}"
        said, word = [], self.word
        if word == EQUIVALENT and self.p_holm < self.alpha:
            said.append("not 0, but smaller than the margin")
        unsure = word == UNDECIDED and self.p_holm >= self.alpha
        if unsure and self.spread.training > 0 and sure_of_queries:
            said.append("sure of these models, not of the methods: more seeds would tell")
        if self.spread.uncovered and word != UNDECIDED:
            where = ", the same in every fold" if self.spread.covers == "folds" else ""
            said.append(f"these models, not the methods: one seed{where}")
        return "; ".join(said)

    def swapped(self) -> "Comparison":
        """The same pair from the side of ``second``."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=-self.difference,
            interval=(-self.interval[1], -self.interval[0]),
            inner=(-self.inner[1], -self.inner[0]),
            effect=Effect(-self.effect.value, -self.effect.high, -self.effect.low),
            wins=self.losses,
            losses=self.wins,
        )

    def resolvable(self, *, power: float = 0.8, pairs: int = 1) -> float:
        """The true difference that would be found with probability ``power``.

        Alpha is divided by ``pairs``, as in Holm's first step.
        """
        return resolvable_difference(
            self.spread.error, self.queries, self.spread.df, alpha=self.alpha / pairs, power=power
        )
