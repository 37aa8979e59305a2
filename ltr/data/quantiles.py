"""The quantile transform: each column to a normal distribution, by its quantiles in train."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from ltr.data.lists import Doubles, Lists
from ltr.data.machine import processors
from ltr.data.transforms import QUANTILE, FeatureTransform, Missing, column_range, no_transform
from ltr.errors import ConfigError

_SAMPLE = 1 << 20  # items whose quantiles are taken, sampled evenly
_COLUMNS = 16  # read at once: the items lie row by row


def quantile_transform(
    lists: Lists,
    *,
    noise: float = 1e-3,
    quantiles: int | None = None,
    missing: Missing = "mean",
) -> FeatureTransform:
    """Fit on train lists: a value becomes the normal score of its quantile level in train.

    ``ndtri(level(x))`` with the level interpolated between ``quantiles`` even levels, as
    scikit-learn's QuantileTransformer has it, and within +-5.2. It is what Gorishniy et al. (2025,
    TabM) and before them Gorishniy et al. (2021) give their networks. Columns that are constant in
    train become 0; category columns stay.

    Args:
        lists: the train split, and only that.
        noise: standard deviation of normal noise on the values that are fitted, in units of the
            column's own, so that the quantiles of equal values differ; TabM's code divides by the
            column's deviation where this multiplies with it. No noise is added to what is
            transformed.
        quantiles: how many levels; None: a thirtieth of the items, 10 to 1000, as TabM has it.
        missing: as for ``fit_transform``; ``mean`` is the median here.

    Returns:
        The fitted transform, a pure function of the lists.

    Raises:
        ConfigError: ``noise`` or ``quantiles`` is out of range.
    """
    if not noise >= 0:
        raise ConfigError(f"transform.noise={noise}: give a number >= 0")
    if quantiles is None:
        quantiles = min(max(lists.items // 30, 10), 1000)
    elif isinstance(quantiles, bool) or not isinstance(quantiles, int) or quantiles < 2:
        raise ConfigError(f"transform.quantiles={quantiles}: give a whole number >= 2, or null")
    plain = no_transform(lists, missing=missing)
    numbers = np.flatnonzero(plain.codes == 0)
    step = -(-lists.items // _SAMPLE)
    levels = np.linspace(0.0, 1.0, quantiles)
    grids = np.zeros((len(numbers), quantiles))

    def fit(first: int) -> None:
        columns = numbers[first : first + _COLUMNS]
        sample = lists.features[::step, columns].T.astype(np.float64, order="C")
        for row, (column, values) in enumerate(zip(columns, sample, strict=True), first):
            grids[row] = _quantiles(values[~np.isnan(values)], levels, noise, int(column))

    with ThreadPoolExecutor(processors(), "quantiles") as pool:
        list(pool.map(fit, range(0, len(numbers), _COLUMNS)))
    low, high = column_range(lists.features)
    shape, scale = plain.shape.copy(), plain.scale.copy()
    shape[numbers] = QUANTILE
    scale[numbers] = (low < high)[numbers]
    return replace(plain, shape=shape, scale=scale, grids=grids)


def _quantiles(values: Doubles, levels: Doubles, noise: float, column: int) -> Doubles:
    """The quantiles of ``values`` with noise, ascending; 0 without a value."""
    if not len(values):
        return np.zeros_like(levels)
    spread = noise * values.std()
    if spread:
        values = values + spread * _noise(column, len(values))
    found: Doubles = np.quantile(values, levels)
    return np.maximum.accumulate(found)  # interpolation may round below


def _noise(column: int, count: int) -> Doubles:
    """Normal draws of a stream that made data do not share."""
    return np.random.default_rng([count, column, 20250224]).standard_normal(count)
