"""Paired randomisation test over queries: signs of the differences flipped at random."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

EXACT_UP_TO = 14  # differences other than 0 of which all 2^n sign patterns are tried
_BLOCK = 1 << 22  # signs at a time: 32 MiB
_TIE = 1e-9  # sums closer than this part of the largest possible sum are the same but for rounding


def sign_flip_exact(differences: NDArray[np.float64]) -> float:
    """The p value of ``differences`` over all sign patterns (``scipy.stats.permutation_test``).

    Queries with difference 0 change nothing and are left out; with none left p is 1.

    Args:
        differences: ``[queries]``.

    >>> sign_flip_exact(np.array([1.0, 2.0, 3.0, 0.0]))  # 2 of 2^3 patterns sum to 6 or -6
    0.25
    """
    moving = differences[differences != 0]
    if not len(moving):
        return 1.0
    if len(moving) == 1:
        return 1.0  # SciPy wants two; both signs are as far from 0
    result = stats.permutation_test(
        (moving,),
        np.sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
        alternative="two-sided",
    )
    return float(result.pvalue)


def sign_flip_p(
    by_query: NDArray[np.float64],
    pairs: NDArray[np.int64],
    *,
    samples: int,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Two-sided p values, ``[pairs]``, of the hypothesis that a pair's systems are exchangeable.

    With d the differences of a pair and s signs drawn at random:

        p = (1 + #{b: |sum_q s_bq d_q| >= |sum_q d_q|}) / (samples + 1)

    It is exact where at most ``EXACT_UP_TO`` differences are not 0. The hypothesis is of these
    models over queries; what another training would give is not in it (see ``spread``).

    Sources: Fisher (1935); Smucker, Allan and Carterette (2007), "A comparison of statistical
    significance tests for information retrieval evaluation", CIKM; Urbano, Lima and Hanjalic
    (2019), "Statistical significance testing in information retrieval", SIGIR; the added 1 after
    Phipson and Smyth (2010), without which p could be 0.

    Args:
        by_query: ``[systems, queries]``, mean over seeds (weighted).
        pairs: ``[pairs, 2]``, rows of ``by_query``.
        samples: sign patterns drawn, the same for all pairs.
        seed: of the generator; the same seed gives the same p values.
    """
    differences = by_query[pairs[:, 0]] - by_query[pairs[:, 1]]
    nonzero = (differences != 0).sum(1)
    p = np.ones(len(pairs))
    for i in np.flatnonzero((nonzero > 0) & (nonzero <= EXACT_UP_TO)):
        p[i] = sign_flip_exact(differences[i])
    drawn = np.flatnonzero(nonzero > EXACT_UP_TO)
    if not len(drawn):
        return p
    first, second = pairs[drawn].T
    limit = np.abs(differences[drawn].sum(1)) - _TIE * np.abs(differences[drawn]).sum(1)
    # A pair's sum is the difference of two systems' sums: systems are few, pairs many.
    centred = (by_query - by_query.mean(0)).T
    queries = by_query.shape[1]
    rng = np.random.default_rng([seed, 1])
    reached = np.zeros(len(drawn), dtype=np.int64)
    block = max(1, _BLOCK // queries)
    for start in range(0, samples, block):
        count = min(block, samples - start)
        bits = np.frombuffer(rng.bytes(count * -(-queries // 8)), np.uint8).reshape(count, -1)
        signs = np.unpackbits(bits, axis=1, count=queries).astype(np.float64) * 2 - 1
        sums = signs @ centred
        reached += (np.abs(sums[:, first] - sums[:, second]) >= limit).sum(0)
    p[drawn] = (1 + reached) / (samples + 1)
    return p
