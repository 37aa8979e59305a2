"""Threads and devices: recorded, and no part of what a run is."""

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import torch
from conftest import compose

from ltr.experiment.identity import identity
from ltr.experiment.run import run
from ltr.experiment.run_folder import commit, versions
from ltr.experiment.start import resumed


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
    more = [f"resume={tmp_path}", "epochs=2", "threads=2"]
    again, _ = resumed(compose(*more), more)
    run(again, tmp_path, {})
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["threads"] == 2
    threads = {identity(compose(*tiny, f"threads={n}")) for n in (1, 2)}
    assert len(threads) == 1


@pytest.mark.slow
def test_the_threads_of_a_run_are_not_those_of_the_next(tiny: list[str], tmp_path: Path) -> None:
    torch.set_num_threads(2)
    for threads, used in ((1, 1), ("null", 2)):
        folder = tmp_path / str(threads)
        folder.mkdir()
        run(compose(*tiny, "loss=listnet", "epochs=0", f"threads={threads}"), folder, {})
        assert json.loads((folder / "results.json").read_text())["threads"] == used


def test_the_version_of_every_package_that_computes_is_recorded() -> None:
    here = versions()
    for name in ("torch", "numpy", "numba", "scipy", "pandas", "scikit-learn"):
        assert here[name] == metadata.version(name)


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
    assert re.fullmatch(r"[0-9a-f]{12}", head)
    assert commit(installed) is None  # in a folder of another repository
    (own / "__init__.py").write_text("x = 1\n")
    assert commit(own) == head + "+changes"
