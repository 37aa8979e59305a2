"""Faults planted in right losses: the property that is named catches each, and passes the right."""

import pytest
from planted_faults import FAULTS

from ltr.battery import FAILS, GOES_TO, HOLDS, LOSS_PROPERTIES, Subject, judge

BY_NAME = {prop.__name__: prop for prop in LOSS_PROPERTIES}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    prop, metric = BY_NAME[fault.caught_by], GOES_TO.get(fault.right.__name__)
    verdict = judge(prop, Subject(fault.right, metric=metric))
    assert verdict.outcome == HOLDS, verdict.seen
    for target, value in fault.puts.items():
        monkeypatch.setattr(target, value)
    verdict = judge(prop, Subject(fault.wrong, metric=metric))
    assert verdict.outcome == FAILS
    assert fault.seen in verdict.seen
    assert "\n" not in verdict.seen
