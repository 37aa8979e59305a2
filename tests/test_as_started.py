"""Remedies and help name commands as the user of this process started them."""

import re
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
from processes import ROOT

from ltr.console.configs import help_of
from ltr.errors import as_started, install

SCRIPT = re.compile(r"python (train|scripts/\w+)\.py")


@pytest.mark.parametrize(
    ("started", "train", "table"),
    [
        (ROOT / "train.py", "python train.py", "python scripts/table.py"),
        ("scripts/prepare_data.py", "python train.py", "python scripts/table.py"),
        ("/usr/bin/ltr", "ltr train", "ltr table"),
        ("/home/me/train.py", "ltr train", "ltr table"),  # the user's own, with a Ranker
    ],
)
def test_commands_are_named_as_they_were_started(
    started: Path | str, train: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [str(started)])
    assert (as_started("train"), as_started("table")) == (train, table)


@pytest.mark.parametrize(
    "command", [path.stem for path in sorted((ROOT / "configs").glob("*.yaml"))]
)
def test_help_names_the_entry(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/ltr"])
    text = help_of(command)
    assert not re.search(r"(train|scripts/\w+)\.py", text)
    assert f"  ltr {command}" in text
    monkeypatch.setattr(sys, "argv", [str(ROOT / "train.py")])
    assert SCRIPT.search(help_of(command))


def test_no_command_is_spelled_in_code_and_no_distribution_named() -> None:
    """Each takes ``as_started`` or ``install``; docstrings are of a clone."""
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "ltr").rglob("*.py")
        if "benchmark" not in path.parts and path.name not in ("errors.py", "configs.py")
        for line in path.read_text().splitlines()
        if (SCRIPT.search(line) and '"""' not in line and "``" not in line) or "ltr-torch[" in line
    ]
    assert not wrong


def test_the_remedy_of_an_extra_names_one_that_there_is() -> None:
    assert "install the extra gbdt: pip install '.[gbdt]'" in install("gbdt")
    known = set(metadata("ltr-torch").get_all("Provides-Extra") or ())
    used = {
        name
        for path in (ROOT / "ltr").rglob("*.py")
        for name in re.findall(r"[^_.\w]install\('(\w+)'\)", path.read_text())
    }
    assert used == {"explain", "export", "gbdt", "search", "tracking"}
    assert used <= known
