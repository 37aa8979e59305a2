"""``scripts/list_losses.py``: every config, its paper and its knobs, and one loss in full."""

import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ltr.checks.list_losses import all_losses, details, import_function, loss_config, loss_names
from ltr.console.configs import CONFIGS

SCRIPT = CONFIGS.parent / "scripts" / "list_losses.py"


def shown(capsys, monkeypatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["list_losses.py", *arguments])
    # it would be this process that a stop ends
    monkeypatch.setattr("ltr.__main__.end_when_stopped", lambda: None)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return capsys.readouterr().out


def test_every_config_is_in_the_table(capsys, monkeypatch) -> None:
    out = shown(capsys, monkeypatch, "markdown=true")
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in out.splitlines()[2:]]
    rows = [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]
    files = sorted((CONFIGS / "loss").glob("*.yaml"))
    assert [row[0] for row in rows] == [path.stem for path in files]
    for name, function, title, knobs in rows:
        text = (CONFIGS / "loss" / f"{name}.yaml").read_text()
        assert f"_target_: ltr.losses.{function}\n" in text
        assert f"# {title}\n" in text
        assert (knobs == "-") == ("No knobs." in title)
    named = dict(zip([row[0] for row in rows], rows, strict=True))
    assert named["ranknet"][3] == "k=null sigma=1.0 pairs=any"
    assert named["rmse"][3] == "levels=5"


def test_the_plain_table_has_the_same(capsys, monkeypatch) -> None:
    out = shown(capsys, monkeypatch)
    assert out == all_losses() + "\n"
    assert [line.split()[0] for line in out.splitlines()[2:] if line[0] != " "] == loss_names()
    assert max(map(len, out.splitlines())) < 150


@pytest.mark.slow
@pytest.mark.parametrize("name", loss_names())
def test_one_loss_in_full(name: str) -> None:
    found, config = details(name), loss_config(name)
    assert (CONFIGS / "loss" / f"{name}.yaml").read_text() in found
    assert f"\n{config.target}(scores, labels, mask" in found
    doc = import_function(config.target).__doc__ or ""
    assert found.endswith(inspect.cleandoc(doc))
    knobs = [
        line for line in config.text.splitlines() if line.strip().split(":")[0] in config.values
    ]
    assert len(knobs) == len(config.values)
    assert all("  # " in line for line in knobs)


@pytest.mark.slow
def test_the_table_needs_no_torch(tmp_path: Path) -> None:
    code = "from ltr.checks.list_losses import all_losses; import sys; all_losses(); "
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_page_of_labels_is_what_losses_metrics_and_trees_do() -> None:
    for library in ("lightgbm", "xgboost", "catboost"):
        pytest.importorskip(library)
    table = runpy.run_path(str(CONFIGS.parent / "docs" / "labels.py"))["label_table"]()
    assert (CONFIGS.parent / "docs" / "labels.md").read_text().endswith(f"\n{table}\n")
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")]
    assert [row[0].strip() for row in rows[1 : 1 + len(loss_names())]] == [
        f"loss={name}" for name in loss_names()
    ]
    assert all(cell.strip() not in ("", "not finite") for row in rows[1:] for cell in row)


def test_the_page_of_losses_is_that_table() -> None:
    page = (CONFIGS.parent / "docs" / "losses.md").read_text()
    assert page.endswith(f"\n{all_losses(markdown=True)}\n")
