"""README, the tutorials and the Python of other pages run as they stand, and print what they show.

``run_page`` takes any page of Markdown. Its blocks run in order, in one folder:

- ``{code-block} LANGUAGE`` with ``:caption: NAME`` is written to the file NAME.
- ``python`` runs in one namespace; a ``text`` block right after it is what it prints.
- ``console`` has commands for bash behind ``$`` (``>`` goes on with a line that ends in a
  backslash); the lines that follow are what the command prints.

A comment right above a block, ``% needs NAME``, brings a file or folder along: ``data/NAME`` from
LTR_DATA_DIR, without which the block is left out, anything else from the repository. ``% not run``
leaves it out. ``...`` matches any lines, and within a line any text.
"""

import contextlib
import io
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import processes
from tests.helpers.paths import ROOT

# Their marks are "tutorial": each takes seconds.
LONG = {"auto", "own_csv", "own_loss", "published_table", "rerank_text", "serving"}
TUTORIALS = [p for p in sorted((ROOT / "docs/tutorials").glob("*.md")) if p.stem != "index"]
OTHERS = {*ROOT.glob("docs/*/**/*.md"), *ROOT.glob("*.md")} - {*TUTORIALS}
IN_PYTHON = sorted(path for path in OTHERS if "```python" in path.read_text())
BLOCK = re.compile(
    r"(?:^% (?P<mark>[^\n]*)\n)?^```(?:\{code-block\} )?(?P<language>[a-z]+)\n"
    r"(?:(?P<options>(?::[a-z-]+:[^\n]*\n)+)\n?)?(?P<body>.*?)^```$",
    re.M | re.S,
)
NUMBER = r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)"
LOOSE = {  # what another moment or machine prints otherwise
    r"\d{4}-\d\d-\d\d(?:[_T ]\d\d[-:]\d\d(?:[-:]\d\d)?)?": "DATE",
    r"\b\d+:\d\d:\d\d\b": "TIME",
    r"(?:[\d.,]+|<1) (ms|s|min|lists/s)\b": r"TIME \1",
    r"-{3,}": "---",
}
PROGRESS = r"^epoch \d+/\d+: \d+ of \d+, "  # printed where an epoch takes long
FAILURE = r"^(error: |FAILS )"  # what a command prints that ends with another status than 0


def agrees(expected: list[str], printed: list[str]) -> bool:
    """Whether lines are those that a page shows."""
    if not expected:
        return not printed
    if expected[0].strip() == "...":
        return any(agrees(expected[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and alike(expected[0], printed[0]) and agrees(expected[1:], printed[1:])


def alike(expected: str, printed: str) -> bool:
    """Whether two lines have the same words, and numbers within 2 % or 0.02."""
    for pattern, word in LOOSE.items():
        expected, printed = (re.sub(pattern, word, line) for line in (expected, printed))
    parts = re.split(rf"({NUMBER}|\.\.\.|\s+)", expected.strip())
    known = [part for part in parts if re.fullmatch(NUMBER, part)]
    forms = {"...": ".*?"} | dict.fromkeys(known, f"({NUMBER})")
    pattern = "".join(forms.get(p, r"\s+" if p.isspace() else re.escape(p)) for p in parts)
    match = re.fullmatch(pattern, printed.strip())
    return match is not None and all(
        math.isclose(*(float(one.replace(",", "")) for one in pair), rel_tol=0.02, abs_tol=0.02)
        for pair in zip(known, match.groups(), strict=True)
    )


def compare(where: str, expected: str, printed: str) -> None:
    """Fail where a block prints something else than the page shows."""
    lines = [
        [line for line in text.splitlines() if line.strip() and not re.search(PROGRESS, line)]
        for text in (expected, printed)
    ]
    if not agrees(*lines):
        pytest.fail(f"{where} shows\n{expected}\nand it printed\n{printed}", pytrace=False)


def there(mark: str | None, folder: Path) -> bool:
    """Bring along what a block needs; False where the block is to be left out."""
    if mark is None or not mark.startswith("needs "):
        return mark != "not run"
    name = mark.removeprefix("needs ")
    data = name.removeprefix("data/") if name.startswith("data/") else None
    source = Path(os.environ.get("LTR_DATA_DIR", os.devnull), data) if data else ROOT / name
    target = folder / (name if data else source.name)
    if source.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source) if data else shutil.copy(source, target)
    return source.exists()


def run_console(where: str, body: str, env: dict[str, str]) -> None:
    """Run the commands of a block, each in a shell of its own."""
    joined = re.sub(r"\\\n> ?", "", body)
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", joined, re.M):
        done = subprocess.run(
            ["bash", "-c", command], env=env, capture_output=True, text=True, check=False
        )
        compare(f"{where} {command}", expected, done.stderr + done.stdout)
        assert bool(done.returncode) == bool(re.search(FAILURE, expected, re.M)), where


def run_page(path: Path, folder: Path) -> dict[str, Any]:
    """Run the blocks of a page in ``folder``, compare what they print; the names of its Python."""
    folder.mkdir()
    commands = folder.parent / f"{folder.name}-bin"
    commands.mkdir()
    env = os.environ | processes.executable(commands)
    env["PATH"] = os.pathsep.join([str(commands), str(Path(sys.executable).parent), env["PATH"]])
    text, names = path.read_text(), {"__name__": "__main__"}
    blocks: list[Any] = [*BLOCK.finditer(text)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            where = f"{path.name}:{text.count(chr(10), 0, block.start('body'))}"
            caption = re.search(r":caption: (.*)", block["options"] or "")
            if not there(block["mark"], folder):
                continue
            if caption:
                Path(caption[1]).parent.mkdir(parents=True, exist_ok=True)
                Path(caption[1]).write_text(block["body"])
            elif block["language"] == "python":
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(block["body"], where, "exec"), names)
                shown = after["body"] if after and after["language"] == "text" else ""
                compare(where, shown, printed.getvalue())
            elif block["language"] == "console" and path in TUTORIALS:
                run_console(where, block["body"], env)
    return names


def with_marks(path: Path) -> Any:
    marks = [pytest.mark.tutorial] if path.stem in LONG else []
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.slow
@pytest.mark.parametrize("path", [with_marks(path) for path in TUTORIALS])
def test_a_tutorial_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    run_page(path, tmp_path / "work")


@pytest.mark.slow
@pytest.mark.parametrize("path", [with_marks(path) for path in IN_PYTHON])
def test_the_python_of_a_page_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    names = run_page(path, tmp_path / "work")
    if path.stem == "README":  # its two commands, for the items of its Python
        items = names["items"].assign(grade=names["grades"])
        items.to_csv(tmp_path / "work/items.csv", index=False)
        items.drop(columns="grade").to_csv(tmp_path / "work/tomorrow.csv", index=False)
        typed = re.findall(r"^    ltr (\w+) (.*)", path.read_text(), re.M)
        assert [command for command, _ in typed] == ["train", "predict"]
        for command, given in typed:
            done = processes.run(processes.LTR, command, *given.split(), cwd=tmp_path / "work")
            assert done.returncode == 0, done.stderr
        ranking = (tmp_path / "work/ranking.csv").read_text().splitlines()
        assert len(ranking) == 1 + len(items)


def test_words_are_compared_exactly_and_numbers_loosely() -> None:
    assert alike("ndcg@5  0.690  12 s, ...", "ndcg@5    0.7012  1 s, of two")
    assert not alike("ndcg@5  0.690", "ndcg@5  0.72")
    assert not alike("ndcg@5  0.690", "ndcg@10  0.690")
    assert agrees(["a", "...", "loss -0.5"], ["a", "b", "c", "loss -0.51"])
    assert not agrees(["a", "..."], ["b"])
