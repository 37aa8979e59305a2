"""The two parts: works are killed at random moments, files are damaged; then a user goes on."""

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import NamedTuple

import pandas as pd
from filelock import FileLock, Timeout

from ltr.errors import LTRError
from scripts.fire import works
from scripts.fire.children import Ended, Moment, child
from scripts.fire.works import (
    Command,
    Made,
    Result,
    Stage,
    Subject,
    Work,
    different,
    run_folders,
    trees,
)

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_CLEAN: dict[int, int] = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
_WORDS = re.compile(
    r"error|warning|damaged|failed|cannot|ignored|changed|anew|made again|other code|note:", re.I
)
_OF_RUN = ("**/best.pt", "**/last.pt", "**/results.json", "**/queries.csv", "**/scores.csv",
           "**/history.csv", "**/identity.txt", "**/.hydra/*.yaml")  # fmt: skip
_OF_TWO = tuple(f"out/two/*/{name}" for name in
                ("best.pt", "last.pt", "results.json", "queries.csv", "scores.csv"))  # fmt: skip
_CHECKPOINTS, _CACHE = "out/*/*.pt", "cache/*/*"


class Reader(NamedTuple):
    """A command, and the files in the folder of a work that are damaged before it."""

    work: Work
    files: tuple[str, ...]
    command: Command = ()  # it prints what counts; empty: the work goes on
    is_mixed: bool = False  # the damage: a file of another run, not a bit or a cut


_EVALUATION = ("ltr", "evaluate", "checkpoint={run}", *works.LISTS[2:], "threads=1")
_OF_SCORES = ("ltr", "evaluate", "scores={run}/scores.csv", "data=data/mine/test.txt")
_SEARCH = ("out/search/mine/*", "out/experiment/*", _CACHE)
READERS = {
    "evaluate": Reader(works.NETWORK, (_CHECKPOINTS, _CACHE), _EVALUATION),
    **{
        f"evaluate-{library}": Reader(trees(library), (_CHECKPOINTS,), _EVALUATION)
        for library in filter(find_spec, ("lightgbm", "xgboost", "catboost"))
    },
    "evaluate-scores": Reader(works.NETWORK, ("out/*/scores.csv",), _OF_SCORES),
    "resume": Reader(works.NETWORK, (*_OF_RUN, _CACHE)),
    "compare": Reader(works.SWEEP, _OF_RUN, ("ltr", "compare", "out/two", "samples=200")),
    "sweep-again": Reader(works.SWEEP, (*_OF_RUN, _CACHE, "out/two/*.*")),
    "search-again": Reader(works.SEARCH, _SEARCH),
    "table-again": Reader(works.TABLE, (*_OF_RUN, "out/tables/*/*", _CACHE)),
    **{
        f"mixed-{name}": Reader(works.SWEEP, _OF_TWO, command, is_mixed=True)
        for name, command in {
            "evaluate": _EVALUATION,
            "compare": ("ltr", "compare", "out/two", "samples=200"),
            "ensemble": works.ENSEMBLE.begin,
            "sweep-again": (),
        }.items()
    },
}


def subjects(stage: Stage) -> Iterator[Subject]:
    """A subject for each work that is killed, and for each command that reads files."""
    of_runs = (works.NETWORK, trees("lightgbm"), works.SWEEP, works.SEARCH, works.TABLE)
    for work in (*of_runs, works.ENSEMBLE, works.AUTO, works.CACHE):
        yield Subject("kills", work.name, partial(_killed, stage, work))
    for name, reader in READERS.items():
        part = "mixes" if reader.is_mixed else "flips"
        yield Subject(part, name.removeprefix("mixed-"), partial(_damaged, stage, name))
    yield Subject("quotes", "prepare-data", partial(_quoted, stage))


def _killed(stage: Stage, work: Work, rng: Random) -> Result:
    """Kill ``work`` once, or twice, and go on."""
    stage.undisturbed(work)
    seconds, writes = stage.spans[work.name]
    moments = []
    with stage.empty(f"kills-{work.name}-{rng.getrandbits(32)}", work.of) as folder:
        result, command = Result("harmless"), work.begin
        for _ in range(rng.choice((1, 1, 2))):
            signum, counted = rng.choice(_SIGNALS), rng.random() < 0.6
            at = rng.randint(1, max(1, writes)) if counted else rng.uniform(0, seconds)
            moments.append(Moment(int(signum), "write" if counted else "seconds", at))
            result = stopped(child(command, folder, moments[-1]), signum)
            if result.detail:
                break
            command = work.go_on(folder)
        if not result.detail:
            result = _gone_on(stage, work, folder, child(command, folder))
    when = ", then ".join(map(str, moments))
    return result._replace(detail=result.detail and f"{when}: {result.detail}")


def stopped(ended: Ended, signum: int) -> Result:
    """Whether a stop was a clean one; a work may be done before it comes."""
    if ended.raised is not None:
        return Result("traceback", f"stopped with a traceback: {ended.raised}")
    if ended.status not in (0, _CLEAN[signum]):
        return Result("crash", f"stopped with status {ended.status}, last said: {ended.last_line}")
    return Result("harmless")


def _gone_on(stage: Stage, work: Work, folder: Path, ended: Ended) -> Result:
    """What ``work`` has made in ``folder`` at its end, beside what it makes undisturbed."""
    if ended.raised is not None:
        return Result("traceback", f"going on: {ended.raised}")
    if ended.status != 0:
        return Result("lost", f"going on ends with {ended.status}: {ended.last_line}")
    made = work.made(folder)
    if work is works.SEARCH:  # what it draws after a trial that was cut off may be other settings
        longer = works.LONGER_SEARCH.made(stage.undisturbed(works.LONGER_SEARCH))
        expected = {name: longer.get(name, value) for name, value in made.items()}
        expected |= dict.fromkeys((name for name in made if name.startswith("trials")), "3")
    else:
        expected = work.made(stage.undisturbed(work))
    if not (wrong := different(made, expected)):
        return leftovers(folder)
    only_history = all(name.endswith("history.csv") for name in wrong)
    detail = f"differs from the run never stopped: {', '.join(wrong[:4])}"
    return Result("lost" if only_history else "silent", detail)


def leftovers(folder: Path) -> Result:
    """Parts of files, and locks that are held, that a work which is done leaves behind."""
    parts = [*folder.rglob(".part-*"), *folder.rglob("*.part"), *folder.rglob("*.tmp")]
    left = [path for path in parts if not _given_up(path)]
    for lock in folder.rglob("*.lock"):
        try:
            FileLock(lock, timeout=0).acquire().lock.release()
        except Timeout:
            left.append(lock)
    names = ", ".join(str(path.relative_to(folder)) for path in left[:4])
    return Result("left", f"left behind: {names}") if left else Result("harmless")


def _given_up(path: Path) -> bool:
    """Whether it lies in a run folder that was begun and given up, since it had no checkpoint."""
    runs = [above for above in path.parents if (above / ".hydra").is_dir()]
    return bool(runs) and not (runs[0] / "results.json").is_file()


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
    if not reader.command:
        return child(reader.work.go_on(folder), folder), partial(reader.work.made, folder)
    run = run_folders(folder)[0].relative_to(folder)
    ended = child(tuple(word.format(run=run) for word in reader.command), folder)
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
        damaged = mix(path, rng) if reader.is_mixed else damage(path, rng)
        what = f"{path.relative_to(folder)}, {damaged}"
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


def mix(path: Path, rng: Random) -> str:
    """Replace a file of a run by that of another run beside it; say which."""
    runs = sorted(path.parent.parent.glob(f"*/{path.name}"))
    other = rng.choice([beside for beside in runs if beside != path])
    shutil.copy(other, path)
    return f"that of {other.parent.name}"


_ITEMS = re.compile(r"^ +(?:train|vali|test) +([0-9,]+)", re.MULTILINE)  # of prepare_data
_HEADER = "query,size,grade,name"
_OF_TABLE = ("dataset=table", "data_dir=.", "dataset.path=items.csv", "dataset.query=query",
             "dataset.label=grade", "dataset.id=name", "cache_dir=cache", "threads=1")  # fmt: skip


def _quoted(stage: Stage, rng: Random) -> Result:
    """Put one or two quotes at random places of a CSV file, and read it as pandas does."""
    rows = [f"{row // 6},{row * 7 % 13},{row % 3},item {row}" for row in range(120)]
    text = "\n".join([_HEADER, *rows]) + "\n"
    places = sorted(rng.sample(range(len(_HEADER) + 1, len(text)), rng.choice((1, 2))))
    for place in reversed(places):
        text = text[:place] + '"' + text[place:]
    with stage.empty(f"quotes-{rng.getrandbits(32)}") as folder:
        (folder / "items.csv").write_text(text)
        ended = child(("ltr", "prepare_data", *_OF_TABLE), folder)
        outcome, detail = read_as_pandas_does(ended, folder / "items.csv")
    return Result(outcome, f"quotes at {places}: {detail}" if detail else "")


def read_as_pandas_does(ended: Ended, path: Path) -> Result:
    """Whether ``prepare_data`` refused a CSV file, or read as many rows as pandas does."""
    if ended.raised is not None:
        return Result("traceback", ended.raised)
    if ended.status > 0 and "error" in ended.err:
        return Result("noticed")
    if ended.status != 0:
        return Result("crash", f"status {ended.status}, last said: {ended.last_line}")
    counts = _ITEMS.findall(ended.out)
    items = sum(int(count.replace(",", "")) for count in counts)
    try:
        expected = len(pd.read_csv(path, dtype=str, keep_default_na=False))
    except pd.errors.ParserError as error:
        return Result("silent", f"{items} items of a file that pandas refuses: {error}")
    if items != expected:
        return Result("silent", f"{items} items; pandas reads {expected}")
    return Result("harmless")


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
