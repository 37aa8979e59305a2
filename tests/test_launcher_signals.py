"""A signal that a launcher awaits, such as Slurm's: first ours, then the launcher gets it."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from ltr.training.interruption import Interrupted, Interruption, handing_on

SIGNAL = signal.SIGUSR2
heard: list[str] = []


class Requeued(Exception):
    """What a launcher ends the process with."""


@pytest.fixture(autouse=True)
def launcher() -> Iterator[None]:
    """submitit's handlers: it queues the job again, and outlasts SIGTERM."""

    def requeue(signum: int, frame: FrameType | None) -> None:
        heard.append("launcher")
        raise Requeued

    heard.clear()
    before = [signal.signal(SIGNAL, requeue), signal.signal(signal.SIGTERM, signal.SIG_IGN)]
    yield
    signal.signal(SIGNAL, before[0])
    signal.signal(signal.SIGTERM, before[1])


@handing_on()
def job(signum: int, *, trains: bool) -> None:
    """Get a signal in the midst of an epoch, or of other work."""
    if not trains:
        try:
            signal.raise_signal(signum)
        finally:
            heard.append("undone")
        return
    with Interruption() as interruption:
        signal.raise_signal(signum)
        assert interruption.signum == signum
        heard.append("checkpoint")


@pytest.mark.parametrize(("trains", "first"), [(True, "checkpoint"), (False, "undone")])
def test_the_launcher_gets_its_signal_when_a_checkpoint_is_written(
    trains: bool, first: str
) -> None:
    handler = signal.getsignal(SIGNAL)
    with pytest.raises(Requeued):
        job(SIGNAL, trains=trains)
    assert heard == [first, "launcher"]
    assert signal.getsignal(SIGNAL) is handler


@pytest.mark.parametrize("trains", [True, False])
def test_sigterm_which_a_launcher_outlasts_stops_the_work(trains: bool) -> None:
    with pytest.raises(Interrupted):
        job(signal.SIGTERM, trains=trains)
    assert "launcher" not in heard
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_without_a_launcher_nothing_is_caught() -> None:
    signal.signal(SIGNAL, signal.SIG_IGN)
    job(SIGNAL, trains=False)
    with handing_on():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
