"""A search goes on: by the same command only, from where it was, in several processes."""

import errno
import logging
import signal
import time
from pathlib import Path
from typing import Any

import pandas as pd
import processes
import pytest
import torch
from made_search import kill_all, refused, rows, searched, small_search, study_of
from optuna.trial import TrialState
from orders import search_of

from ltr.search.best_file import check_free
from ltr.search.study import finished, first_number, kills
from ltr.search.trial import Report
from ltr.training.checkpoint import load_checkpoint
from ltr.training.interruption import Interrupted

small = small_search


@pytest.mark.slow
def test_another_search_is_not_continued_by_mistake(
    small: list[str], letor_folder: Path, tmp_path: Path
) -> None:
    assert searched(*small, "trials=1", "epochs=1")
    folder = tmp_path / "out/search/mine"
    assert refused(*small, "epochs=2") == (
        f"{folder} is a search with epochs=1, now it is 2: put it back, or give name=NAME for a "
        "new search"
    )
    assert "space.optimizer.lr=[float,0.001,0.1,log], now it is [float,0.001,0.2,log]" in refused(
        *small, "epochs=1", "space.optimizer.lr=[float,1e-3,0.2,log]"
    )
    assert "with repeats=[''], now it is ['seed1', 'seed2']" in refused(
        *small, "epochs=1", "seeds=1,2"
    )
    assert searched(*small, "epochs=1", "trials=2", "device=cpu", "evaluation_items=99")
    vali = letor_folder / "mine" / "vali.txt"
    vali.write_text("".join(vali.read_text().splitlines(True)[:-1]))
    assert "vali changed since the search in" in refused(*small, "epochs=1")


@pytest.mark.slow
def test_changed_code_is_told(
    small: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert searched(*small, "trials=1", "epochs=1")
    assert "note: the code changed" not in capsys.readouterr().err
    monkeypatch.setattr("ltr.experiment.identity.room_digest", lambda room: "other")
    assert searched(*small, "trials=1", "epochs=1")
    assert "note: the code changed since" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_of_another_is_not_overwritten(small: list[str], tmp_path: Path) -> None:
    found = tmp_path / "experiment/found.yaml"
    found.parent.mkdir()
    found.write_text("mine: 1\n")
    assert f"{found} is there and is not what this search wrote: give" in refused(*small)
    assert not (tmp_path / "out").exists()
    found.unlink()
    assert searched(*small, "trials=1", "epochs=1")
    check_free(found, tmp_path / "out/search/mine")
    assert searched(*small, "trials=4", "epochs=1")  # its own it replaces
    found.write_text(found.read_text() + "# my note\n")
    assert "is not what this search wrote" in refused(*small, "trials=4", "epochs=1")


def stop_at_epoch_2(patch: pytest.MonkeyPatch) -> None:
    """As if the user did."""
    original = Report.__call__

    def stop(self: Report, epoch: int, metrics: Any) -> None:
        original(self, epoch, metrics)
        if epoch == 2:
            raise Interrupted(signal.SIGINT)

    patch.setattr(Report, "__call__", stop)


@pytest.mark.slow
def test_stopped_by_the_user_it_says_so_and_goes_on(
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):
        with monkeypatch.context() as patch:
            stop_at_epoch_2(patch)
            with pytest.raises(Interrupted):
                searched(*small, "trials=2")
        assert "search mine: 0 of 2 trials finished\n" in capsys.readouterr().err
        assert not study_of(*small).get_trials(states=(TrialState.RUNNING,))
    assert (tmp_path / "out/search/mine/trials/0000/last.pt").is_file()
    assert searched(*small, "trials=2")
    assert [row["state"] for row in rows(tmp_path)].count("done") == 2
    assert not any(map(kills, study_of(*small).trials))  # as often as the user likes


@pytest.mark.slow
def test_a_checkpoint_that_is_damaged_or_of_other_code_is_not_gone_on_with(
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ltr.experiment.fit")
    last = tmp_path / "out/search/mine/trials/0000/last.pt"

    def stopped() -> None:
        caplog.clear()
        with monkeypatch.context() as patch:
            stop_at_epoch_2(patch)
            with pytest.raises(Interrupted):
                searched(*small, "trials=1")

    stopped()
    stopped()
    assert "resumed at epoch 3, " in caplog.text
    last.write_bytes(last.read_bytes()[:100])
    stopped()
    assert "resumed at epoch" not in caplog.text
    monkeypatch.setattr("ltr.experiment.identity.room_digest", lambda room: "other")
    caplog.clear()
    assert searched(*small, "trials=1")
    assert "resumed at epoch" not in caplog.text
    (done,) = finished(study_of(*small))
    assert list(done.intermediate_values) == [1, 2, 3]


@pytest.mark.slow
def test_a_full_disk_costs_no_checkpoint_and_no_trial(
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ltr.experiment.fit")
    last = tmp_path / "out/search/mine/trials/0000/last.pt"
    save = torch.save

    def save_until(epoch: int) -> Any:
        def saved(content: Any, file: Any) -> None:
            if content["progress"]["epoch"] >= epoch:
                raise OSError(errno.ENOSPC, "No space left on device")
            save(content, file)

        return saved

    for epoch in (2, 0):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "save", save_until(epoch))
            with pytest.raises(OSError, match="No space left"):
                searched(*small, "trials=1")
        assert load_checkpoint(last)["progress"]["epoch"] == 1
    caplog.clear()
    assert searched(*small, "trials=1")
    assert "resumed at epoch 2, " in caplog.text
    (done,) = finished(study_of(*small))
    assert (done.state, kills(done)) == (TrialState.COMPLETE, 0)


KILLED = """
import os, signal
from ltr.search import trial
from ltr.__main__ import main

original = trial.Report.__call__

def kill(self, epoch, metrics):
    original(self, epoch, metrics)
    if epoch == 3 and self._trial.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)

trial.Report.__call__ = kill
main("search")
"""


@pytest.mark.slow
def test_a_killed_search_goes_on_where_it_was(
    small: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ltr.experiment.fit")
    small = [*small, "epochs=5", "trials=3", "pruner=none", "select_value=best"]
    killed = processes.run(KILLED, *small)
    assert killed.returncode == -signal.SIGKILL
    began = study_of(*small).get_trials()[1].params
    place = tmp_path / "out/search/mine/trials/0001"
    reached = load_checkpoint(place / "last.pt")["progress"]["epoch"]
    kill_all(search_of(small))
    assert searched(*small)
    assert f"resumed at epoch {reached + 1}, step 0" in caplog.text
    table = rows(tmp_path)
    assert [row["state"] for row in table] == ["done", "cut off", "done", "done"]
    again = study_of(*small).get_trials()[2]
    assert again.params == began
    assert (first_number(again), kills(again)) == (1, 1)
    assert len(again.intermediate_values) == 5  # those before the kill too
    history = pd.read_csv(place / "history.csv")
    assert history.epoch.tolist() == list(range(6))
    assert again.value == history["vali_ndcg@5"].iloc[1:].max()

    never = [item for item in small if not item.startswith(("output_dir=", "write="))]
    never += [f"output_dir={tmp_path}/never", f"write={tmp_path}/never/experiment/found.yaml"]
    assert searched(*never, "trials=2")
    other = study_of(*never).get_trials()[1]
    assert other.intermediate_values == again.intermediate_values
    of_never = pd.read_csv(tmp_path / "never/search/mine/trials/0001/history.csv")
    times = ["seconds", "lists_per_second"]
    pd.testing.assert_frame_equal(history.drop(columns=times), of_never.drop(columns=times))


@pytest.mark.slow
def test_two_workers_and_another_command_share_the_trials(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [*small, "trials=6", "pruner=none"]
    workers = processes.start("scripts/search.py", *small, "workers=2", warm=True)
    begin = Report.begin

    def begin_with_others(self: Report, *args: Any) -> None:
        begin(self, *args)
        study = study_of(*small)
        while len(study.trials) < 3:  # both workers have one
            assert workers.poll() is None, workers.communicate()
            time.sleep(0.05)

    monkeypatch.setattr(Report, "begin", begin_with_others)
    assert searched(*small)
    out, err = workers.communicate()
    assert workers.returncode == 0, (out, err)
    assert "ended early" not in err
    assert [row["state"] for row in rows(tmp_path)] == ["done"] * 6
    assert sorted(path.name for path in (tmp_path / "out/search/mine/trials").glob("[0-9]*")) == [
        f"{number:04d}" for number in range(6)
    ]
    assert (tmp_path / "experiment/found.yaml").is_file()
