"""Trackers: told each epoch once and the end however it comes; none can end a run or change it."""

import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ltr.cli.process import is_full
from ltr.errors import ConfigError
from ltr.experiment.resume import resumed_config
from ltr.parts.components import build_tracking
from ltr.tracking import MLflow, Tracking
from ltr.training import hooks
from ltr.training.hooks import OnEpoch
from ltr.training.interruption import Interrupted
from tests.helpers.runs import compose, run

TOLD: list[tuple] = []


class Told:
    """A tracker that keeps what it is told in ``TOLD``; its module counts in no identity."""

    def __init__(self, *, experiment: str = "", output_dir: str = "", fails: str = "") -> None:
        self.fails = fails
        TOLD.clear()

    def _tell(self, what: str, *more: object) -> None:
        TOLD.append((what, *more))
        if what == self.fails:
            raise OSError("no route to host")

    def begin(self, name, params, folder) -> None:
        self._tell("begin", name, dict(params))

    def log(self, metrics, epoch) -> None:
        self._tell("log", epoch, dict(metrics))

    def end(self, ending, results) -> None:
        self._tell("end", ending, dict(results))


MINE = ["tracking=mlflow", "tracking._target_=tests.integration.test_tracking.Told"]


@pytest.mark.slow
def test_a_run_tells_its_config_its_epochs_and_its_results(tiny, tmp_path) -> None:
    folder = tmp_path / "a-run"
    folder.mkdir()
    got = run(compose(*tiny, *MINE, "epochs=2"), folder, {"loss": "neuralndcg"})
    begin, *epochs, end = TOLD
    assert begin[:2] == ("begin", "a-run")
    assert begin[2]["loss"] == "neuralndcg"
    assert (begin[2]["epochs"], begin[2]["convention.empty"]) == (2, 1.0)
    assert [one[:2] for one in epochs] == [("log", 0), ("log", 1), ("log", 2)]
    assert {"vali_ndcg@5", "loss"} <= epochs[-1][2].keys()
    tests = {name: value for name, value in got.items() if name.startswith("test_")}
    assert end[:2] == ("end", "finished")
    assert tests.items() <= end[2].items()
    assert end[2]["selected_vali_ndcg@5"] == got["vali_ndcg@5"]

    typed = [f"resume={folder}", "tracking=mlflow", "epochs=3"]
    again, choices = resumed_config(compose(*typed, MINE[1]), typed)
    run(again, folder, choices)
    assert [one[:2] for one in TOLD[1:-1]] == [("log", 3)]
    without, _ = resumed_config(compose(f"resume={folder}"), [f"resume={folder}"])
    assert "tracking" not in without  # no checkpoint says where figures are sent


def test_a_tracker_that_fails_is_one_warning(tmp_path, caplog) -> None:
    for fails, told in (("begin", 1), ("log", 2), ("end", 4)):
        caplog.clear()
        (tmp_path / fails).mkdir()
        tracking = Tracking(Told(fails=fails), tmp_path / fails)
        tracking.start(SimpleNamespace(record=SimpleNamespace(parameters={})), {}, None)
        tracking.epoch({"epoch": 0, "loss": 1.0})
        tracking.epoch({"epoch": 1, "loss": 0.5})
        tracking.end("finished", None)
        assert len(TOLD) == told
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "no route to host" in record.message


@pytest.mark.slow
def test_the_end_is_told_however_it_comes_of_what_was_begun(tiny, tmp_path) -> None:
    def stop(epoch, row) -> None:
        raise Interrupted(15)

    with pytest.raises(Interrupted):
        run(compose(*tiny, *MINE, "epochs=1"), tmp_path, {}, hooks=[OnEpoch(stop)])
    assert TOLD[-1] == ("end", "killed", {})
    Tracking(Told(), tmp_path).end("failed", None)
    assert TOLD == []


def test_a_missing_package_is_named_with_the_remedy(monkeypatch) -> None:
    for choice in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, choice, None)
        with pytest.raises(ConfigError, match=r"pip install 'ltr-torch\[tracking\]'") as caught:
            build_tracking(compose(f"tracking={choice}").tracking, Path())
        assert not is_full(caught.value)  # it once was the cause of its own cause: no end


class Refusal(Exception):
    error_code = "INVALID_PARAMETER_VALUE"


class Client:
    """A client of MLflow that keeps each batch, and refuses one with a name in ``refused``."""

    refused = ("bad", "loss(1)")

    def __init__(self) -> None:
        self.batches: list[dict[str, object]] = []
        self.calls = 0

    def log_batch(self, run: str, **kinds: list[SimpleNamespace]) -> None:
        (entries,) = kinds.values()
        self.calls += 1
        assert len(entries) <= 100
        if {entry.key for entry in entries} & {*self.refused}:
            raise Refusal
        self.batches.append({entry.key: entry.value for entry in entries})


def test_mlflow_gets_batches_and_what_it_refuses_is_one_warning(monkeypatch, caplog) -> None:
    entities = SimpleNamespace(
        Param=lambda key, value: SimpleNamespace(key=key, value=value),
        Metric=lambda key, value, time, step: SimpleNamespace(key=key, value=value),
    )
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", SimpleNamespace(MlflowException=Refusal))
    tracker = object.__new__(MLflow)
    tracker._client, tracker._id, tracker._refused = Client(), "run", set()
    params = [SimpleNamespace(key=f"p{i}", value=str(i)) for i in range(250)]
    tracker._log_batches("params", params)
    assert tracker._client.calls == 3
    tracker._log_batches("params", [*params[:2], SimpleNamespace(key="bad", value="1")])
    assert tracker._client.batches[-2:] == [{"p0": "0"}, {"p1": "1"}]
    for epoch in range(3):
        tracker.log({"vali_ndcg@5": 0.5, "loss(1)": 1.0}, epoch)
        assert tracker._client.batches[-1] == {"vali_ndcg_at_5": 0.5}
    assert [record.message.partition("out: ")[2] for record in caplog.records] == ["bad", "loss(1)"]
    assert tracker._client.calls == 3 + (1 + 3) + (1 + 2) + 1 + 1, "it is not asked again"
    monkeypatch.setattr(Refusal, "error_code", "TEMPORARILY_UNAVAILABLE")
    monkeypatch.setattr(Client, "refused", ("vali_ndcg_at_5",))
    with pytest.raises(Refusal):  # which ends the tracking, see above
        tracker.log({"vali_ndcg@5": 0.5}, 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the package
def test_mlflow_keeps_a_run_in_a_file_and_goes_on_with_it(tmp_path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'ltr-torch[tracking]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    told(tmp_path, "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "ltr"]
    (kept,) = client.search_runs([experiment.experiment_id])
    assert (kept.info.status, kept.info.run_name) == ("FINISHED", "a-run")
    assert kept.data.params == {"loss.temperature": "0.5"}
    assert kept.data.tags["folder"] == str(tmp_path / "a-run")
    assert kept.data.metrics["test_ndcg_at_5"] == 0.7
    history = client.get_metric_history(kept.info.run_id, "vali_ndcg_at_5")
    assert [(one.step, one.value) for one in history] == [(0, 0.25), (1, 0.5), (2, 0.75)]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_wandb_keeps_a_run_offline_and_goes_on_with_it(tmp_path, monkeypatch) -> None:
    pytest.importorskip("wandb", reason="needs wandb: pip install 'ltr-torch[tracking]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    told(tmp_path, "wandb")
    files = sorted((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1  # one id: wandb sync joins them
    for name in (b"vali_ndcg@5", b"loss.temperature"):
        assert all(name in file.read_bytes() for file in files)
    assert b"test_ndcg@5" in files[-1].read_bytes()


def told(output_dir: Path, choice: str) -> None:
    """Track a run that stops after two epochs, and its resume."""
    folder = output_dir / "a-run"
    folder.mkdir()
    rows = [{"epoch": float(epoch), "vali_ndcg@5": (epoch + 1) / 4} for epoch in range(3)]
    results = SimpleNamespace(tracked={"test_ndcg@5": 0.7})
    for first, end, *ending in ((0, 2, "killed", None), (2, 3, "finished", results)):
        cfg = compose(f"tracking={choice}", f"output_dir={output_dir}")
        tracking = build_tracking(cfg.tracking, folder)
        record = SimpleNamespace(parameters={"loss.temperature": 0.5})
        tracking.start(SimpleNamespace(record=record), {}, None)
        for row in rows[:first]:
            tracking.replay(row)
        for row in rows[first:end]:
            tracking.epoch(row)
        tracking.end(*ending)


@pytest.mark.parametrize("terminal", [True, False])
def test_an_epoch_tells_the_time_left_of_the_run(terminal, monkeypatch, caplog, capsys) -> None:
    now, tiny = [0.0], SimpleNamespace(settings=SimpleNamespace(epochs=10))
    monkeypatch.setattr(hooks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(hooks._Bar, "logged", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    caplog.set_level(logging.INFO)
    left = hooks.TimeLeft()
    left.start(tiny, {}, None)
    left.replay({"epoch": 3.0})
    with hooks.progress_bar(total=4, initial=1, desc="epoch 4/10", unit="step") as bar:
        for now[0] in (30.0, 90.0, 140.0):  # a line of the log a minute at most
            bar.n += 1
            with hooks.quiet(), hooks.quiet(False), hooks.progress_bar(total=9) as other:
                other.update(5)
            bar.refresh()
    left.end("finished", None)
    shown = capsys.readouterr().err if terminal else "\n".join(caplog.messages)
    expected = ["13:00", "18:45", "18:40"]  # 30 / 0.25 * 6.5, 90 / 0.5 * 6.25, 140 / 0.75 * 6
    assert re.findall(r"epoch 4/10: .*run (\S+) left", shown.replace("\r", "\n")) == (
        expected if terminal else expected[1:2]
    )
    assert not re.search("5(/| of )9", shown)
