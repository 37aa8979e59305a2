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
def test_threads_are_those_of_a_run_alone_and_are_kept(tiny: list[str], tmp_path: Path) -> None:
    torch.set_num_threads(2)
    model = ("loss=listnet", "model=mlp", "model.hidden_sizes=[4]")
    own = [*tiny[:-3], *model]
    one, other = tmp_path / "1", tmp_path / "null"
    more = [f"resume={one}", "epochs=1", "threads=2"]
    for folder, overrides, used in (
        (one, [*own, "epochs=0", "threads=1"], 1),
        (other, [*own, "epochs=0", "threads=null"], 2),
        (one, more, 2),
    ):
        folder.mkdir(exist_ok=True)
        cfg = compose(*overrides)
        run(resumed(cfg, more)[0] if overrides is more else cfg, folder, {})
        results = json.loads((folder / "results.json").read_text())
        assert (results["threads"], results["device"][:3]) == (used, "cpu")
    assert len({identity(compose(*own, f"threads={n}")) for n in (1, 2)}) == 1


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
