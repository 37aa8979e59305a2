"""Every command has its parts; remedies and help name it as the user of this process started it."""

import re
import sys
from importlib import import_module
from importlib.metadata import metadata

import pytest
from processes import ROOT

from ltr.__main__ import COMMANDS
from ltr.console.configs import help_of
from ltr.errors import as_started

SCRIPT = re.compile(r"python (train|scripts/\w+)\.py")


def test_commands_are_named_as_they_were_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    of_clone, installed = ("python train.py", "python scripts/table.py"), ("ltr train", "ltr table")
    for started, names in (
        (str(ROOT / "train.py"), of_clone),
        ("scripts/prepare_data.py", of_clone),
        ("/usr/bin/ltr", installed),
        ("/home/me/train.py", installed),  # the user's own, with a Ranker
    ):
        monkeypatch.setattr(sys, "argv", [started])
        assert (as_started("train"), as_started("table")) == names


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_its_parts_and_its_help(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, function = COMMANDS[command][0].partition(":")
    assert callable(getattr(import_module(module), function))
    script = "train.py" if command == "train" else f"scripts/{command}.py"
    assert f'main("{command}")' in (ROOT / script).read_text()
    monkeypatch.setattr(sys, "argv", ["/usr/bin/ltr"])
    text = help_of(command)
    assert not re.search(r"(train|scripts/\w+)\.py", text)
    assert f"  ltr {command}" in text
    monkeypatch.setattr(sys, "argv", [str(ROOT / "train.py")])
    assert SCRIPT.search(help_of(command))


def test_no_command_is_spelled_in_code_and_no_distribution_named() -> None:
    """Each takes ``as_started``; docstrings are of a clone."""
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "ltr").rglob("*.py")
        if "benchmark" not in path.parts and path.name not in ("errors.py", "configs.py")
        for line in path.read_text().splitlines()
        if (SCRIPT.search(line) and '"""' not in line and "``" not in line) or "ltr-torch[" in line
    ]
    assert not wrong


def test_the_remedy_of_an_extra_names_one_that_there_is() -> None:
    known = set(metadata("ltr-torch").get_all("Provides-Extra") or ())
    used = {
        name
        for path in (ROOT / "ltr").rglob("*.py")
        for name in re.findall(r"\bneed\(\S+, \"(\w+)\"\)", path.read_text())
    }
    assert used == {"explain", "export", "gbdt", "search", "tracking"}
    assert used <= known
