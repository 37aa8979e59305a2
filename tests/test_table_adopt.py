"""A finished run that tested its best epoch also has its last one: nothing is trained again."""

import json
from pathlib import Path

import pytest
from conftest import compose
from made_table import made
from orders import table_of
from test_table import runs_of

from ltr.experiment.job import resumed
from ltr.experiment.run import run as train
from ltr.tables import adopt as adopting
from ltr.tables.adopt import adopt
from ltr.tables.plan import Run, plan
from ltr.tables.spec import only
from ltr.training.checkpoint import load_checkpoint


@pytest.fixture
def twins(tmp_path: Path) -> tuple[Run, Run]:
    """A finished run that tested its last epoch, and the same that shall test its best."""
    finished = made(tmp_path, "rows=BCE", "seeds=1")
    table = only(runs_of("ranknet_report"), ["BCE"])
    given = table_of(finished.arguments).overrides
    (last,) = plan(table, given, [1], tmp_path / "out")
    (best,) = plan(table, [*given, "select=best"], [1], tmp_path / "out")
    assert (last.done, best.done) == (True, False)
    return last, best


def test_the_last_epoch_of_a_finished_run_is_tested_without_training(twins, tmp_path) -> None:
    last, run = twins
    stale = run.folder.with_name(f".{run.folder.name}.1.part")
    stale.mkdir()
    assert adopt(run)
    assert not stale.exists()
    assert not run.done  # it still has to be tested
    kept = load_checkpoint(run.folder / "last.pt")
    assert (kept["config"]["select"], kept["progress"]["epoch"]) == ("best", 3)
    cfg, _ = resumed(compose(f"resume='{run.folder}'", f"cache_dir={tmp_path}/cache"), [])
    cfg.resume = str(run.folder)
    train(cfg, run.folder, {})
    results = json.loads((run.folder / "results.json").read_text())
    assert results["select"] == "best"
    assert results["selected_epoch"] == results["best_epoch"]
    given = [*last.overrides, "l2=0.5", "select=best"]
    (stranger,) = plan(only(runs_of("ranknet_report"), ["BCE"]), given, [1], run.folder.parents[1])
    assert not adopt(stranger)


def test_a_damaged_run_is_not_copied(twins) -> None:
    last, run = twins
    (last.folder / "best.pt").write_bytes(b"damaged")
    before = sorted(run.folder.parent.iterdir())
    assert not adopt(run)
    assert sorted(run.folder.parent.iterdir()) == before  # no half of a copy


def test_a_full_disk_leaves_no_half_of_a_copy(twins, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = twins

    def full(path: Path, content: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(run.folder.parent.iterdir())
    monkeypatch.setattr(adopting, "save_checkpoint", full)
    assert not adopt(run)
    assert sorted(run.folder.parent.iterdir()) == before
