"""scikit-learn's own checks of an estimator, on a ``Ranker`` of a small network."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltr import Ranker

_OF_QUERIES = (
    "a weight counts a query: the rows of one have the same weight, where scikit-learn gives each "
    "row its own"
)
# Checks that a Ranker does not pass, with the reason.
EXCEPTIONS = {
    "check_sample_weights_not_overwritten": f"{_OF_QUERIES}; what is given is not changed either",
    "check_dataframe_column_names_consistency": "columns are read by name, as ltr predict does",
    "check_sample_weight_equivalence_on_dense_data": _OF_QUERIES,
    "check_sample_weight_equivalence_on_sparse_data": _OF_QUERIES,
}


def small() -> Ranker:
    """Seconds for all checks: they fit without ``qid``, so all rows are of one query."""
    return Ranker("linear", "listnet", epochs=1, one_list=True, verbose=0, metrics_as="sklearn")


@pytest.mark.slow
@parametrize_with_checks([small()], expected_failed_checks=lambda _: EXCEPTIONS, xfail_strict=True)
def test_scikit_learn(estimator, check) -> None:
    check(estimator)
