"""What a run takes from another: of the same features, and from none that has seen its test."""

import logging
from typing import Any

import pytest
from conftest import compose, make_lists
from folders import refused
from torch import nn

from ltr.data.transforms import no_transform
from ltr.errors import ConfigError
from ltr.experiment.start import check_reads
from ltr.scorers.scorer import Scorer

CUT = ("dataset=table", "dataset.path=a.csv")


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (
            ("dataset=mq2008",),
            ("dataset=mq2008", "dataset.fold=3"),
            "dataset.fold as it was there, 1",
        ),
        (CUT, (*CUT, "dataset.seed=1", "dataset.features=[a]"), "dataset.seed as it was there, 0"),
        (CUT, (*CUT, "dataset.fractions=[0.6,0.2,0.2]"), "dataset.fractions as it was there, None"),
        (("dataset=mq2008",), ("dataset=mq2007", "dataset.fold=3"), None),
        (CUT, ("dataset=table", "dataset.path=b.csv", "dataset.seed=1"), None),
        ((), ("dataset.seed=1",), None),  # synthetic lists are drawn, not cut
    ],
)
def test_a_run_that_may_have_seen_test_is_refused(theirs, ours, said, caplog) -> None:
    train, config = make_lists([3, 4]), compose(*theirs)
    config.dataset.cache_dir = None
    node: Any = {"dataset": dict(config.dataset)}
    cfg = compose(*ours, "init_from=outputs/x")

    def check(digest: str) -> None:
        kept = Scorer(nn.Module(), no_transform(train), None, node, {"train": digest})
        check_reads(kept, train, cfg, "init_from")

    check(train.digest)  # the very same lists, however they are named
    assert not caplog.records
    if said is None:
        check("other")
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
    else:
        assert said in refused(lambda: check("other"), ConfigError)
