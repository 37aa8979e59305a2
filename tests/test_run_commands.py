"""Folders of runs: a list of them, a link to the last, and none of a run that never began."""

from pathlib import Path

import pytest
from conftest import compose
from processes import run

from ltr.console.folders import run_folder
from ltr.errors import ConfigError
from ltr.experiment.commands import kept_once_begun, list_runs
from ltr.experiment.run_folder import write_results

RESULTS = {
    "select_on": "ndcg@5",
    "vali": {"ndcg@5": 0.4321},
    "test": {"ndcg@5": 0.9},
    "finished": "2026-01-02T03:04:05+00:00",
}


def started(folder: Path) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("seed: 1\n")
    (folder / "train.log").write_text("")
    return folder


def ended(folder: Path, left: str, error: BaseException) -> None:
    """A run that ends by ``error`` and leaves a file."""
    with kept_once_begun(folder, folder.parent):
        assert (folder.parent / "latest").readlink() == Path(folder.name)
        (folder / left).write_text("")
        raise error


def test_a_run_that_never_began_leaves_no_folder_and_the_link_as_it_was(tmp_path: Path) -> None:
    first, second = started(tmp_path / "first"), started(tmp_path / "second")
    link = tmp_path / "latest"
    with kept_once_begun(first, tmp_path):
        (first / "last.pt").write_text("")
    assert link.readlink() == Path("first")
    with pytest.raises(ConfigError):
        ended(second, "error.txt", ConfigError("wrong"))
    assert not second.exists()
    assert link.readlink() == Path("first")
    assert run_folder(str(link / "last.pt")) == first
    third = started(tmp_path / "third")
    with pytest.raises(KeyboardInterrupt):  # it has begun
        ended(third, "history.csv", KeyboardInterrupt())
    assert third.is_dir()
    assert link.readlink() == Path("third")


def test_nothing_is_linked_beside_a_run_elsewhere_nor_over_what_is_no_link(tmp_path: Path) -> None:
    with kept_once_begun(started(tmp_path / "sweep" / "run"), tmp_path):
        assert not (tmp_path / "sweep" / "latest").is_symlink()
    (tmp_path / "latest").mkdir()
    with kept_once_begun(started(tmp_path / "run"), tmp_path):
        assert not (tmp_path / "latest").is_symlink()


def test_runs_are_listed_once_with_their_state_and_without_test(tmp_path: Path) -> None:
    write_results(started(tmp_path / "sweep" / "seed-1"), RESULTS)
    started(tmp_path / "cut_off")
    (started(tmp_path / "broken") / "error.txt").write_text("ConfigError: wrong\n")
    (started(tmp_path / "damaged") / "results.json").write_text("{}")
    (tmp_path / "latest").symlink_to("cut_off")
    lines = list_runs(compose(f"folder={tmp_path}", config="runs")).splitlines()[2:]
    assert [line.split()[2:4] for line in lines[:1]] == [["sweep/seed-1", "finished"]]
    assert lines[0].endswith("ndcg@5 0.4321")
    assert {tuple(line.split()[2:4]) for line in lines[1:]} == {
        ("cut_off", "unfinished"), ("broken", "failed"), ("damaged", "damaged"),
    }  # fmt: skip


@pytest.mark.slow
def test_mistakes_and_missing_files_leave_nothing(tmp_path: Path) -> None:
    for wrong in ("dataset=mq2008", "seed=-1", "resume=nowhere"):
        done = run("train.py", "data_dir=nowhere", wrong, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert not list(tmp_path.rglob("*.log")), wrong
        assert not list(tmp_path.glob("outputs/*")), wrong
