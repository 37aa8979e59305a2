"""The formulas of the papers in NumPy float64, one list at a time, without padding.

Nothing here is imported from ``ltr``. ``s`` are the scores, ``y`` the labels, ``[n]``; ``i``
indexes rows and ``j`` columns of every matrix of pairs.
"""

import json
import math
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax
from scipy.stats import rankdata

from tests.helpers.paths import ROOT

Array = NDArray[np.float64]
SORTER = ROOT / "ltr" / "relaxations" / "sorter.json"


def ranks(s: Array) -> Array:
    """Rank of each item from 1; ties in the order given."""
    return rankdata(-s, method="ordinal")


def discount(r: Array | int) -> Array:
    return 1 / np.log2(1 + np.asarray(r, float))


def gains(y: Array, gain: str | list[float]) -> Array:
    if isinstance(gain, list):
        return np.array([gain[int(label)] for label in y], float)
    return {"exp2": 2**y - 1, "linear": y}[gain]


def max_dcg(g: Array, k: int | None) -> float:
    best = sorted(g, reverse=True)[:k]
    return math.fsum(gain / math.log2(1 + r) for r, gain in enumerate(best, 1))


# pairwise


def _pairs(s: Array, y: Array, k: int | None, pairs: str) -> NDArray[np.bool_]:
    top = ranks(s) <= (k or len(s))
    inside = top[:, None] | top if pairs == "any" else top[:, None] & top
    return (y[:, None] > y) & inside


def _logistic(s: Array, sigma: float) -> Array:
    return np.logaddexp(0, -sigma * (s[:, None] - s))


def ranknet(s: Array, y: Array, k: int | None = None, sigma: float = 1.0, pairs: str = "any",
            pair_weight: str | None = None):  # fmt: skip
    return (_taus(y, _pairs(s, y, k, pairs), pair_weight) * _logistic(s, sigma)).sum()


def lambdarank(s: Array, y: Array, k: int | None = None, sigma: float = 1.0, pairs: str = "any",
               gain="exp2"):  # fmt: skip
    r = ranks(s)
    g = gains(y, gain) / max_dcg(gains(y, gain), k)
    d = np.where(r <= (k or len(s)), discount(r), 0)
    weights = np.abs(g[:, None] - g) * np.abs(d[:, None] - d)
    return (_pairs(s, y, k, pairs) * weights * _logistic(s, sigma)).sum()


def lambdaloss(s: Array, y: Array, variant: str, k: int | None = None, sigma: float = 1.0,
               mu: float = 10.0, pairs: str = "any", gain="exp2"):  # fmt: skip
    r = ranks(s)
    g = gains(y, gain) / max_dcg(gains(y, gain), k)
    if variant == "ndcg1":
        pairs_counted = ~np.eye(len(s), dtype=bool)  # whatever the labels, but i = j
        if k is not None:
            below = pairs == "any" and (r <= k) & (y[:, None] > y)
            pairs_counted &= (r[:, None] <= k) & ((r <= k) | (pairs == "any")) | below
        return ((g * discount(r))[:, None] * pairs_counted * _logistic(s, sigma)).sum()
    distance = np.abs(r[:, None] - r) + np.eye(len(s))
    weights = discount(distance) - discount(distance + 1)
    if variant == "ndcg2++":
        weights = mu * weights + np.abs(discount(r)[:, None] - discount(r))
    weights = weights * np.abs(g[:, None] - g)
    return (_pairs(s, y, k, pairs) * weights * _logistic(s, sigma)).sum()


def _taus(y: Array, pairs: NDArray[np.bool_], pair_weight: str | None) -> Array:
    best = sum(label * (len(y) - r) for r, label in enumerate(sorted(y, reverse=True), 1))
    by_label = (y[:, None] - y) / (best or 1)
    return pairs * {None: 1, "mean": 1 / max(1, pairs.sum()), "ndcg_beta": by_label}[pair_weight]


def ranksvm(s: Array, y: Array, squared: bool = False, pair_weight: str | None = None):
    hinge = np.maximum(0, 1 - (s[:, None] - s))
    return (_taus(y, y[:, None] > y, pair_weight) * (hinge**2 if squared else hinge)).sum()


def rankboost(s: Array, y: Array, pair_weight: str | None = None):
    wrong_by = s - s[:, None]
    costs = np.exp(np.minimum(wrong_by, 30))
    costs = np.where(wrong_by > 30, math.exp(30) * (1 + wrong_by - 30), costs)
    return (_taus(y, y[:, None] > y, pair_weight) * costs).sum()


# listwise


def listnet(s: Array, y: Array):
    return (softmax(y) * (logsumexp(s) - s)).sum()


def distil(s: Array, t: Array, cost: str = "listnet", temperature: float = 0.5):
    """``t`` are the teacher's scores."""
    if cost == "listnet":
        return listnet(s, t / temperature)
    p = softmax(t / temperature)
    d = discount(ranks(s))
    best = (p * discount(ranks(p))).sum()
    pairs = (t[:, None] > t) * np.abs(p[:, None] - p) * np.abs(d[:, None] - d) / best
    return (pairs * np.logaddexp(0, -(s[:, None] - s))).sum()


def listmle(s: Array, y: Array, weight: str | None = None):
    n = len(s)
    ordered = s[np.argsort(-y)]
    weights = {
        None: lambda r: 1.0,
        "exp2": lambda r: float(Fraction(2 ** (n - r) - 1, max(1, 2 ** (n - 1) - 1))),
        "log2": discount,
    }[weight]
    return sum(weights(r + 1) * (logsumexp(ordered[r:]) - ordered[r]) for r in range(n))


def _ndcg_at(r: Array, g: Array, k: int | None, cut_slope: float):
    """Minus NDCG@k of soft ranks, which the cutoff fades out."""
    cut = expit(cut_slope * (k + 0.5 - r)) if k else 1.0
    return -(g * cut / np.log2(1 + r)).sum() / max_dcg(g, k)


def laplace_cdf(x: Array) -> Array:
    near = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, near, 1 - near)


def approxndcg(s: Array, y: Array, k: int | None = None, temperature: float = 1.0,
               cut_slope: float = 10.0, cdf=expit, gain="exp2"):  # fmt: skip
    above = cdf((s - s[:, None]) / temperature)
    np.fill_diagonal(above, 0)
    return _ndcg_at(1 + above.sum(1), gains(y, gain), k, cut_slope)


lapndcg = partial(approxndcg, cdf=laplace_cdf)


def sodeep(s: Array, y: Array, k: int | None = None, cut_slope: float = 10.0, gain="exp2"):
    weights = json.loads(SORTER.read_text())["weights"]

    def layer(name: str, x: Array) -> Array:
        weight = np.float32(weights[f"{name}.weight"])
        bias = np.float32(weights[f"{name}.bias"])
        return x @ weight.astype(float).T + bias

    n = len(s)
    n_others = max(1, n - 1)
    item = np.tanh(layer("item", ((s - s.mean()) / np.sqrt(s.var() + 1e-6))[:, None]))
    value = np.tanh(layer("given", item))
    mean_of_others = np.array([np.delete(value, j, 0).sum(0) / n_others for j in range(n)])
    size = np.full((n, 1), 1 / n_others)
    gated = mean_of_others * layer("asked", item)
    hidden = np.tanh(layer("first", np.hstack([gated, item, size])))
    r = 1 + (n - 1) * expit(layer("share", np.tanh(layer("second", hidden)))[:, 0])
    return _ndcg_at(r, gains(y, gain), k, cut_slope)


# pointwise


def rankprop(s: Array, y: Array):
    order = sorted(range(len(s)), key=lambda i: (-y[i], -s[i]))
    return np.mean([(s[j] - (len(s) - r - 0.5) / len(s)) ** 2 for r, j in enumerate(order)])


def bce(s: Array, y: Array, relevant: float = 1):
    return np.logaddexp(0, np.where(y >= relevant, -s, s)).mean()


def mse(s: Array, y: Array):
    return ((s - y) ** 2).mean()


def rmse(s: Array, y: Array, levels: float = 5):
    return math.sqrt(((levels * expit(s) - y) ** 2).mean())


def ordinal(s: Array, y: Array, levels: int = 5, sigma: float = 1.0):
    margins = sigma * (s[:, None] - (np.arange(1, levels) - 0.5))
    reached = y[:, None] >= np.arange(1, levels)
    return np.logaddexp(0, np.where(reached, -margins, margins)).sum(1).mean()


# soft permutations [rank, item]


def neural_sort(s: Array, temperature: float) -> Array:
    n = len(s)
    s = s - s.mean()  # P is the same for any shift, and rounds less around 0
    distances = np.array([math.fsum(np.abs(s - x)) for x in s])
    rows = n + 1 - 2 * np.arange(1, n + 1)
    return softmax((rows[:, None] * s - distances) / temperature, 1)


def soft_sort(s: Array, temperature: float) -> Array:
    return softmax(-np.abs(np.sort(s)[::-1][:, None] - s) / temperature, 1)


def sinkhorn(p: Array, max_iter: int = 30, tol: float = 1e-6) -> Array:
    for _ in range(max_iter):
        for axis in (0, 1):
            sums = p.sum(axis, keepdims=True)
            p = p / np.where(sums > 1e-150, sums, 1)
        if max(np.abs(p.sum(axis) - 1).max() for axis in (0, 1)) < tol:
            break
    return p


def ot_sort(s: Array, temperature: float) -> Array:
    x = expit((s - s.mean()) / math.sqrt(s.var() + 1e-6))
    return sinkhorn(neural_sort(x / max(1, len(s) - 1), temperature))


def soft_swap(x: float, distribution: str) -> float:
    """The larger of two values goes to the first wire; x is the first minus the second."""
    far = 1 - 1 / (16 * abs(x)) if abs(x) > 0.25 else 0.5 + abs(x)
    return {
        "logistic": float(expit(x)),
        "reciprocal": (2 * x / (1 + 2 * abs(x)) + 1) / 2,
        "cauchy": math.atan(x) / math.pi + 0.5,
        "optimal": far if x > 0 else 1 - far,
    }[distribution]


def comparators(n: int, network: str) -> list[tuple[int, int]]:
    """Batcher's bitonic sorter of n = 2^m wires, whose blocks fall and rise in turn; odd-even."""
    if network == "odd_even":
        return [(i, i + 1) for layer in range(n) for i in range(layer % 2, n - 1, 2)]
    sizes = [2**m for m in range(1, n.bit_length())]
    wire_pairs = []
    for size, gap in ((size, gap) for size in sizes for gap in sizes[::-1] if gap <= size):
        for i in (i for i in range(n) if not i & gap // 2):
            pair = i, i + gap // 2
            wire_pairs.append(pair if not i & size else pair[::-1])
    return wire_pairs


def network_sort(s: Array, order: Array, temperature: float, network: str, distribution: str):
    """Wires without an item, so that they are a power of 2, lose to every item."""
    n = len(s)
    size = 2 ** math.ceil(math.log2(n)) if network == "bitonic" else n
    x = [*map(float, s[order]), *[None] * (size - n)]
    rows = [*np.eye(n)[order], *[np.zeros(n)] * (size - n)]
    for i, j in comparators(size, network):
        a = x[i]
        b = x[j]
        if a is None or b is None:
            f = 0.0 if a is None and b is not None else 1.0
            x[i], x[j] = (b, a) if f == 0 else (a, b)
        else:
            f = soft_swap((a - b) / temperature, distribution)
            x[i] = f * a + (1 - f) * b
            x[j] = (1 - f) * a + f * b
        row_i = rows[i]
        row_j = rows[j]
        rows[i] = f * row_i + (1 - f) * row_j
        rows[j] = (1 - f) * row_i + f * row_j
    return np.array(rows[:n])


def rank_distribution(s: Array, sigma: float) -> Array:
    n = len(s)
    distribution = np.zeros((n, n))  # [item, rank]
    distribution[:, 0] = 1
    for i in range(n):  # every other item in turn beats j, or does not
        beats = np.array([math.erfc((x - s[i]) / (2 * sigma)) / 2 for x in s])[:, None]
        beats[i] = 0
        shifted = np.concatenate([np.zeros((n, 1)), distribution[:, :-1]], 1)
        distribution = shifted * beats + distribution * (1 - beats)
    return distribution.T


# metrics of a soft permutation


def soft_ndcg(soft: Array, y: Array, k: int | None, d: Array | None = None, gain="exp2"):
    n = len(y)
    g = gains(y, gain)
    d = (discount(np.arange(1, n + 1)) if d is None else d) * (np.arange(n) < (k or n))
    return -((soft @ g) * d).sum() / (np.sort(g)[::-1] * d).sum()


def soft_map(soft: Array, y: Array, k: int | None, relevant: float = 1):
    b = soft @ (y >= relevant)
    total = sum(b[r] * (1 + b[:r].sum()) / (r + 1) for r in range(len(y)) if r < (k or len(y)))
    return -total / max(1, (y >= relevant).sum())


def _first_stop(chances: Array, k: int | None) -> float:
    total = 0.0
    reaching = 1.0
    for r, c in enumerate(chances[:k], 1):
        total += reaching * c / r
        reaching *= 1 - c
    return -total


def soft_mrr(soft: Array, y: Array, k: int | None, relevant: float = 1):
    return _first_stop(soft @ (y >= relevant), k)


def soft_err(soft: Array, y: Array, k: int | None, levels: float = 5):
    return _first_stop(soft @ ((2**y - 1) / 2 ** (levels - 1)), k)


def soft_precision(soft: Array, y: Array, k: int | None, relevant: float = 1):
    return -(soft @ (y >= relevant))[:k].sum() / (k or len(y))


# a metric of a soft permutation


def neural(metric, s: Array, y: Array, k: int | None = None, temperature: float = 1.0,
           max_iter: int = 30, sort=neural_sort, **knobs):  # fmt: skip
    return metric(sinkhorn(sort(s, temperature), max_iter), y, k, **knobs)


softsortndcg = partial(neural, soft_ndcg, sort=soft_sort)


def neuralndcg_t(s: Array, y: Array, k: int | None = None, temperature: float = 1.0, **knobs):
    """Equation 6: scaled as the transposed matrix, summed over the items."""
    return soft_ndcg(sinkhorn(neural_sort(s, temperature).T).T, y, k, **knobs)


def networkndcg(s: Array, y: Array, k: int | None = None, temperature: float = 0.1,
                network: str = "bitonic", distribution: str = "cauchy", gain="exp2"):  # fmt: skip
    order = np.lexsort((-s, -gains(y, gain)))
    return soft_ndcg(network_sort(s, order, temperature, network, distribution), y, k, gain=gain)


def otndcg(s: Array, y: Array, k: int | None = None, temperature: float = 0.01, **knobs):
    return soft_ndcg(ot_sort(s, temperature), y, k, **knobs)


def softndcg(s: Array, y: Array, k: int | None = None, sigma: float = 1.0,
             discount: str = "log2", normalise: bool = False, gain="exp2"):  # fmt: skip
    r = np.arange(1, len(s) + 1)
    d = {"log2": 1 / np.log2(1 + r), "sqrt_log2": np.log2(1 + r) ** -0.5,
         "linear": 1 - (r - 1) / len(s)}[discount]  # fmt: skip
    soft = rank_distribution(s, sigma)
    return soft_ndcg(sinkhorn(soft) if normalise else soft, y, k, d, gain)
