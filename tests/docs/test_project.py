"""What the pages say is so, and is typed as printed; the losses alone need little."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import ltr
from ltr.cli.compose import composed, typed
from tests.helpers import processes
from tests.helpers.made_lists import make_lists, write_letor
from tests.helpers.paths import ROOT

EXTEND = (ROOT / "docs/how-to/extend.md").read_text()
PAGES = [
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "configs/**/*.yaml")
    for path in sorted(ROOT.glob(pattern)) if "generated" not in path.parts
]  # fmt: skip
PROGRAMS = "python|make|ltr|pip|torchrun|curl|java|vespa|git|uvicorn|cd|sh|tensorboard|sbatch"
COMMAND = re.compile(rf"(?:\w+=\S* )*(?:{PROGRAMS})3? \S")
CONSOLE = re.compile(r"^ *```console\n(.*?)^ *```", re.S | re.M)
ARGUMENT = re.compile(r"[+~]?[a-z][\w.@/]*=[\[{][^\"(]*")  # alone in a sentence, for one to type


def commands(page: Path) -> list[str]:
    """The commands of a page: of its blocks, whole over several lines, and in its sentences."""
    blocks = re.sub(
        r"^ *(?:\$|>) (.*)|^.*", r"    \1", "\n".join(CONSOLE.findall(page.read_text())), flags=re.M
    )
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M) + "\n" + blocks
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
    typed = [(page.name, command) for page in PAGES for command in commands(page)]
    assert len(typed) > 400
    assert not [one for one in typed if changed(one[1])], "quote these arguments"


def first_value(override: str) -> str:
    """Return ``override`` with the first of its values: ``seed=1`` for ``seed=1,2``."""
    return re.sub(r"^([\w./@+]+=[^,\[{(]*),.*", r"\1", override)


OLD = ("CHANGELOG",)  # names commands of earlier versions
_NAMES = r"squared|shop|shop_best|deep|dice|ranges|margin|mine|allrank_example|submitit\w+"
OWN = rf"[A-Z]{{3,}}|\b({_NAMES})\b|\.{{3}}"


@pytest.mark.slow
def test_what_one_types_is_known() -> None:
    lines = {command for page in PAGES for command in commands(page) if page.stem not in OLD}
    tried = 0
    for line in sorted(lines - {"ltr train optimizer.learning_rate=0.01"}):  # which shows an error
        called = re.match(r"(?:\w+=\S+ )*(?:ltr |python (?=train))(\w+)(?:\.py)? ", line)
        if called is None or re.search(OWN, line):
            continue
        name, words = called[1], shlex.split(line[called.end() :], comments=True)
        words = [word for word in words if "=" in word and not word.startswith("space.")]
        words = [first_value(word) for word in words]
        config = composed(name, *words) if name == "train" else typed(name, words)
        if name in ("table", "search", "auto"):
            composed("train", *config.train)
        tried += 1
    assert tried > 80


SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))


def test_scripts_print_every_table_and_name_it() -> None:
    heads = "".join(path.read_text().split("set -euo")[0] for path in SCRIPTS)
    tables = {path.name for path in (ROOT / "results/tables").glob("*.md")}
    assert tables <= {*re.findall(r"\w+\.md", heads)}
    listed = re.findall(r"^\| `(\w+\.sh)` \|", (ROOT / "scripts/README.md").read_text(), re.M)
    assert sorted(listed) == [path.name for path in SCRIPTS]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_type_commands_that_are_known(path: Path, tmp_path: Path) -> None:
    """Each program that a script starts writes its words to a file instead; the words compose."""
    log = tmp_path / "log"
    recorder = f'printf "%s\\0" "$(basename "$0")" "$@" >> {log}; printf "\\n" >> {log}\n'
    for name in ("ltr", "python", "make"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{recorder}")
        (tmp_path / name).chmod(0o755)
    copied = tmp_path / "scripts" / path.name  # in a folder whose .venv has nothing
    copied.parent.mkdir()
    copied.write_text(path.read_text())
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", copied, "data_dir=there"], check=True, env=env)
    lines = [line.split("\0")[:-1] for line in log.read_text().splitlines()]
    assert lines
    for program, *words in lines:
        if program == "ltr":
            assert words[-1] == "data_dir=there"
            command = [first_value(word) for word in words[1:] if word != "-m"]
            assert typed(words[0], command)
        elif program == "python" and words != ["-"]:
            assert (ROOT / words[0]).is_file()


def test_the_source_package_has_what_the_tests_read() -> None:
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    place = r"ROOT / \"(\w[\w.]*)"
    named = {n for f in (ROOT / "tests").rglob("*.py") for n in re.findall(place, f.read_text())}
    missing = {f"/{name}" for name in named} - {*own["sdist"]["include"]}
    assert missing <= {"/README.md", "/pyproject.toml"}, "these are in it anyhow"


SHORT = ["epochs=1", "dataset.queries=30", "model=mlp"]
PARTS = {  # trainings of the section are shortened by these
    "A loss": SHORT, "A metric": SHORT, "A model": SHORT[:2], "A transform": SHORT,
    "A data set": ["epochs=1", "model=mlp"], "A table": [],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("title", PARTS)
def test_what_one_types_for_a_part_of_one_s_own_trains(title: str, tmp_path: Path) -> None:
    section = EXTEND.split(f"## {title}\n")[1].split("\n## ")[0]
    captioned = r"```\{code-block\} \w+\n:caption: ([\w/]+\.(?:py|yaml))\n\n(.*?)```"
    files = re.findall(captioned, section, re.S)
    assert len(files) == section.count("{code-block}") > 0
    for name, content in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    for seed, split in enumerate(("train", "vali", "test")):
        write_letor(tmp_path / f"data/shop/{split}.txt", make_lists([5, 8, 3, 6], seed=seed))
    typed = re.findall(r"^\$ ltr (\w+) (.*)$", section, re.M)
    assert len(typed) == section.count("\n$ ") > 0
    for command, arguments in typed:
        given = [*shlex.split(arguments), *(PARTS[title] if command == "train" else [])]
        done = processes.run(processes.LTR, command, *given, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert list((tmp_path / "outputs").rglob("results.json"))


ALONE = """
import sys
for name in (
    "hydra", "omegaconf", "numba", "pandas", "scipy", "sklearn", "statsmodels",
    "matplotlib", "jinja2", "tabulate", "tqdm", "filelock", "tensorboard",
):
    sys.modules[name] = None
import ltr
assert "torch" not in sys.modules and ltr.__version__
import ltr.losses, ltr.metrics, ltr.relaxations, torch
scores = torch.tensor([[0.1, 0.9, 0.5]], requires_grad=True)
labels, mask = torch.tensor([[2.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
values = ltr.losses.neural_ndcg_loss(scores, labels, mask, k=1, temperature=0.01)
values.mean().backward()
ltr.losses.lambdarank_loss(scores, labels, mask, k=1).mean().backward()
print(round(values.item(), 6), scores.grad.isfinite().all().item())
print(round(ltr.metrics.ndcg(scores, labels, mask, k=1).item(), 6))
"""


@pytest.mark.slow
def test_losses_and_metrics_need_little_more_than_torch() -> None:
    how = {"capture_output": True, "text": True, "cwd": ROOT}
    done = subprocess.run([sys.executable, "-c", ALONE], check=False, **how)
    third = round((2**1 - 1) / (2**2 - 1), 6)
    assert done.stdout.split() == [str(-third), "True", str(third)], done.stderr
    assert "computed without it" in done.stderr  # said once
    assert done.stderr.count("\n") == 1


def test_the_public_packages_are_attributes_and_no_other_name_is() -> None:
    for name in ltr.__all__:
        place = {"Ranker": "ltr.ranker", "auto": "ltr.lab.auto.frame"}.get(name)
        public = getattr(import_module(place), name) if place else import_module(f"ltr.{name}")
        assert getattr(ltr, name) is public
        assert name in dir(ltr)
    with pytest.raises(AttributeError, match="no attribute 'lossess'"):
        ltr.lossess  # noqa: B018
