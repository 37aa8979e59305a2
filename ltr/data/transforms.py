"""Feature transforms: one function per column, fitted on train and applied to every split."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ltr.arrays import Doubles, Flags, Floats, Ints
from ltr.data.lists import Lists
from ltr.data.machine import processors
from ltr.errors import ConfigError, DataError
from ltr.knobs import check_choice, python_number

Log = Literal["never", "nonnegative", "skewed", "signed"]
Missing = Literal["mean", "indicator", "keep"]

_BLOCK = 1 << 16  # items per step of the float64 statistics; another size changes their last bits
_SMALL_BLOCK = 1 << 10  # items that are transformed at once; they fit the processor's cache
_MANY_BLOCKS = 8  # for fewer blocks, threads are not worth their cost
_SKEW_SAMPLE = 100_000  # about how many items are used to measure the skewness
_SAMPLE = 1 << 20  # the most items that are used for quantiles; they are sampled evenly
_COLUMNS = 16  # columns read at once for quantiles, as the items are stored row by row
# Values of ``FeatureTransform.shape``.
_PLAIN = 0
LOG = 1
SIGNED_LOG = 2
QUANTILE = 3
LOG_EPS = 0.01  # added before the logarithm, in units of the feature
_STD_EPS = 1e-6  # added to the standard deviation (population, over items)
END = 1e-7  # least distance of quantile levels from 0 and 1; so normal scores stay within +-5.2


@dataclass(frozen=True, eq=False)
class FeatureTransform:
    """Applies ``(f(sign * x) - mean) * scale`` to each column.

    A missing value becomes 0, which is the mean of a standardised column. A category column keeps
    its codes, and a missing value gets the code after the last one. The function ``f`` depends on
    ``shape``: 0 is x, 1 is log(max(x, 0) + 0.01), 2 is sign(x) log(1 + |x|), and 3 is the normal
    score of the quantile level that x has among the training values of the column. For each column
    in ``indicated``, one column is added at the end: 1 where the value is missing, else 0.
    """

    shape: NDArray[np.int8]  # [width]
    sign: Doubles  # [width], +1 or -1
    mean: Doubles  # [width], the mean of f(sign * x) over train
    scale: Doubles  # [width], 1 / (std + eps); 0 for a column that is constant in train
    codes: Ints  # [width], number of codes of a category column; 0 for a numeric column
    indicated: Ints  # ascending indices of the columns with an indicator of missing values
    keep_missing: bool = False  # for trees: missing values stay NaN, also in category columns
    grids: Doubles = field(default_factory=lambda: np.zeros((0, 2)))  # [columns of shape 3, levels]

    @property
    def width(self) -> int:
        """Number of columns before the transform."""
        return len(self.mean)

    @property
    def outputs(self) -> int:
        """Number of columns after the transform, indicators of missing values included."""
        return self.width + len(self.indicated)

    def __call__(self, features: Floats) -> Floats:
        """Return the transformed ``features`` as a new float32 array, ``[items, outputs]``.

        The result is finite, except that missing values stay NaN if ``keep_missing``.
        Raises ``DataError`` if the number of features differs from that of the training lists.
        """
        if features.shape[1] != self.width:
            raise DataError(
                f"the lists have {features.shape[1]} features, but the model was trained on "
                f"{self.width}: use lists with the same features"
            )
        limit = np.finfo(np.float32).max
        filled = self.codes.astype(np.float64)  # 0 for numbers, the code after the last otherwise

        def transform(rows: Floats) -> Doubles:
            block = self.shaped(rows)
            block -= self.mean
            block *= self.scale
            if not self.keep_missing:
                np.copyto(block, filled, where=np.isnan(block))
            np.clip(block, -limit, limit, out=block)
            if not len(self.indicated):
                return block
            return np.concatenate([block, np.isnan(rows[:, self.indicated])], axis=1)

        shape = (len(features), self.outputs)
        return _by_small_blocks(transform, features, np.empty(shape, np.float32))

    def shaped(self, features: Floats) -> Doubles:
        """Return ``f(sign * x)`` for every column, in float64."""
        block = features * self.sign
        log_columns = np.flatnonzero(self.shape == LOG)
        if len(log_columns):
            values = block[:, log_columns]
            np.maximum(values, 0.0, out=values)
            values += LOG_EPS
            block[:, log_columns] = np.log(values, out=values)
        signed_log_columns = np.flatnonzero(self.shape == SIGNED_LOG)
        if len(signed_log_columns):
            block[:, signed_log_columns] = _signed_log(block[:, signed_log_columns])
        for column, grid in zip(np.flatnonzero(self.shape == QUANTILE), self.grids, strict=True):
            values = block[:, column]
            grid_levels = np.linspace(0.0, 1.0, len(grid))
            levels = np.interp(values, grid, grid_levels)
            if (grid[1:] == grid[:-1]).any():  # a value with several levels gets the middle of them
                levels = (levels - np.interp(-values, -grid[::-1], -grid_levels[::-1])) / 2
            block[:, column] = ndtri(np.clip(levels, END, 1 - END))
        return block

    def keeping_missing(self) -> "FeatureTransform":
        """Return the same transform without indicators; it leaves missing values NaN."""
        return replace(self, keep_missing=True, indicated=self.indicated[:0])

    def state(self) -> dict[str, Any]:
        """Return the transform as plain lists and numbers, for a checkpoint."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "FeatureTransform":
        """Return the transform whose ``state()`` is ``state``.

        Raises ``ValueError`` if the entries of ``state`` do not match each other.
        """
        types: dict[str, Any] = dict.fromkeys(("sign", "mean", "scale", "grids"), np.float64)
        types |= {"shape": np.int8, "codes": np.int64, "indicated": np.int64}
        arrays: Any = {name: np.asarray(state[name], type_) for name, type_ in types.items()}
        if not arrays["grids"].size:  # an empty list has lost the shape [0, levels]
            del arrays["grids"]
        transform = cls(keep_missing=bool(state["keep_missing"]), **arrays)
        transform._check()
        return transform

    def _check(self) -> None:
        """Raise ``ValueError`` if the arrays do not match each other."""
        columns = (self.shape, self.sign, self.mean, self.scale, self.codes)
        if (
            any(column.shape != (self.width,) for column in columns)
            or (np.diff(self.indicated) <= 0).any()
            or not np.isin(self.indicated, np.arange(self.width)).all()
            or self.grids.ndim != 2
            or len(self.grids) != (self.shape == QUANTILE).sum()
            or self.grids.shape[1] < 2
        ):
            raise ValueError(f"transform: expected a valid transform of {self.width} columns")


def no_transform(lists: Lists, *, missing: Missing = "mean") -> FeatureTransform:
    """Return a transform that changes only missing values.

    If ``missing`` is ``"mean"``, missing values become 0. ``"indicator"`` also adds a column for
    each numeric column that has a missing value. ``"keep"`` leaves missing values NaN.
    """
    check_choice("transform.missing", missing, get_args(Missing))
    width = lists.width
    codes = np.zeros(width, np.int64) if lists.columns is None else lists.columns.codes
    has_missing = np.zeros(width, bool)
    if missing == "indicator" and lists.missing:
        has_missing = np.isnan(lists.features.max(0))  # the maximum of values with a NaN is NaN
    return FeatureTransform(
        shape=np.zeros(width, np.int8),
        sign=np.ones(width),
        mean=np.zeros(width),
        scale=np.ones(width),
        codes=codes,
        indicated=np.flatnonzero(has_missing & (codes == 0)),
        keep_missing=missing == "keep",
    )


def fit_transform(
    lists: Lists,
    *,
    log: Log = "never",
    never_log: Sequence[int] = (),
    negate: Sequence[int] = (),
    missing: Missing = "mean",
) -> FeatureTransform:
    """Return a transform fitted on train: an optional sign flip and logarithm, then scaling.

    The scaling gives each column mean 0 and standard deviation 1 over the training lists. The
    transform that was published with NeuralNDCG for Web30K also reads the validation and test
    lists. Here only the training lists decide which columns get a logarithm, and log(x + 0.01)
    treats a value below 0 in another split as 0. A column that is constant in train becomes 0;
    category columns stay as they are.

    Args:
        lists: the training split, and only that.
        log: which columns get a logarithm. ``never``: none. ``nonnegative``: log(x + 0.01) for
            every column whose training values are all >= 0 after the sign flip. ``skewed``: sign(x)
            log(1 + |x|) for every column that it makes less skewed. ``signed``: the same function
            for all columns.
        never_log: the 0-based indices of columns that get no logarithm, whatever ``log`` says.
        negate: the 0-based indices of columns whose sign is flipped first.
        missing: what a missing value becomes. ``mean``: the column's mean in train. ``indicator``:
            the same; in addition, each numeric column with missing values in train gets another
            column that marks them. ``keep``: NaN.

    Raises:
        ConfigError: a setting is out of range.
    """
    check_choice("transform.log", log, get_args(Log))
    for column in (*never_log, *negate):
        if not 0 <= column < lists.width:
            raise ConfigError(
                f"transform: the lists have the columns 0 to {lists.width - 1}, but a setting "
                f"names column {column}: choose another transform, such as transform=standardise"
            )
    plain = no_transform(lists, missing=missing)
    shape = plain.shape
    sign = plain.sign
    categories = plain.codes > 0
    sign[list(negate)] = -1.0
    low, high = column_range(lists.features)
    constant = low >= high  # also true if all values are missing
    if log == "nonnegative":
        shape[np.where(sign > 0, low, -high) >= 0] = LOG
    elif log == "skewed":
        shape[_less_skewed_by_log(lists.features)] = SIGNED_LOG
    elif log == "signed":
        shape[:] = SIGNED_LOG
    shape[list(never_log)] = _PLAIN
    shape[categories] = _PLAIN
    sign[categories] = 1.0

    from sklearn.preprocessing import StandardScaler  # takes half of a command's import time

    scaler = StandardScaler()
    for first in range(0, lists.items, _BLOCK):
        raw = lists.features[first : first + _BLOCK]
        block = _by_small_blocks(plain.shaped, raw, np.empty(raw.shape))
        with np.errstate(invalid="ignore"):  # a column without values so far has no mean
            scaler.partial_fit(block)
        scaler.mean_ = np.nan_to_num(scaler.mean_)  # a NaN would remain when values come later
    scale = 1.0 / (np.nan_to_num(np.sqrt(scaler.var_)) + _STD_EPS)
    return replace(
        plain,
        mean=np.where(constant | categories, 0.0, scaler.mean_),
        scale=np.where(categories, 1.0, np.where(constant, 0.0, scale)),
    )


def quantile_transform(
    lists: Lists, *, noise: float = 1e-3, quantiles: int | None = None, missing: Missing = "mean"
) -> FeatureTransform:
    """Return a transform from a value to the normal score of its quantile in the training lists.

    The normal score is ``ndtri(level(x))``, limited to +-5.2. The level is interpolated between
    ``quantiles`` evenly spaced levels, as in scikit-learn's QuantileTransformer (used by Gorishniy
    et al., 2021, and in TabM by Gorishniy et al., 2025). Columns that are constant in train become
    0; category columns stay as they are.

    Args:
        lists: the training split, and only that.
        noise: standard deviation of the normal noise that is added to the values for the fit, as a
            fraction of the column's standard deviation; it makes the quantiles of equal values
            differ. TabM's code divides by the column's deviation where this function multiplies by
            it.
        quantiles: the number of levels; None: a thirtieth of the number of items, but at least 10
            and at most 1000, as in TabM.
        missing: as for ``fit_transform``, except that ``mean`` is the column's median.

    Raises:
        ConfigError: a setting is out of range.
    """
    if not noise >= 0:
        raise ConfigError(f"transform.noise={noise}: give a number >= 0")
    quantiles = min(max(lists.items // 30, 10), 1000) if quantiles is None else quantiles
    quantiles = python_number(quantiles)
    if not isinstance(quantiles, int) or quantiles < 2:
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
            values = values[~np.isnan(values)]
            if not len(values):
                continue
            deviation = noise * values.std()
            if deviation:
                rng = np.random.default_rng([len(values), int(column), 20250224])  # per column
                values = values + deviation * rng.standard_normal(len(values))
            # rounding in the interpolation may break the ascending order
            grids[row] = np.maximum.accumulate(np.quantile(values, levels))

    with ThreadPoolExecutor(processors(), "quantiles") as pool:
        list(pool.map(fit, range(0, len(numbers), _COLUMNS)))
    low, high = column_range(lists.features)
    plain.shape[numbers] = QUANTILE
    plain.scale[numbers] = (low < high)[numbers]
    return replace(plain, grids=grids)


def column_range(features: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and largest value of each column; inf and -inf if all are missing."""
    low = np.fmin.reduce(features, axis=0, initial=np.inf)
    high = np.fmax.reduce(features, axis=0, initial=-np.inf)
    return low, high


def _less_skewed_by_log(features: Floats) -> Flags:
    """Return for each column whether sign(x) log(1 + |x|) makes it less skewed.

    A sample of evenly spaced items is used. The function is odd, so the sign of the column does
    not matter.
    """
    from scipy.stats import skew  # takes a second

    sample = features[:: max(1, len(features) // _SKEW_SAMPLE)].T.astype(np.float64, order="C")
    varies = np.fmax.reduce(sample, axis=1) > np.fmin.reduce(sample, axis=1)
    better = np.zeros(features.shape[1], bool)
    for column in np.flatnonzero(varies):
        values = sample[column][~np.isnan(sample[column])]
        better[column] = abs(skew(_signed_log(values))) < abs(skew(values))
    return better


def _signed_log(values: Doubles) -> Doubles:
    return np.sign(values) * np.log1p(np.abs(values))


def _by_small_blocks(function: Callable[[Floats], Doubles], features: Floats, out: Any) -> Any:
    """Write ``function(features)`` to ``out``, in threads if it has many rows; return ``out``."""

    def transform_block(start: int) -> None:
        rows = slice(start, start + _SMALL_BLOCK)
        out[rows] = function(features[rows])

    starts = range(0, len(features), _SMALL_BLOCK)
    with ThreadPoolExecutor(processors(), "transform") as pool:
        apply: Any = map if len(starts) < _MANY_BLOCKS else pool.map
        list(apply(transform_block, starts))  # an error in a thread is raised here
    return out
