"""Compare pairs of systems, and the runs of one system with each other."""

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ltr.errors import ConfigError
from ltr.statistics.intervals import check_alpha, draw, interval
from ltr.statistics.significance import effect_size, equivalence_p, paired_t_p, sign_flip_p, t_p
from ltr.statistics.values import SystemValues, align, difference_spread, seed_variance
from ltr.statistics.verdict import Comparison

_PER_PAIR = 20  # sign patterns for each 1 / (alpha / pairs), Holm's smallest threshold


def compare_systems(
    systems: Mapping[str, SystemValues],
    *,
    margin: float = 0.005,
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
    baseline: str | None = None,
    one_system: bool = False,
) -> list[Comparison]:
    """Compare every pair of ``systems``, or each with ``baseline``.

    With several seeds of both systems the word is about the methods. With one seed of either it is
    about the trained models, in which a method can be lucky: "differ", never "better" or "worse".
    Runs that differ in the seed alone are one system; ``compare_seeds`` compares those.

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
        one_system: the systems are runs of one, see ``compare_seeds``.

    Returns:
        The pairs in the order of ``systems``, first before second; with a baseline it is second.

    Raises:
        ConfigError: a setting is out of range, or there are not two systems.
        DataError: the queries differ, or none is left.
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise ConfigError(f"margin={margin:g}: give a number > 0, such as 0.005 for half a point")
    check_alpha(alpha)
    if samples < 100:
        raise ConfigError(f"samples={samples}: give at least 100, better 10000")
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

    aligned = align(systems)
    seeds = [seed_variance(aligned, i) for i in range(len(names))]
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
    p_holm, p_queries = (_holm(each) for each in (p, p_randomisation))
    draws = draw(aligned, samples=samples, seed=seed)

    found = []
    for n, ((i, j), difference, spread) in enumerate(zip(pairs, differences, spreads, strict=True)):
        off = draws[:, i] - draws[:, j]
        of_queries = aligned.differences(i, j)
        signs = np.sign(of_queries)
        found.append(
            Comparison(
                first=names[i],
                second=names[j],
                difference=difference,
                interval=interval(difference, off, spread, alpha=alpha),
                inner=interval(difference, off, spread, alpha=2 * alpha),
                p_randomisation=float(p_randomisation[n]),
                p_t=paired_t_p(weighted[i], weighted[j]),
                p_training=p_training[n],
                p=float(p[n]),
                p_holm=float(p_holm[n]),
                p_queries=float(p_queries[n]),
                p_equivalence=equivalence_p(difference, spread.error, spread.df, margin),
                effect=effect_size(of_queries, alpha=alpha),
                wins=int((signs > 0).sum()),
                ties=int((signs == 0).sum()),
                losses=int((signs < 0).sum()),
                queries=aligned.queries,
                spread=spread,
                margin=margin,
                alpha=alpha,
                one_system=one_system,
            )
        )
    return found


def compare_seeds(
    system: SystemValues,
    *,
    margin: float = 0.005,
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
) -> list[Comparison]:
    """Compare the runs of one system with each other: "equivalent" or "undecided".

    Two seeds differ by chance, so that neither can be better, however sure it is that these two
    models differ on these queries.

    Raises:
        ConfigError: a setting is out of range, or there is one seed only.
    """
    if len(system.values) < 2:
        raise ConfigError("one run of one system: give another seed of it, or another system")
    runs = {
        f"seed {name}": SystemValues(row[None], system.queries)
        for name, row in zip(system.seeds, system.values, strict=True)
    }
    return compare_systems(
        runs, margin=margin, alpha=alpha, seed=seed, samples=samples, one_system=True
    )


def _holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm's correction: statsmodels' ``multipletests``, which collects garbage at every call."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return corrected
