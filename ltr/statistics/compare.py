"""Every pair of systems compared, and the trainings of one system among themselves."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ltr.errors import ConfigError
from ltr.statistics.intervals import check_alpha, draw, interval
from ltr.statistics.significance import effect_size, equivalence_p, paired_t_p, sign_flip_p, t_p
from ltr.statistics.values import Aligned, SystemValues, align, difference_spread, seed_variance
from ltr.statistics.verdict import Comparison, note, verdict

_PER_PAIR = 20  # sign patterns beyond alpha / pairs, Holm's smallest threshold


def compare_systems(
    systems: Mapping[str, SystemValues],
    *,
    margin: float = 0.005,
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
    baseline: str | None = None,
) -> list[Comparison]:
    """Compare every pair of ``systems``, or each with ``baseline``.

    With several seeds of both systems the word is about the methods. With one seed of either it
    is about the trained models, in which a method can be lucky: it never is "better" or "worse"
    then but "differ", and ``Comparison.note`` and ``spread.uncovered`` say so. Runs that differ in
    the seed alone are one system; ``compare_seeds`` compares those.

    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal
    of Statistics 6, keeps the chance of any wrong "better" or "worse" among all pairs below alpha.

    Args:
        systems: by name, on the same queries.
        margin: the largest difference that does not matter, in units of the metric.
        alpha: of every test; intervals cover 1 - alpha.
        seed: of all draws; the same seed, the same result.
        samples: of the bootstrap, and at least as many of the randomisation test, which takes
            ``20 pairs / alpha`` where that is more: fewer could not pass Holm's smallest threshold.
        baseline: name of the system that the others are compared with; None: every pair.

    Returns:
        The pairs in the order of ``systems``, first before second; with a baseline it is second.

    Raises:
        ConfigError: a setting is out of range, or there are not two systems.
        DataError: the queries differ, or none is left.
    """
    _check(margin, alpha, samples)
    if len(systems) < 2:
        raise ConfigError(
            f"{len(systems)} system to compare: give runs of at least two, or several seeds of one"
        )
    if baseline is not None and baseline not in systems:
        raise ConfigError(f"baseline={baseline}: no such system; choose of {', '.join(systems)}")
    names = list(systems)
    if baseline is None:
        pairs = list(combinations(range(len(names)), 2))
    else:
        fixed = names.index(baseline)
        pairs = [(i, fixed) for i in range(len(names)) if i != fixed]
    return _compared(align(systems), pairs, margin, alpha, seed, samples, one_system=False)


def compare_seeds(
    system: SystemValues,
    *,
    margin: float = 0.005,
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
) -> list[Comparison]:
    """Compare the runs of one system with each other: "equivalent" or "undecided".

    What differs between two seeds is chance by construction, so that neither can be better,
    however sure it is that these two models differ on these queries.

    Raises:
        ConfigError: a setting is out of range, or there is one seed only.
    """
    _check(margin, alpha, samples)
    if len(system.values) < 2:
        raise ConfigError("one run of one system: give another seed of it, or another system")
    runs = {
        f"seed {name}": SystemValues(row[None], system.queries)
        for name, row in zip(system.seeds, system.values, strict=True)
    }
    pairs = list(combinations(range(len(runs)), 2))
    return _compared(align(runs), pairs, margin, alpha, seed, samples, one_system=True)


def _check(margin: float, alpha: float, samples: int) -> None:
    if not (margin > 0 and math.isfinite(margin)):
        raise ConfigError(f"margin={margin:g}: give a number > 0, such as 0.005 for half a point")
    check_alpha(alpha)
    if samples < 100:
        raise ConfigError(f"samples={samples}: give at least 100, better 10000")


def _holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm's correction: statsmodels' ``multipletests``, which collects garbage at every call."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return corrected


def _compared(
    aligned: Aligned,
    pairs: Sequence[tuple[int, int]],
    margin: float,
    alpha: float,
    seed: int,
    samples: int,
    *,
    one_system: bool,
) -> list[Comparison]:
    seeds = [seed_variance(aligned, i) for i in range(len(aligned.names))]
    spreads = [difference_spread(aligned, seeds, *pair) for pair in pairs]
    differences = [float(aligned.means[i] - aligned.means[j]) for i, j in pairs]
    weighted = aligned.weights * aligned.by_query
    p_randomisation = sign_flip_p(
        weighted,
        np.array(pairs),
        samples=max(samples, math.ceil(_PER_PAIR * len(pairs) / alpha)),
        seed=seed,
    )
    p_training = [t_p(d, s.error, s.df) for d, s in zip(differences, spreads, strict=True)]
    p = np.maximum(p_randomisation, p_training)
    p_holm, p_of_queries = _holm(p), _holm(p_randomisation)
    draws = draw(aligned, samples=samples, seed=seed)

    found = []
    for n, ((i, j), difference, spread) in enumerate(zip(pairs, differences, spreads, strict=True)):
        off = draws[:, i] - draws[:, j]
        outer = interval(difference, off, spread, alpha=alpha)
        inner = interval(difference, off, spread, alpha=2 * alpha)
        p_equivalence = equivalence_p(difference, spread.error, spread.df, margin)
        word = verdict(
            difference,
            p_holm=float(p_holm[n]),
            outer=outer,
            p_equivalence=p_equivalence,
            inner=inner,
            margin=margin,
            alpha=alpha,
            one_system=one_system,
            one_seed=bool(spread.uncovered),
        )
        signs = np.sign(aligned.differences(i, j))
        found.append(
            Comparison(
                first=aligned.names[i],
                second=aligned.names[j],
                word=word,
                note=note(
                    word,
                    spread,
                    p_holm=float(p_holm[n]),
                    p_randomisation=float(p_of_queries[n]),
                    alpha=alpha,
                    one_system=one_system,
                ),
                difference=difference,
                interval=outer,
                inner=inner,
                p_randomisation=float(p_randomisation[n]),
                p_t=paired_t_p(weighted[i], weighted[j]),
                p_training=p_training[n],
                p=float(p[n]),
                p_holm=float(p_holm[n]),
                p_equivalence=p_equivalence,
                effect=effect_size(aligned.differences(i, j), alpha=alpha),
                wins=int((signs > 0).sum()),
                ties=int((signs == 0).sum()),
                losses=int((signs < 0).sum()),
                queries=aligned.queries,
                spread=spread,
                margin=margin,
                alpha=alpha,
            )
        )
    return found
