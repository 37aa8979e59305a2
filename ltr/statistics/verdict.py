"""What is known of a pair of systems, and the verdict on it in one word, by one rule."""

from dataclasses import dataclass, replace

from ltr.statistics.significance import Effect, resolvable_difference
from ltr.statistics.values import Spread

BETTER, WORSE, DIFFER = "better", "worse", "differ"
EQUIVALENT, UNDECIDED = "equivalent", "undecided"
WORDS = (BETTER, WORSE, DIFFER, EQUIVALENT, UNDECIDED)

Interval = tuple[float, float]


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


def verdict(
    difference: float,
    *,
    p_holm: float,
    outer: Interval,
    p_equivalence: float,
    inner: Interval,
    margin: float,
    alpha: float,
    one_system: bool = False,
    one_seed: bool = False,
) -> str:
    """The word for the first of a pair beside the second.

    ``equivalent`` goes before ``better``: what is smaller than the margin was said beforehand not
    to matter, also where so many queries show that it is not 0 (Lakens, 2017, "Equivalence tests",
    Social Psychological and Personality Science 8: different, but practically equivalent). Holm's
    correction is of better and worse; equivalence is tested pair by pair.

    Args:
        difference: first less second.
        p_holm: p of no difference, corrected for all pairs.
        outer: the 1 - alpha interval of the difference.
        p_equivalence: p of a difference of at least the margin.
        inner: the 1 - 2 alpha interval.
        margin: the largest difference that does not matter.
        alpha: of every test.
        one_system: the pair is two trainings of one system, of which neither can be better.
        one_seed: there is one seed of either: the models may differ where the methods do not.
    """
    if p_equivalence < alpha and -margin < inner[0] and inner[1] < margin:
        return EQUIVALENT
    significant = p_holm < alpha and not outer[0] <= 0 <= outer[1]
    if significant and not one_system:
        if one_seed:
            return DIFFER
        return BETTER if difference > 0 else WORSE
    return UNDECIDED


def note(
    word: str,
    spread: Spread,
    *,
    p_holm: float,
    p_randomisation: float,
    alpha: float,
    one_system: bool,
) -> str:
    """What the word leaves out; often nothing.

    Args:
        word: of ``verdict``.
        spread: of the difference.
        p_holm: of no difference, corrected for all pairs.
        p_randomisation: of the queries alone, corrected for all pairs.
        alpha: of every test.
        one_system: as for ``verdict``.
    """
    if one_system:
        if p_randomisation < alpha:
            return "two trainings of one system; they differ on these queries, as trainings do"
        return "two trainings of one system"
    said = []
    if word == EQUIVALENT and p_holm < alpha:
        said.append("not 0, but smaller than the margin")
    if word == UNDECIDED and spread.training > 0 and p_randomisation < alpha <= p_holm:
        said.append("sure of these models, not of the methods: more seeds would tell")
    if spread.uncovered and word != UNDECIDED:
        where = ", the same in every fold" if spread.covers == "folds" else ""
        said.append(f"these models, not the methods: one seed{where}")
    return "; ".join(said)


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
