"""What CONTRIBUTING says one types for a part of one's own, word for word."""

import re
import shlex
from pathlib import Path

import processes
import pytest
from conftest import make_lists, write_letor

TEXT = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text()
SYNTHETIC = ["epochs=1", "dataset.queries=30"]
SHORT = {  # trainings of the section are shortened by these
    "A loss": [*SYNTHETIC, "model=mlp"],
    "A metric": [*SYNTHETIC, "model=mlp"],
    "A model": SYNTHETIC,
    "A transform": [*SYNTHETIC, "model=mlp"],
    "A data set": ["epochs=1", "model=mlp"],
    "A table": [],
}


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.slow
@pytest.mark.parametrize("title", SHORT)
def test_what_is_typed_trains(title: str, tmp_path: Path) -> None:
    own = section(title)
    files = re.findall(r"`([\w/]+\.(?:py|yaml))`[^`]*:\n\n```\w+\n(.*?)```", own, re.S)
    assert files
    for name, content in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    for seed, split in enumerate(("train", "vali", "test")):
        write_letor(tmp_path / f"data/shop/{split}.txt", make_lists([5, 8, 3, 6], seed=seed))
    commands = re.findall(r"^    (?:PYTHONPATH=\. )?ltr (\w+) (.*?)(?: +#.*)?$", own, re.M)
    assert any(command in ("train", "table") for command, _ in commands)
    for command, arguments in commands:
        script = "train.py" if command == "train" else f"scripts/{command}.py"
        short = SHORT[title] if command == "train" else []
        given = [*shlex.split(arguments), *short]
        done = processes.run(script, *given, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert list((tmp_path / "outputs").rglob("results.json"))
