"""Commands that the pages show reach the program as printed, from bash and from zsh."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")), *sorted(ROOT.glob("configs/**/*.yaml")),
]  # fmt: skip
PROGRAMS = "python|make|ltr|pip|torchrun|curl|java|vespa|git|uvicorn|cd|sh|tensorboard|sbatch"
COMMAND = re.compile(rf"(?:\w+=\S* )*(?:{PROGRAMS})3? \S")
ARGUMENT = re.compile(r"[+~]?[a-z][\w.@/]*=[\[{][^\"(]*")  # alone in a sentence, for one to type


def commands(page: Path) -> list[str]:
    """The commands of a page: of its blocks, whole over several lines, and in its sentences."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    indent = "#   " if page.suffix == ".yaml" else "    (?:# )?"
    lines, found = re.findall(rf"^{indent}(\S.*|  .*)", text, re.M), []
    for number, line in enumerate(lines):
        line = re.sub(r" {3,}.*", "", line)  # what it does
        if COMMAND.match(line):
            rest = iter(lines[number + 1 :])
            while line.endswith("\\") or open_quote(line):
                line = line.removesuffix("\\") + next(rest).strip()
            found.append(line)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    return found + [span for span in spans if COMMAND.match(span) or ARGUMENT.fullmatch(span)]


def open_quote(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return True
    return False


def changed(command: str) -> str | None:
    """What bash or zsh would read as a pattern, braces or history; None: nothing."""
    bare = re.sub(r"'[^']*'|\"[^\"!]*\"", "", re.sub(r"(^| )#.*", "", command))
    found = re.search(r"\S*[\[\]{}!]\S*|\S+=\S*[*?]\S*", bare)
    return found and found[0]


def test_commands_are_typed_as_they_are_printed() -> None:
    shown = {page: commands(page) for page in PAGES}
    assert len(shown[ROOT / "README.md"]) > 20
    assert len(shown[ROOT / "docs" / "guide.md"]) > 60
    wrong = [
        f"{page.relative_to(ROOT)}: {bad}"
        for page, typed in shown.items() for command in typed if (bad := changed(command))
    ]  # fmt: skip
    assert not wrong, "quote these arguments"
