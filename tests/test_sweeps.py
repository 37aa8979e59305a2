"""A sweep given twice does nothing twice, and several of its runs at once share its folder."""

import json
import signal
from pathlib import Path

import hydra
import pandas as pd
import pytest
from folders import finish
from processes import wait_for
from test_cli import call, lines, start

from ltr.console import folders
from ltr.console.configs import CONFIGS
from ltr.console.folders import job_dir, sweep_dir
from ltr.errors import ConfigError
from ltr.experiment.run_folder import FILES, NOTE, RESULTS, RunFolder
from ltr.experiment.sweep import SweepSummary, offer_gpus, read_runs, take_gpu

MLP = ("loss=listnet", "model=mlp", "model.hidden_sizes=[4]", "threads=1")


def test_the_same_grid_has_the_same_folder_however_it_is_typed() -> None:
    first = sweep_dir("out", None, ["loss=listnet,rmse", "seed=1,2", "threads=1"])
    assert first == sweep_dir("out", None, ["seed=1,2", "loss=listnet,rmse", "device=cpu"])
    assert first != sweep_dir("out", None, ["seed=1,2,3", "loss=listnet,rmse"])
    assert Path(first).name.startswith("sweep_loss_seed_")
    for wrong in ("a/b", "..", "."):
        with pytest.raises(ConfigError, match="give a name"):
            sweep_dir("out", wrong, [])
    with pytest.raises(ConfigError, match=r"threads: .*start a sweep each"):
        sweep_dir("out", None, ["threads=1,2", "seed=1,2"])


def test_a_job_is_named_by_what_it_overrides() -> None:
    long = [f"model.hidden_sizes=[{','.join('64' for _ in range(50))}]"]
    assert len(job_dir(long)) < 180
    assert job_dir(["epochs=1"]) != job_dir(["epochs=2"])
    assert job_dir(["epochs=1", "data_dir=a"]) == job_dir(["epochs=1", "data_dir=b"])


def test_a_run_is_done_or_not_and_that_of_other_code_is_moved_aside(tmp_path, caplog) -> None:
    assert not RunFolder(tmp_path).prepare("a" * 64)
    for name in ("train.log", "history.csv", "last.pt"):
        (tmp_path / name).write_text(name)
    assert not RunFolder(tmp_path).prepare("a" * 64)
    assert (tmp_path / "last.pt").is_file()  # to go on from
    (tmp_path / "results.json").write_text("results.json")
    assert not RunFolder(tmp_path).prepare("b" * 64)
    (old,) = tmp_path.glob("before-*")
    assert {path.name for path in tmp_path.iterdir()} == {NOTE, "train.log", old.name}
    assert {path.name for path in old.iterdir()} == {"results.json", "last.pt", "history.csv"}
    (tmp_path / "last.pt").touch()
    for name in (RESULTS, *FILES):
        finish(tmp_path, {})
        assert RunFolder(tmp_path).prepare("b" * 64)
        (tmp_path / name).write_text("x")
        assert not RunFolder(tmp_path).prepare("b" * 64)  # it is tested again
        assert f"{name} is damaged" in caplog.text
        (tmp_path / name).unlink()
    assert (tmp_path / "last.pt").exists()


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_is_done_once(tiny, tmp_path) -> None:
    command = ["-m", *tiny[:-3], *MLP, "epochs=60", "seed=1,2", f"output_dir={tmp_path}/cut"]
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
    assert sum(text.count("is done already") for _, text in texts) == 3
    assert (second / "train.log").read_text().count("kept in") == 1
    assert len(pd.read_csv(folder / "summary.csv")) == 2


@pytest.mark.slow
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
    assert "given again, the sweep runs it anew" in err
    assert (folder / NOTE).read_text() != note
    assert json.loads((folder / "results.json").read_text())["epochs"] == 2
    (row,) = read_runs(folder.parent)
    assert row["status"].startswith("resumed with other settings; ")
    _, err = call(*sweep)
    assert "is done already" not in err
    results = json.loads((folder / "results.json").read_text())
    assert (results["epochs"], results["vali"]) == (1, wanted["vali"])
    assert (folder / NOTE).read_text() == note
    assert [json.loads(p.read_text())["epochs"] for p in folder.glob("before-*/results.json")]


@pytest.mark.slow
def test_another_process_composes_the_same_sweep_folder(tmp_path: Path) -> None:
    folders.register_resolvers()
    place = tmp_path / "it's a=b,c back\\slash"
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        first = hydra.compose("train", return_hydra_config=True)
        first.output_dir = str(place)
        folder = first.hydra.sweep.dir
        SweepSummary().on_multirun_start(first)
        folders._run_dir.cache_clear()  # as in a new process
        (override,) = first.hydra.overrides.hydra
        again = hydra.compose("train", [override], return_hydra_config=True)
    assert again.hydra.sweep.dir == folder
    assert Path(folder).parent == place


def test_each_process_takes_the_gpu_of_its_first_job_where_there_are_several() -> None:
    alone: dict[str, str] = {}
    offer_gpus(1, alone)
    assert alone == {}
    for visible, taken in (({}, "0"), ({"CUDA_VISIBLE_DEVICES": "4, GPU-5,6"}, "4")):
        environ = {**visible}
        offer_gpus(2, environ)
        processes = [{**environ} for _ in range(3)]
        for job, process in enumerate(processes):
            take_gpu(job, process)
        other = "GPU-5" if visible else "1"
        found = [process.pop("CUDA_VISIBLE_DEVICES") for process in processes]
        assert found == [taken, other, taken]
        assert not any(processes)  # a later job takes none
