"""Transforms: the published recipe of Web30K as arithmetic, fitted on train only, finite."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from sklearn.preprocessing import QuantileTransformer

from ltr.data.lists import Lists
from ltr.data.transforms import fit_transform, no_transform, quantile_transform
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.training.checkpoint import checkpoint_errors, features_of
from tests.helpers.made_columns import mixed
from tests.helpers.made_lists import make_lists


def lists_with(features: np.ndarray) -> Lists:
    return Lists(
        features.astype(np.float32),
        labels=np.zeros(len(features), np.float32),
        offsets=np.array([0, len(features)]),
        qids=np.array(["1"]),
    )


def lists_of(*columns: Sequence[float] | np.ndarray) -> Lists:
    return lists_with(np.array(columns).T)


def test_fit_transform_follows_the_recipe_of_web30k() -> None:
    train = lists_of([0.0, 3.0, 1.0], [-1.0, 3.0, 0.0], [-5.0, -2.0, -3.0], [0.0, 4.0, 1.0])
    fitted = fit_transform(train, log="nonnegative", never_log=[3], negate=[2])
    transformed = fitted(train.features)
    expected = np.array(
        [
            np.log([0.01, 3.01, 1.01]),  # all >= 0: logged
            (-1.0, 3.0, 0.0),  # a value below 0: only standardised
            np.log([5.01, 2.01, 3.01]),  # negated, then logged
            (0.0, 4.0, 1.0),  # never logged
        ]
    ).T
    expected = (expected - expected.mean(0)) / (expected.std(0) + 1e-6)
    np.testing.assert_allclose(transformed, expected, rtol=1e-6)


def test_fit_transform_keeps_any_split_finite() -> None:
    train = lists_of([0.0, 1.0, 3.0], [2.0, 2.0, 2.0], [1.0, np.nan, 3.0], [np.nan] * 3)
    odd = np.array([[-1e30, 5, np.nan, 1], [3e38, -3e38, 3e38, 3e38]], np.float32)
    for log in ("never", "nonnegative", "skewed"):
        transformed = fit_transform(train, log=log)(odd)
        assert np.isfinite(transformed).all()
        assert (transformed[:, 1] == 0).all(), "a column constant in train says nothing"
        assert transformed[0, 2] == 0, "a missing value is the column's mean"
    assert np.isfinite(no_transform(train)(odd)).all()
    logged = fit_transform(lists_of([0.0, 3.0]), log="nonnegative")
    below, zero = logged(np.array([[-4.0], [0.0]], np.float32))
    assert below == zero, "a negative value in a logged column counts as 0"


def test_fit_transform_takes_the_log_of_skewed_columns_only() -> None:
    rng = np.random.default_rng(0)
    heavy = rng.lognormal(4, 2, 500)
    even = rng.normal(30, size=500)
    fitted = fit_transform(lists_of(heavy, -heavy, np.ones(500), even), log="skewed")
    assert fitted.shape.tolist() == [2, 2, 0, 0]


def test_fit_transform_leaves_the_lists_alone_and_ignores_labels() -> None:
    lists = make_lists([30], seed=3)
    features = lists.features.copy()
    fitted = fit_transform(lists, log="skewed", negate=[1])
    fitted(lists.features)
    np.testing.assert_array_equal(lists.features, features)
    relabelled = replace(lists, labels=lists.labels[::-1].copy())
    assert fit_transform(relabelled, log="skewed", negate=[1]).state() == fitted.state()


@pytest.mark.parametrize(
    ("fit", "knobs", "message"),
    [
        (fit_transform, {"negate": [9]}, r"columns 0 to 4, .* column 9: choose"),
        (fit_transform, {"log": "sqrt"}, r"log=sqrt.*never, nonnegative, skewed"),
        (quantile_transform, {"noise": -1}, "noise=-1: give a number >= 0"),
        (quantile_transform, {"quantiles": 1}, "quantiles=1: give a"),
    ],
)
def test_transforms_refuse_settings_out_of_range(fit, knobs, message) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(make_lists([3]), **knobs)
    with pytest.raises(DataError, match="have 4 features, but the model was trained on 5"):
        fit(make_lists([3]))(make_lists([3], width=4).features)


def test_fit_transform_transforms_many_items_as_each_alone() -> None:
    """In several threads, block by block; first values and constant columns across blocks too."""
    rng = np.random.default_rng(0)
    features = rng.lognormal(size=(70_000, 4)).astype(np.float32)
    features[:66_000, 1] = np.nan  # no value in the first block of the fit
    features[:, 2] = 7
    features[69_999, 2] = 8
    features[:, 3] = 7
    features[::3, 3] = np.nan
    for log in ("never", "nonnegative", "skewed"):
        transform = fit_transform(lists_with(features), log=log)
        assert (transform.scale > 0).tolist() == [True, True, True, False]
        shaped = transform.shaped(features)
        assert np.allclose(transform.mean[:3], np.nanmean(shaped, 0)[:3], rtol=1e-12)
        assert np.allclose(transform.scale[:3], 1 / (np.nanstd(shaped, 0)[:3] + 1e-6), rtol=1e-9)
        sample = rng.integers(0, 70_000, 300)
        alone = np.concatenate([transform(features[item : item + 1]) for item in sample])
        assert np.array_equal(transform(features)[sample], alone)


# By quantiles.


def test_quantile_transform_without_noise_agrees_with_scikit_learn() -> None:
    features = np.random.default_rng(0).lognormal(size=(900, 3)).astype(np.float32)
    train = features[:700]
    unseen = features[700:]
    ours = quantile_transform(lists_with(train), noise=0)
    theirs = QuantileTransformer(n_quantiles=700 // 30, output_distribution="normal").fit(train)
    assert ours.grids.shape == (3, 23)
    np.testing.assert_allclose(ours(unseen), theirs.transform(unseen), atol=1e-4)
    assert quantile_transform(lists_with(train), quantiles=100).grids.shape == (3, 100)


def test_quantile_transform_handles_ties_missing_values_constants_and_outliers() -> None:
    rng = np.random.default_rng(0)
    tied = np.repeat([0.0, 5.0], [600, 300])
    holes = np.where(rng.random(900) < 0.5, np.nan, rng.exponential(size=900))
    train = lists_with(np.stack([tied, holes, np.full(900, 7.0), np.full(900, np.nan)], 1))
    odd = np.array([[0, np.nan, 7, 1], [5, 1e38, 8, 3e38], [-9, -1e38, -8, -1]], np.float32)
    exact = quantile_transform(train, noise=0)(odd)
    # level 1/3 is the middle of the zeros, 5/6 that of the fives; 0.43 and 0.97 are their scores
    np.testing.assert_allclose(exact[:2, 0], [-0.4307, 0.9674], atol=0.1)
    transform = quantile_transform(train)
    transformed = transform(odd)
    assert np.isfinite(transformed).all()
    assert (np.diff(transform.grids[0]) > 0).all(), "noise spreads equal values"
    assert transformed[0, 1] == 0, "a missing value is the median"
    np.testing.assert_allclose(np.abs(transformed[1:, 1]), 5.1993, atol=1e-3)
    assert (transformed[:, 2:] == 0).all(), "constant in train, or without a value"
    observed = transform(train.features[~np.isnan(holes)])[:, 1]
    assert abs(np.median(observed)) < 0.05, "missing values are not fitted"


def test_quantile_transform_scales_its_noise_with_the_column() -> None:
    column = np.random.default_rng(0).normal(size=3000)
    small = quantile_transform(lists_of(column), noise=0.1)
    large = quantile_transform(lists_of(1e6 * column), noise=0.1)
    np.testing.assert_allclose(large.grids / 1e6, small.grids, rtol=1e-4)
    assert not np.allclose(small.grids, quantile_transform(lists_of(column)).grids, rtol=1e-2)


def test_quantile_transform_keeps_categories_and_marks_missing_values() -> None:
    lists = mixed(40)
    transformed = quantile_transform(lists, missing="indicator")(lists.features)
    price = lists.features[:, 0]
    brand = lists.features[:, 1]
    np.testing.assert_array_equal(transformed[:, 1], np.where(np.isnan(brand), 13, brand))
    np.testing.assert_array_equal(transformed[:, 4], np.isnan(price))
    with_missing = quantile_transform(lists, missing="keep")(lists.features)
    np.testing.assert_array_equal(np.isnan(with_missing), np.isnan(lists.features))


def test_transform_state_round_trips_to_the_same_bits() -> None:
    lists = mixed(40)
    fitted = quantile_transform(lists)
    assert fitted.state() == quantile_transform(replace(lists, labels=lists.labels + 1)).state()
    state = json.loads(json.dumps(fitted.state()))
    checkpoint = {"width": 4, "columns": None}
    loaded, _ = features_of({"transform": state, **checkpoint})
    np.testing.assert_array_equal(loaded(lists.features), fitted(lists.features))
    without = {key: value for key, value in state.items() if key != "grids"}
    wrong_grids = [{"grids": grids} for grids in ([], [[0.0, 1.0]], [[0.0], [1.0]], 3.0)]
    for wrong in (*wrong_grids, {}):
        with pytest.raises(CheckpointError), checkpoint_errors(__file__):
            features_of({"transform": without | wrong, **checkpoint})
