"""The commands as people type them, as subprocesses."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.experiment.run_folder import NOTE
from ltr.experiment.sweep import read_runs
from ltr.inference.evaluate import evaluate_model
from ltr.inference.predict import predict_file
from tests.helpers import processes
from tests.helpers.paths import ROOT
from tests.helpers.processes import Process, wait_for
from tests.helpers.runs import assert_same_run

pytestmark = pytest.mark.slow

MLP = ("loss=listnet", "model=mlp", "model.hidden_sizes=[4]", "threads=1")


def start(*args: str, script: str = "train.py") -> Process:
    return processes.start(script, *args, env={"PYTHONWARNINGS": "default"})


def call(*args: str, script: str = "train.py", status: int = 0) -> tuple[str, str]:
    process = start(*args, script=script)
    out, err = process.communicate()
    assert process.returncode == status, err
    return out, err


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def only_run(outputs: Path) -> Path:
    (run,) = (path for path in outputs.iterdir() if path.name != "latest")
    return run


@pytest.fixture
def args(tiny, tmp_path) -> list[str]:
    return [*tiny, "loss=listnet", "threads=1", f"output_dir={tmp_path / 'outputs'}"]


def test_help_and_config_are_shown_without_importing_torch() -> None:
    code = (
        "import runpy, sys\n"
        "for flags in (['--help'], ['--cfg', 'job']):\n"
        f"  sys.argv = [{str(ROOT / 'train.py')!r}, *flags]\n"
        "  try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "  except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('heavy:', sorted({'torch', 'pandas', 'numpy'} & set(sys.modules)))\n"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stderr == ""
    for word in ("web30k", "transformer", "resume=", "-m loss=", "Keys and", "heavy: []"):
        assert word in got.stdout
    assert "\ncheckpoint_minutes: 10\n" in got.stdout  # as composed, without comments


def test_train_evaluate_predict(args, tmp_path, letor_folder) -> None:
    out, err = call(*args)
    run = only_run(tmp_path / "outputs")
    written = {"train.log", "best.pt", "last.pt", "history.csv", "results.json", "queries.csv"}
    assert {".hydra", *written} <= {path.name for path in run.iterdir()}
    results = json.loads((run / "results.json").read_text())
    assert f"{results['test']['ndcg@10']:.4f}" in out
    assert "empty list = 1" in out
    assert f"kept in {run}" in out
    assert not set(out.splitlines()) & set(err.splitlines())  # the result is printed once
    assert out in (run / "train.log").read_text()

    per_query, odd = tmp_path / "per_query.csv", tmp_path / "a run, moved: seed=1 (best)"
    cache = f"cache_dir={letor_folder}/cache"
    run = run.rename(odd)
    out, _ = call(
        "evaluate", f"checkpoint={run}", f"output={per_query}", cache, script=processes.LTR
    )
    assert f"{results['test']['ndcg@5']:.4f}" in out
    assert pd.read_csv(per_query)["ndcg@5"].mean() == pytest.approx(results["test"]["ndcg@5"])
    (only := letor_folder / "only" / "test.txt").parent.mkdir()  # no other split is read
    only.write_text("1 qid:1 1:0.5\n0 qid:1 2:1\n")  # two of five columns
    there = ["dataset=letor", "dataset.folder=only", f"data_dir={letor_folder}", cache]
    for where in (there, [f"data={only}"]):
        cfg = typed("evaluate", [f"checkpoint={run}", "metrics=ndcg@1", *where])
        assert ", 1 lists" in call_command(evaluate_model, cfg)
    text = (letor_folder / "mine" / "test.txt").read_text().splitlines()
    unlabelled = tmp_path / "new.txt"
    unlabelled.write_text("".join(row.partition(" ")[2] + "\n" for row in text))
    output = tmp_path / "scores.csv"
    given = [f"checkpoint={run}", f"input={unlabelled}", f"output={output}"]
    call_command(predict_file, typed("predict", given))
    scores = pd.read_csv(output)
    assert scores.row.tolist() == list(range(1, len(text) + 1))
    assert scores.qid.tolist() == [row.split()[1].removeprefix("qid:") for row in text]


def run_with(preparation: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run ``ltr train`` in a process whose streams ``preparation`` changes first."""
    program = f"import os, sys\n{preparation}\nfrom ltr.__main__ import main\nmain('train')\n"
    return processes.run(program, *args)


@pytest.mark.parametrize("encoding", ["ascii", "koi8-r"])
def test_a_terminal_without_a_sign_gets_a_plain_one(args, encoding, tmp_path) -> None:
    strict = f"sys.stdout.reconfigure(encoding={encoding!r}, errors='strict')"
    done = run_with(strict, *args, f"hydra.run.dir={tmp_path}/run")
    assert done.returncode == 0, done.stderr
    assert " +- " in done.stdout
    assert not (tmp_path / "run" / "error.txt").exists()
    assert " ± " in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.parametrize("numbers", [[1], [0, 1, 2]])
def test_a_closed_stream_does_not_end_a_run(args, numbers, tmp_path) -> None:
    names = ("stdin", "stdout", "stderr")
    closed = "; ".join(f"os.close({number}); sys.{names[number]} = None" for number in numbers)
    done = run_with(closed, *args, f"hydra.run.dir={tmp_path}/run")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "run" / "results.json").read_text())["epochs"] == 3


def test_workers_get_a_stream_that_was_closed() -> None:
    program = (
        "import os\nos.close(2)\nfrom ltr.cli.streams import open_streams\nopen_streams()\n"
        "print(os.get_inheritable(2))"
    )
    assert processes.run(program).stdout == "True\n"


def test_killed_in_the_middle_and_resumed_equals_never_stopped(args, tmp_path) -> None:
    args = [*args, "epochs=20", "batch_size=12", "model.dropout=0.2", "checkpoint_minutes=0.00001"]
    call(*args, f"output_dir={tmp_path / 'whole'}")
    process = start(*args, f"output_dir={tmp_path / 'cut'}")
    wait_for(lambda: [f for f in (tmp_path / "cut").glob("*/history.csv") if lines(f) > 4], process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    cut = only_run(tmp_path / "cut")
    assert not (cut / "results.json").exists()
    original = (cut / ".hydra" / "config.yaml").read_bytes()
    call(f"resume={cut}", args[3])
    assert_same_run(only_run(tmp_path / "whole"), cut)
    assert (cut / ".hydra" / "config.yaml").read_bytes() == original


def test_ctrl_c_saves_and_says_how_to_go_on(args, tmp_path) -> None:
    process = start(*args, "epochs=100000")
    wait_for(lambda: list((tmp_path / "outputs").glob("*/history.csv")), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    run = only_run(tmp_path / "outputs")
    assert f"continue with: python train.py resume={run}\n" in err
    _, err = call(f"resume={run}", "loss=rmse", status=2)
    assert "loss cannot change" in err
    for wrong in ("dataset=mq2008", "seed=-1", "resume=nowhere"):  # nothing is left of it
        _, err = call(wrong, "data_dir=nowhere", f"output_dir={tmp_path}/none", status=2)
        assert err.count("\n") == 1
        assert not list(tmp_path.glob("none/*"))


def test_a_sweep_ends_with_one_table_and_survives_a_failed_run(args, tmp_path) -> None:
    sweep = ["-m", *args, "loss=listnet", "epochs=1", "sweep=mine"]
    out, err = call(*sweep, "seed=1,2", "dataset.fold=null,7", status=1)
    (folder,) = (tmp_path / "outputs").iterdir()
    summary = pd.read_csv(folder / "summary.csv")
    assert len(summary) == 4
    assert (summary.status == "done").sum() == 2
    assert summary[summary.status != "done"].status.str.contains("Fold7").all()
    for word in ("seed", "vali ndcg@5", "crossfit ndcg@5", "show_test=true", "mean ±"):
        assert word in out
    assert "test ndcg@5" not in out
    assert "test ndcg@5" in summary
    assert out.count("failed") == 2
    assert len(re.findall(r"^\S+ failed: DataError: .*Fold7", err, re.M)) == 2
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    assert sum((run / "results.json").exists() for run in runs) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9.+_-]{10,170}", run.name) for run in runs)
    # with another grid the sweep is about its own runs
    out, err = call(*sweep, "seed=2", "dataset.fold=null")
    assert "is already finished" in err
    assert "failed" not in out + err
    assert "not shown: 3 runs in this folder that belong to other sweeps" in out
    assert len(pd.read_csv(folder / "summary.csv")) == 1


def test_a_killed_sweep_goes_on_and_is_done_once(tiny, tmp_path) -> None:
    command = ["-m", *tiny[:-3], *MLP, "epochs=40", "seed=1,2", f"output_dir={tmp_path}/cut"]
    process = start(*command)
    second = "*/*seed-2*/history.csv"
    wait_for(lambda: [f for f in (tmp_path / "cut").glob(second) if lines(f) > 8], process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = (tmp_path / "cut").iterdir()
    first, second = sorted(path for path in folder.iterdir() if path.is_dir())
    assert (first / "results.json").is_file()
    assert not (second / "results.json").is_file()
    before = (first / "last.pt").stat().st_mtime_ns

    # as two processes at once: one goes on with the run, the other finds it done
    both = [start(*command) for _ in range(2)]
    texts = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0], texts
    assert (first / "last.pt").stat().st_mtime_ns == before
    assert sum(text.count("resumed at epoch") for _, text in texts) == 1
    assert sum(text.count("is already finished") for _, text in texts) == 3
    assert (second / "train.log").read_text().count("kept in") == 1
    assert len(pd.read_csv(folder / "summary.csv")) == 2


def test_a_sweep_does_a_run_anew_that_was_resumed_with_other_settings(tiny, tmp_path) -> None:
    sweep = ["-m", *tiny[:-3], *MLP, "seed=1", "epochs=1", "sweep=mine"]
    sweep += [f"output_dir={tmp_path}/out"]
    call(*sweep)
    (folder,) = (path.parent for path in (tmp_path / "out/mine").glob("*/results.json"))
    note = (folder / NOTE).read_text()
    wanted = json.loads((folder / "results.json").read_text())
    call(f"resume={folder}", "epochs=-1", status=2)
    call(f"resume={folder}", "device=cpu")
    assert (folder / NOTE).read_text() == note
    _, err = call(f"resume={folder}", "epochs=2")
    assert "if you repeat the sweep, this run is trained" in err
    assert (folder / NOTE).read_text() != note
    assert json.loads((folder / "results.json").read_text())["epochs"] == 2
    (row,) = read_runs(folder.parent)
    assert row["status"].startswith("resumed with other settings; ")
    _, err = call(*sweep)
    assert "is already finished" not in err
    results = json.loads((folder / "results.json").read_text())
    assert (results["epochs"], results["vali"]) == (1, wanted["vali"])
    assert (folder / NOTE).read_text() == note
    assert [json.loads(p.read_text())["epochs"] for p in folder.glob("before-*/results.json")]
