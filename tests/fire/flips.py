"""Every kind of file that the project writes is damaged and read again, by function or command."""

import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from fire import readers
from fire.children import LIMIT, Ended, child, program
from fire.damage import damage
from fire.moments import AT_WRITE, Moment
from fire.outcomes import CRASH, HANG, HARMLESS, NOTICED, SILENT, TRACEBACK, Result, Subject
from fire.readers import as_text, parts_of
from fire.stage import Stage, refill
from fire.works import (
    LISTS,
    NETWORK_RUN,
    SEARCH,
    SWEEP,
    TABLE,
    Command,
    Work,
    run_folders,
    trees,
)

_COMMANDS_SHARE = 0.05  # of the tries: a command takes some hundred times a function
_WORDS = re.compile(r"error|warn|damaged|failed|again|anew|cannot|ignored|changed|differ", re.I)
_SETTLED = 2.1  # seconds after which the digest of a file is remembered


@dataclass(frozen=True)
class Kind:
    """A kind of file and how it is read.

    Attributes:
        name: of the subject.
        source: the folder that holds it, undamaged.
        files: patterns of the files of this kind in that folder.
        read: what the program makes of the folder.
        cuts: whether files are cut as well.
        share: of the tries.
    """

    name: str
    source: Callable[[], Path]
    files: tuple[str, ...]
    read: Callable[[Path], dict[str, str]]
    cuts: bool = True
    share: float = 1.0


def subjects(stage: Stage) -> list[Subject]:
    """A subject for each kind of file, then one for each command that reads several."""
    kinds = [*_kinds(stage), *_commands(stage)]
    return [
        Subject(kind.name, functools.partial(_damaged, stage, kind), kind.share) for kind in kinds
    ]


def _damaged(stage: Stage, kind: Kind, rng: Random) -> list[Result]:
    """Damage one file of the kind, read, compare."""
    source = kind.source()
    paths = sorted(path for name in kind.files for path in source.glob(name) if path.stat().st_size)
    path = rng.choice(paths).relative_to(source)
    expected = _undamaged(stage, kind)
    with stage.copy_of(f"flips-{kind.name}", source) as folder:
        how = damage(folder / path, rng, cuts=kind.cuts)
        ended = child(lambda: _read(kind, folder), folder)
    result = judge(ended, *expected)
    return [Result(result.outcome, f"{path}, {how}: {result.detail}")]


def _read(kind: Kind, folder: Path) -> str:
    """Read in a child; a mistake that the program explains is one line of its own."""
    import logging

    from ltr.errors import LTRError

    logging.basicConfig(level=logging.WARNING)  # to stderr, where it counts as a word
    try:
        return as_text(kind.read(folder))
    except LTRError as error:
        return json.dumps({"error": str(error)})


def _undamaged(stage: Stage, kind: Kind) -> tuple[dict[str, str], str]:
    """What the program makes of the files as they were written, and what it says meanwhile."""
    kept = _KEPT.get(kind.name)
    if kept is None:
        with stage.copy_of(f"whole-{kind.name}", kind.source()) as folder:
            ended = child(lambda: _read(kind, folder), folder)
        if ended.status != 0 or "error" in json.loads(ended.answer):
            raise RuntimeError(f"{kind.name} cannot be read undamaged: {ended.answer}{ended.err}")
        kept = _KEPT[kind.name] = (json.loads(ended.answer), ended.err)
    return kept


_KEPT: dict[str, tuple[dict[str, str], str]] = {}


def judge(ended: Ended, expected: dict[str, str], usual: str) -> Result:
    """How a read of damaged files ended, beside what it gives and says undamaged."""
    if ended.hung:
        return Result(HANG, f"more than {LIMIT:.0f} s")
    if ended.status < 0:
        return Result(CRASH, f"killed by signal {-ended.status}")
    if ended.raised is not None:
        return Result(TRACEBACK, ended.raised)
    if ended.status != 0:
        return Result(CRASH, f"status {ended.status}: {ended.err.strip()[-160:]}")
    made: dict[str, str] = json.loads(ended.answer)
    if "error" in made:
        lines = made["error"].strip().splitlines()
        return (
            Result(NOTICED) if len(lines) == 1 else Result(TRACEBACK, "an error of several lines")
        )
    said = made.pop("said", "") + "\n".join(set(ended.err.splitlines()) - set(usual.splitlines()))
    wrong = [name for name in {**expected, **made} if expected.get(name) != made.get(name)]
    wrong = [name for name in wrong if name != "said"]
    if wrong and not said:
        return Result(SILENT, f"another {', '.join(wrong[:4])}")
    return Result(NOTICED if said else HARMLESS)


def _kinds(stage: Stage) -> Iterator[Kind]:
    """The kinds of files that functions read."""

    def run_of(work: Work) -> Callable[[], Path]:
        return lambda: run_folders(stage.reference(work).folder)[0]

    def undisturbed(work: Work, name: str) -> Callable[[], Path]:
        return lambda: stage.reference(work).folder / name

    def kept_model(folder: Path) -> dict[str, str]:
        return parts_of(readers.of_kept_model(folder, stage.data))

    def last(folder: Path) -> dict[str, str]:
        return parts_of(readers.of_checkpoint(folder / "last.pt"))

    def cache(folder: Path) -> dict[str, str]:
        return parts_of(readers.of_cache(folder, stage.data))

    def results(folder: Path) -> dict[str, str]:
        return parts_of(readers.of_results(folder))

    def scores(folder: Path) -> dict[str, str]:
        return parts_of(readers.of_scores(folder / "scores.csv", stage.data))

    network = run_of(NETWORK_RUN)
    yield Kind("best.pt", network, ("best.pt",), kept_model)
    yield Kind("last.pt", network, ("last.pt",), last)
    for library in ("lightgbm", "xgboost", "catboost"):
        if find_spec(library):
            run = run_of(trees(library))
            yield Kind(f"best.pt-{library}", run, ("best.pt",), kept_model)
            yield Kind(f"last.pt-{library}", run, ("last.pt",), last)
    entries = undisturbed(NETWORK_RUN, "cache")
    for name in ("features.npy", "labels.npy", "offsets.npy", "qids.npy", "meta.json"):
        yield Kind(name, entries, (f"*/{name}",), cache)
    yield Kind("digests", functools.partial(_with_notes, stage), ("digests/*.json",), cache)
    yield Kind("results.json", network, ("results.json",), results)
    yield Kind("queries.csv", network, ("queries.csv",), results)
    yield Kind("scores.csv", network, ("scores.csv",), scores)
    journal = undisturbed(SEARCH, "out/search/mine")
    arguments = SEARCH.begin[1:]
    # A cut journal is one whose end was not written yet: a search goes on from it (search-again).
    yield Kind("journal.log", journal, ("journal.log",),
               lambda folder: parts_of(readers.of_journal(folder, arguments)), cuts=False)  # fmt: skip


def _with_notes(stage: Stage) -> Path:
    """A cache with its notes of digests, which are taken of files that have settled."""
    cache = stage.reference(NETWORK_RUN).folder / "cache"
    folder = stage.root / "settled"
    if not folder.is_dir():
        age = time.time() - (stage.data / "mine" / "test.txt").stat().st_ctime
        time.sleep(max(0.0, _SETTLED - age))
        folder.mkdir()
        refill(folder, cache)
        child(lambda: as_text(parts_of(readers.of_cache(folder, stage.data))), folder)
    return folder


def _commands(stage: Stage) -> Iterator[Kind]:
    """The commands that read several kinds of files; each try damages one of them."""
    of_run = ("**/best.pt", "**/last.pt", "**/results.json", "**/queries.csv", "**/scores.csv",
              "**/history.csv", "**/identity.txt", "**/.hydra/*.yaml")  # fmt: skip
    of_cache = ("cache/*/*",)

    def whole(work: Work) -> Callable[[], Path]:
        return lambda: stage.reference(work).folder

    def printed(
        name: str, work: Work, files: Sequence[str], command: Callable[[Path], Command]
    ) -> Kind:
        def read(folder: Path) -> dict[str, str]:
            return _said_by(command(folder), folder, lambda out: {"printed": out})

        return Kind(name, whole(work), tuple(files), read, share=_COMMANDS_SHARE)

    def again(work: Work, files: Sequence[str], *, name: str = "", source: Any = None) -> Kind:
        def read(folder: Path) -> dict[str, str]:
            return _said_by(work.go_on(folder), folder, lambda out: work.made(folder))

        return Kind(
            name or f"{work.name}-again",
            source or whole(work),
            tuple(files),
            read,
            share=_COMMANDS_SHARE,
        )

    def run_in(folder: Path) -> str:
        return str(run_folders(folder)[0].relative_to(folder))

    def evaluation(folder: Path) -> Command:
        return ("scripts/evaluate.py", f"checkpoint={run_in(folder)}", *LISTS[2:], "threads=1")

    def comparison(folder: Path) -> Command:
        return ("scripts/compare.py", "out/two", "samples=200")

    yield printed(
        "evaluate.py", NETWORK_RUN, ("out/*/best.pt", "out/*/last.pt", *of_cache), evaluation
    )
    yield again(NETWORK_RUN, ("out/*/last.pt", "out/*/best.pt", "out/*/.hydra/*", "out/*/history.csv", *of_cache),
                name="train.py-resume", source=lambda: _cut(stage))  # fmt: skip
    yield printed("compare.py", SWEEP, of_run, comparison)
    yield again(SWEEP, (*of_run, *of_cache, "out/two/multirun.yaml", "out/two/summary.csv"))
    yield again(SEARCH, ("out/search/mine/*", "out/experiment/*", "out/**/code.txt", *of_cache))
    yield again(TABLE, (*of_run, "out/tables/*/*", *of_cache))


def _said_by(
    command: Command, folder: Path, made: Callable[[str], dict[str, str]]
) -> dict[str, str]:
    """What a command, run in a child of this child, has made, and its words of warning."""
    ended = child(program(*command), folder)
    if ended.hung:
        time.sleep(2 * LIMIT)  # this child hangs as well
    if ended.status < 0:
        import os

        os.kill(os.getpid(), -ended.status)
    if ended.raised is not None:
        raise RuntimeError(ended.raised)
    text = ended.out + ended.err
    if ended.status != 0:
        lines = [line for line in text.splitlines() if "error" in line or "failed" in line]
        return {"error": lines[0] if lines else text}
    words = "\n".join(line for line in text.splitlines() if _WORDS.search(line))
    return {**made(ended.out), "said": words}


def _cut(stage: Stage) -> Path:
    """A run of the network that was cut off in its middle."""
    folder = stage.root / "cut"
    if not folder.is_dir():
        import signal

        with stage.empty("cut") as place:
            for share in (0.5, 0.6, 0.7):
                at = int(share * stage.reference(NETWORK_RUN).writes)
                child(
                    program(*NETWORK_RUN.begin), place, moment=Moment(signal.SIGKILL, AT_WRITE, at)
                )
                if run_folders(place):
                    break
            place.rename(folder)
    return folder
