"""Threads and devices: recorded, kept over resumes, compared, and no part of what a run is."""

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import torch
from conftest import compose

from ltr.experiment.identity import identity
from ltr.experiment.provenance import asked_place, commit, elsewhere, mixed, versions
from ltr.experiment.run import run
from ltr.experiment.run_folder import FILES, write_results
from ltr.experiment.start import resumed
from ltr.training.checkpoint import load_checkpoint


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_every_thread_count_is_kept(tiny: list[str], tmp_path: Path) -> None:
    first = compose(*tiny, "loss=listnet", "epochs=1", "threads=1")
    run(first, tmp_path, {})
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["threads"], results["device_type"]) == (1, "cpu")
    assert results["computed_on"] == ["cpu, 1 thread"]
    more = [f"resume={tmp_path}", "epochs=2", "threads=2"]
    again, _ = resumed(compose(*more), more)
    run(again, tmp_path, {})
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["threads"] == 2
    both = ["cpu, 1 thread", "cpu, 2 threads"]
    assert results["computed_on"] == load_checkpoint(tmp_path / "last.pt")["computed_on"] == both
    threads = {identity(compose(*tiny, f"threads={n}")) for n in (1, 2)}
    assert len(threads) == 1

    assert elsewhere([tmp_path], "cpu, 2 threads") is not None


@pytest.mark.slow
def test_the_threads_of_a_run_are_not_those_of_the_next(tiny: list[str], tmp_path: Path) -> None:
    torch.set_num_threads(2)
    for threads, place in ((1, "cpu, 1 thread"), ("null", "cpu, 2 threads")):
        folder = tmp_path / str(threads)
        folder.mkdir()
        run(compose(*tiny, "loss=listnet", "epochs=0", f"threads={threads}"), folder, {})
        assert json.loads((folder / "results.json").read_text())["computed_on"] == [place]


def test_the_version_of_every_package_that_computes_is_recorded() -> None:
    here = versions()
    for name in ("torch", "numpy", "numba", "scipy", "pandas", "scikit-learn"):
        assert here[name] == metadata.version(name)


def keep(folder: Path, **results: object) -> Path:
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text("")
    write_results(folder, results)
    return folder


def test_a_finished_run_of_another_place_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = keep(tmp_path / "one", computed_on=["cpu, 1 thread"])
    two = keep(tmp_path / "two", computed_on=["cpu, 4 threads"])
    gpu = keep(tmp_path / "gpu", computed_on=["cuda"])
    assert elsewhere([one], "cpu, 1 thread") is None
    said = elsewhere([one], "cuda") or ""
    assert "\n" not in said
    assert "cpu, 1 thread and not on cuda" in said
    assert f"1 finished, such as {one}" in said
    said = elsewhere([one, two, gpu], "cpu, 1 thread") or ""
    assert "cpu, 4 threads and cuda and not on cpu, 1 thread" in said
    assert f"2 finished, such as {two}" in said
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    steady = asked_place(compose("device=cuda", "deterministic=true"))
    assert f"computed on cuda and not on {steady}" in (elsewhere([gpu], steady) or "")
    assert steady != asked_place(compose("device=cuda")) == "cuda"
    cpu = asked_place(compose("device=cpu", "threads=1", "deterministic=true"))
    assert elsewhere([one], cpu) is None


def test_runs_side_by_side_of_different_places_are_noted() -> None:
    here, there = {"computed_on": ["cpu, 1 thread"]}, {"computed_on": ["cuda"]}
    assert mixed([("a", here), ("b", here)]) is None
    said = mixed([("a", here), ("a", there), ("b", here)]) or ""
    assert "cpu, 1 thread: a (1), b (1); cuda: a (1)" in said


@pytest.mark.slow
def test_only_the_projects_own_clone_has_a_commit(tmp_path, monkeypatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    own, installed = tmp_path / "ltr", tmp_path / "venv" / "lib" / "ltr"
    for package in (own, installed):
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
    assert commit(own) is None  # outside git

    def git(*args: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("add", "ltr")
    git("commit", "-m", "one")
    head = commit(own) or ""
    assert re.fullmatch(r"[0-9a-f]{40}", head)
    assert commit(installed) is None  # in a folder of another repository
    (own / "__init__.py").write_text("x = 1\n")
    assert commit(own) == head + "+changes"
