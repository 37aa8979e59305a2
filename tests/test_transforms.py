"""Transforms: the published Web30K recipe by arithmetic, fitted on train only, always finite."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from conftest import make_lists
from made_columns import mixed
from sklearn.preprocessing import QuantileTransformer

from ltr.data.lists import Lists
from ltr.data.transforms import fit_transform, no_transform, quantile_transform
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.training.checkpoint import features_of, fitting


def lists_with(features: np.ndarray) -> Lists:
    offsets, qids = np.array([0, len(features)]), np.array(["1"])
    return Lists(features.astype(np.float32), np.zeros(len(features), np.float32), offsets, qids)


def lists_of(*columns: Sequence[float] | np.ndarray) -> Lists:
    return lists_with(np.array(columns).T)


def test_web30k_recipe_is_log_of_x_plus_eps_then_standardised() -> None:
    train = lists_of([0.0, 3.0, 1.0], [-1.0, 3.0, 0.0], [-5.0, -2.0, -3.0], [0.0, 4.0, 1.0])
    fitted = fit_transform(train, log="nonnegative", never_log=[3], negate=[2])
    got = fitted(train.features)
    expected = np.array(
        [
            np.log([0.01, 3.01, 1.01]),  # all >= 0: logged
            (-1.0, 3.0, 0.0),  # a value below 0: only standardised
            np.log([5.01, 2.01, 3.01]),  # negated, then logged
            (0.0, 4.0, 1.0),  # never logged
        ]
    ).T
    expected = (expected - expected.mean(0)) / (expected.std(0) + 1e-6)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_other_splits_stay_finite_whatever_they_hold() -> None:
    train = lists_of([0.0, 1.0, 3.0], [2.0, 2.0, 2.0], [1.0, np.nan, 3.0], [np.nan] * 3)
    odd = np.array([[-1e30, 5, np.nan, 1], [3e38, -3e38, 3e38, 3e38]], np.float32)
    for log in ("never", "nonnegative", "skewed"):
        got = fit_transform(train, log=log)(odd)
        assert np.isfinite(got).all()
        assert (got[:, 1] == 0).all(), "a column constant in train says nothing"
        assert got[0, 2] == 0, "a missing value is the column's mean"
    assert np.isfinite(no_transform(train)(odd)).all()
    logged = fit_transform(lists_of([0.0, 3.0]), log="nonnegative")
    below, zero = logged(np.array([[-4.0], [0.0]], np.float32))
    assert below == zero, "a negative value in a logged column counts as 0"


def test_skewed_logs_only_the_columns_it_helps() -> None:
    rng = np.random.default_rng(0)
    heavy, even = rng.lognormal(4, 2, 500), rng.normal(30, size=500)
    fitted = fit_transform(lists_of(heavy, -heavy, np.ones(500), even), log="skewed")
    assert fitted.shape.tolist() == [2, 2, 0, 0]


def test_the_lists_are_left_as_they_are_and_labels_do_not_count() -> None:
    lists = make_lists([30], seed=3)
    before = lists.features.copy()
    fitted = fit_transform(lists, log="skewed", negate=[1])
    fitted(lists.features)
    np.testing.assert_array_equal(lists.features, before)
    other = replace(lists, labels=lists.labels[::-1].copy())
    assert fit_transform(other, log="skewed", negate=[1]).state() == fitted.state()


@pytest.mark.parametrize(
    ("fit", "knobs", "message"),
    [
        (fit_transform, {"negate": [9]}, r"column 9 is not there.*columns 0 to 4; choose"),
        (fit_transform, {"log": "sqrt"}, r"log=sqrt.*never, nonnegative, skewed"),
        (quantile_transform, {"noise": -1}, "noise=-1: give a number >= 0"),
        (quantile_transform, {"quantiles": 1}, "quantiles=1: give a"),
    ],
)
def test_settings_out_of_range_are_refused(fit, knobs, message) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(make_lists([3]), **knobs)
    with pytest.raises(DataError, match="have 4 features, the model was trained on 5"):
        fit(make_lists([3]))(make_lists([3], width=4).features)


def test_many_items_are_transformed_as_each_alone() -> None:
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
        some = rng.integers(0, 70_000, 300)
        alone = np.concatenate([transform(features[i : i + 1]) for i in some])
        assert np.array_equal(transform(features)[some], alone)


# By quantiles.


def test_without_noise_it_is_scikit_learns() -> None:
    features = np.random.default_rng(0).lognormal(size=(900, 3)).astype(np.float32)
    train, others = features[:700], features[700:]
    ours = quantile_transform(lists_with(train), noise=0)
    theirs = QuantileTransformer(n_quantiles=700 // 30, output_distribution="normal").fit(train)
    assert ours.grids.shape == (3, 23)
    np.testing.assert_allclose(ours(others), theirs.transform(others), atol=1e-4)
    assert quantile_transform(lists_with(train), quantiles=100).grids.shape == (3, 100)


def test_ties_missing_values_constants_and_far_values() -> None:
    rng = np.random.default_rng(0)
    tied = np.repeat([0.0, 5.0], [600, 300])
    holes = np.where(rng.random(900) < 0.5, np.nan, rng.exponential(size=900))
    train = lists_with(np.stack([tied, holes, np.full(900, 7.0), np.full(900, np.nan)], 1))
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
    one = quantile_transform(lists_of(column), noise=0.1)
    million = quantile_transform(lists_of(1e6 * column), noise=0.1)
    np.testing.assert_allclose(million.grids / 1e6, one.grids, rtol=1e-4)
    assert not np.allclose(one.grids, quantile_transform(lists_of(column)).grids, rtol=1e-2)


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
    kept = {"width": 4, "columns": None}
    again = features_of({"transform": state, **kept})[0]
    np.testing.assert_array_equal(again(lists.features), fitted(lists.features))
    without = {key: value for key, value in state.items() if key != "grids"}
    for wrong in (*({"grids": g} for g in ([], [[0.0, 1.0]], [[0.0], [1.0]], 3.0)), {}):
        with pytest.raises(CheckpointError), fitting(__file__):
            features_of({"transform": without | wrong, **kept})
