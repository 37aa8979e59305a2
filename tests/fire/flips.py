"""Every kind of file that the project writes is damaged, and given to a command that reads it."""

import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import NamedTuple

from fire import works
from fire.children import Ended, child
from fire.works import Command, Made, Result, Stage, Subject, Work, different, run_folders, trees
from ltr.errors import LTRError

_WORDS = re.compile(
    r"error|warning|damaged|failed|cannot|ignored|changed|anew|made again|other code|note:", re.I
)
_OF_RUN = ("**/best.pt", "**/last.pt", "**/results.json", "**/queries.csv", "**/scores.csv",
           "**/history.csv", "**/identity.txt", "**/.hydra/*.yaml")  # fmt: skip
_CHECKPOINTS, _CACHE = "out/*/*.pt", "cache/*/*"


class Reader(NamedTuple):
    """A command, and the files in the folder of a work that are damaged before it."""

    work: Work
    files: tuple[str, ...]
    command: Callable[[Path], Command] | None = None  # it prints what counts; None: it goes on


def _evaluation(folder: Path) -> Command:
    run = run_folders(folder)[0].relative_to(folder)
    return ("scripts/evaluate.py", f"checkpoint={run}", *works.LISTS[2:], "threads=1")


def _of_scores(folder: Path) -> Command:
    scores = run_folders(folder)[0].relative_to(folder) / "scores.csv"
    return ("scripts/evaluate.py", f"scores={scores}", "data=data/mine/test.txt")


def _comparison(folder: Path) -> Command:
    return ("scripts/compare.py", "out/two", "samples=200")


_SEARCH = ("out/search/mine/*", "out/experiment/*", _CACHE)
READERS = {
    "evaluate": Reader(works.NETWORK, (_CHECKPOINTS, _CACHE), _evaluation),
    **{
        f"evaluate-{library}": Reader(trees(library), (_CHECKPOINTS,), _evaluation)
        for library in filter(find_spec, ("lightgbm", "xgboost", "catboost"))
    },
    "evaluate-scores": Reader(works.NETWORK, ("out/*/scores.csv",), _of_scores),
    "resume": Reader(works.NETWORK, (*_OF_RUN, _CACHE)),
    "compare": Reader(works.SWEEP, _OF_RUN, _comparison),
    "sweep-again": Reader(works.SWEEP, (*_OF_RUN, _CACHE, "out/two/*.*")),
    "search-again": Reader(works.SEARCH, _SEARCH),
    "table-again": Reader(works.TABLE, (*_OF_RUN, "out/tables/*/*", _CACHE)),
}


def subjects(stage: Stage) -> Iterator[Subject]:
    """A subject for each command that reads files."""
    for name in READERS:
        yield Subject("flips", name, partial(_damaged, stage, name))


@cache
def _undamaged(stage: Stage, name: str) -> tuple[Path, Ended, Made]:
    """The folder that a command reads, how it ends on a sound copy, and what it makes there."""
    reader = READERS[name]
    source = stage.cut_off() if name == "resume" else stage.undisturbed(reader.work)
    with stage.empty(f"whole-{name}") as above:
        folder = Path(shutil.copytree(source, above / "whole", symlinks=True))
        ended, made = _given(reader, folder)
        return source, ended, made()


def _given(reader: Reader, folder: Path) -> tuple[Ended, Callable[[], Made]]:
    """How the command ends in ``folder``, and what says what it has made."""
    if reader.command is None:
        return child(reader.work.go_on(folder), folder), partial(reader.work.made, folder)
    ended = child(reader.command(folder), folder)
    return ended, lambda: {"printed": ended.out}


def _damaged(stage: Stage, name: str, rng: Random) -> Result:
    """Damage a file, give the command, compare."""
    reader = READERS[name]
    with stage.lock:  # once for all threads
        source, usual, expected = _undamaged(stage, name)
    with stage.empty(f"flips-{name}-{rng.getrandbits(32)}") as above:
        folder = Path(shutil.copytree(source, above / "one", symlinks=True))
        paths = {path for files in reader.files for path in folder.glob(files) if path.is_file()}
        path = rng.choice(sorted(path for path in paths if path.stat().st_size))
        what = f"{path.relative_to(folder)}, {damage(path, rng)}"
        outcome, detail = judged(*_given(reader, folder), usual, expected)
    return Result(outcome, f"{what}: {detail}" if detail else "")


def damage(path: Path, rng: Random) -> str:
    """Damage a file, three of four times by a bit, else by a cut; say how."""
    content = bytearray(path.read_bytes())
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    if rng.random() < 0.75:
        content[place] ^= 1 << bit
        path.write_bytes(content)
        return f"bit {bit} of byte {place}"
    path.write_bytes(content[:place])
    return f"cut to {place} of {len(content)} bytes"


def judged(ended: Ended, made: Callable[[], Made], usual: Ended, expected: Made) -> Result:
    """How a command on damaged files ended, beside the ``usual`` end and what it makes then."""
    said, before = ({*filter(_WORDS.search, (e.out + e.err).splitlines())} for e in (ended, usual))
    if ended.raised is not None:
        return Result("traceback", ended.raised)
    if ended.status > 0 and said:
        return Result("noticed")
    if ended.status != 0:
        return Result("crash", f"status {ended.status}, last said: {ended.last_line}")
    try:
        wrong = different(made(), expected)
    except LTRError:  # damage that the command did not need to read is noticed when it is
        return Result("noticed")
    if said - before:
        return Result("noticed")
    return Result("silent", f"another {', '.join(wrong[:4])}") if wrong else Result("harmless")
