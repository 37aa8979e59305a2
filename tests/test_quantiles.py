"""The quantile transform: normal scores by train's quantiles, missing-safe, kept to the bit."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_columns import mixed
from sklearn.preprocessing import QuantileTransformer

from ltr.data.lists import Lists
from ltr.data.transforms import quantile_transform
from ltr.errors import CheckpointError, ConfigError
from ltr.training.checkpoint import fitting, transform_of


def lists_of(features: np.ndarray) -> Lists:
    n = len(features)
    return Lists(
        features.astype(np.float32), np.zeros(n, np.float32), np.array([0, n]), np.array(["1"])
    )


def test_without_noise_it_is_scikit_learns() -> None:
    features = np.random.default_rng(0).lognormal(size=(900, 3)).astype(np.float32)
    train, others = features[:700], features[700:]
    ours = quantile_transform(lists_of(train), noise=0)
    theirs = QuantileTransformer(n_quantiles=700 // 30, output_distribution="normal").fit(train)
    assert ours.grids.shape == (3, 23)
    np.testing.assert_allclose(ours(others), theirs.transform(others), atol=1e-4)
    finer = quantile_transform(lists_of(train), noise=0, quantiles=100)
    theirs = QuantileTransformer(n_quantiles=100, output_distribution="normal").fit(train)
    np.testing.assert_allclose(finer(others), theirs.transform(others), atol=1e-4)


def test_ties_missing_values_constants_and_far_values() -> None:
    rng = np.random.default_rng(0)
    tied = np.repeat([0.0, 5.0], [600, 300])
    holes = np.where(rng.random(900) < 0.5, np.nan, rng.exponential(size=900))
    train = lists_of(np.stack([tied, holes, np.full(900, 7.0), np.full(900, np.nan)], 1))
    odd = np.array([[0, np.nan, 7, 1], [5, 1e38, 8, 3e38], [-9, -1e38, -8, -1]], np.float32)
    exact = quantile_transform(train, noise=0)(odd)
    # level 1/3 is the middle of the zeros, 5/6 that of the fives; 0.43 and 0.97 are their scores
    np.testing.assert_allclose(exact[:2, 0], [-0.4307, 0.9674], atol=0.1)
    transform = quantile_transform(train)
    got = transform(odd)
    assert np.isfinite(got).all()
    assert (np.diff(transform.grids[0]) > 0).all(), "noise spreads equal values"
    assert got[0, 1] == 0, "a missing value is the median"
    np.testing.assert_allclose(np.abs(got[1:, 1]), 5.1993, atol=1e-3)
    assert (got[:, 2:] == 0).all(), "constant in train, or without a value"
    observed = transform(train.features[~np.isnan(holes)])[:, 1]
    assert abs(np.median(observed)) < 0.05, "missing values are not fitted"


def test_noise_is_in_units_of_the_column() -> None:
    column = np.random.default_rng(0).normal(size=3000)
    one = quantile_transform(lists_of(column[:, None]), noise=0.1)
    million = quantile_transform(lists_of(1e6 * column[:, None]), noise=0.1)
    np.testing.assert_allclose(million.grids / 1e6, one.grids, rtol=1e-4)
    assert not np.allclose(
        one.grids, quantile_transform(lists_of(column[:, None])).grids, rtol=1e-2
    )


def test_categories_stay_and_missing_values_have_an_indicator() -> None:
    lists = mixed(40)
    got = quantile_transform(lists, missing="indicator")(lists.features)
    price, brand = lists.features[:, 0], lists.features[:, 1]
    np.testing.assert_array_equal(got[:, 1], np.where(np.isnan(brand), 13, brand))
    np.testing.assert_array_equal(got[:, 4], np.isnan(price))
    kept = quantile_transform(lists, missing="keep")(lists.features)
    np.testing.assert_array_equal(np.isnan(kept), np.isnan(lists.features))


def test_kept_and_read_again_it_gives_the_same_bits() -> None:
    lists = mixed(40)
    fitted = quantile_transform(lists)
    assert fitted.state() == quantile_transform(replace(lists, labels=lists.labels + 1)).state()
    state = json.loads(json.dumps(fitted.state()))
    again = transform_of({"transform": state, "width": 4})
    np.testing.assert_array_equal(again(lists.features), fitted(lists.features))
    for wrong in ([], [[0.0, 1.0]], [[0.0], [1.0]], 3.0):
        with pytest.raises(CheckpointError), fitting(__file__):  # type: ignore[arg-type]
            transform_of({"transform": state | {"grids": wrong}, "width": 4})
    del state["grids"]
    with pytest.raises(CheckpointError), fitting(__file__):  # type: ignore[arg-type]
        transform_of({"transform": state, "width": 4})


@pytest.mark.parametrize(
    ("knobs", "message"),
    [({"noise": -1}, "noise=-1: give a number >= 0"), ({"quantiles": 1}, "quantiles=1: give a")],
)
def test_errors_say_what_to_do(knobs, message) -> None:
    with pytest.raises(ConfigError, match=message):
        quantile_transform(mixed(3), **knobs)
