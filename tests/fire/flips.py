"""Every kind of file that the project writes is damaged and read again, by function or command."""

import contextlib
import functools
import io
import json
import logging
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from fire import readers
from fire.children import LIMIT, child, program
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
    Made,
    Work,
    run_folders,
    trees,
)

_COMMANDS_SHARE = 0.05  # of the tries: a command takes some hundred times a function
_WORDS = re.compile(r"error|warn|damaged|failed|again|anew|cannot|ignored|changed|differ", re.I)
_LIMIT = 40.0  # seconds of a batch that takes two on an idle machine
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
        batch: tries in one child.
    """

    name: str
    source: Callable[[], Path]
    files: tuple[str, ...]
    read: Callable[[Path], Made]
    cuts: bool = True
    share: float = 1.0
    batch: int = 20


def subjects(stage: Stage) -> list[Subject]:
    """A subject for each kind of file, then one for each command that reads several."""
    kinds = [*_kinds(stage), *_commands(stage)]
    return [
        Subject(kind.name, functools.partial(_damaged, stage, kind), kind.share) for kind in kinds
    ]


def _damaged(stage: Stage, kind: Kind, rng: Random) -> list[Result]:
    """Damage files of the kind, read them, compare: a batch in one child, while it lives."""
    source, expected = kind.source(), _undamaged(stage, kind)
    names = sorted(path for name in kind.files for path in source.glob(name) if path.stat().st_size)
    seeds = [rng.getrandbits(64) for _ in range(kind.batch)]
    results: list[Result] = []
    while len(results) < len(seeds):
        done = _read_batch(stage, kind, source, names, seeds[len(results) :], expected)
        results += done
    return results


def _read_batch(
    stage: Stage,
    kind: Kind,
    source: Path,
    names: list[Path],
    seeds: list[int],
    expected: Made,
) -> list[Result]:
    """The results of the tries up to one that ends its child, which counts as the last of them."""
    name, limit = f"flips-{kind.name}", _LIMIT if kind.batch > 1 else LIMIT
    with stage.empty(name) as above, (above / "results").open("a+") as notes:

        def work() -> None:
            for place, seed in enumerate(seeds):
                rng = Random(seed)
                path = rng.choice(names).relative_to(source)
                with stage.copy_of(f"{name}-{place}", source) as folder:  # no path twice
                    how = damage(folder / path, rng, cuts=kind.cuts)
                    notes.write(json.dumps([f"{path}, {how}"]) + "\n")
                    notes.flush()
                    notes.write(json.dumps(judged(lambda: kind.read(folder), expected)) + "\n")
                    notes.flush()

        ended = child(work, above, limit=limit)
        notes.seek(0)
        lines = [json.loads(line) for line in notes]
    results = [
        Result(outcome, f"{what}: {detail}")
        for (what,), (outcome, detail) in zip(lines[::2], lines[1::2], strict=False)
    ]
    if len(results) < len(seeds):
        what = lines[-1][0]
        if ended.hung:
            results.append(Result(HANG, f"{what}: more than {limit:.0f} s"))
        elif ended.status < 0:
            results.append(Result(CRASH, f"{what}: killed by signal {-ended.status}"))
        else:
            raise RuntimeError(f"{name}: {ended.err}")
    return results


def judged(read: Callable[[], Made], expected: Made) -> tuple[str, str]:
    """How a read of damaged files ends, beside what it gives undamaged; it runs in a child."""
    from ltr.errors import LTRError

    try:
        made, said = heard(read)
    except LTRError as error:
        one = len(str(error).strip().splitlines()) == 1
        return (NOTICED, "") if one else (TRACEBACK, f"an error of several lines: {error}")
    except Broken as error:
        return error.outcome, str(error)
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    wrong = [name for name in {**expected, **made} if expected.get(name) != made.get(name)]
    if wrong and not said:
        return SILENT, f"another {', '.join(wrong[:4])}"
    return (NOTICED, "") if said else (HARMLESS, "")


def heard(read: Callable[[], Made]) -> tuple[Made, str]:
    """What a reader gives, and what it says meanwhile: warnings, and whatever goes to stderr."""
    words = io.StringIO()
    handler = logging.StreamHandler(words)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stderr(words):  # Python's warnings go there as well
            made = read()
    finally:
        logging.getLogger().removeHandler(handler)
    return {key: value for key, value in made.items() if key != SAID}, words.getvalue() + made.get(
        SAID, ""
    )


SAID = "said"  # the entry of a command's words of warning


class Broken(Exception):
    """A command ended in a way that is an outcome by itself."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


def _undamaged(stage: Stage, kind: Kind) -> Made:
    """What the program makes of the files as they were written; it says nothing meanwhile."""
    if kind.name not in _KEPT:
        with stage.copy_of(f"whole-{kind.name}", kind.source()) as folder:
            ended = child(lambda: json.dumps(heard(lambda: kind.read(folder))), folder)
        if ended.status != 0:
            raise RuntimeError(f"{kind.name} cannot be read undamaged: {ended.err}")
        made, said = json.loads(ended.answer)
        if said:
            raise RuntimeError(f"{kind.name} undamaged gives a warning: {said}")
        _KEPT[kind.name] = made
    return _KEPT[kind.name]


_KEPT: dict[str, Made] = {}


def _kinds(stage: Stage) -> Iterator[Kind]:
    """The kinds of files that functions read."""

    def run_of(work: Work) -> Callable[[], Path]:
        return lambda: run_folders(stage.reference(work).folder)[0]

    def undisturbed(work: Work, name: str) -> Callable[[], Path]:
        return lambda: stage.reference(work).folder / name

    def kept_model(folder: Path) -> Made:
        return parts_of(readers.of_kept_model(folder, stage.data))

    def last(folder: Path) -> Made:
        return parts_of(readers.of_checkpoint(folder / "last.pt"))

    def cache(folder: Path) -> Made:
        return parts_of(readers.of_cache(folder, stage.data))

    def results(folder: Path) -> Made:
        return parts_of(readers.of_results(folder))

    def scores(folder: Path) -> Made:
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
        def read(folder: Path) -> Made:
            return _said_by(command(folder), folder, lambda out: {"printed": out})

        return Kind(name, whole(work), tuple(files), read, share=_COMMANDS_SHARE, batch=1)

    def again(work: Work, files: Sequence[str], *, name: str = "", source: Any = None) -> Kind:
        def read(folder: Path) -> Made:
            return _said_by(work.go_on(folder), folder, lambda out: work.made(folder))

        return Kind(
            name or f"{work.name}-again",
            source or whole(work),
            tuple(files),
            read,
            share=_COMMANDS_SHARE,
            batch=1,
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


def _said_by(command: Command, folder: Path, made: Callable[[str], Made]) -> Made:
    """What a command, run in a child of this child, has made, and its words of warning.

    Raises:
        Broken: it ended in a way that is an outcome by itself.
    """
    ended = child(program(*command), folder, limit=LIMIT / 2)
    if ended.hung:
        raise Broken(HANG, f"more than {LIMIT / 2:.0f} s")
    if ended.status < 0:
        raise Broken(CRASH, f"killed by signal {-ended.status}")
    if ended.raised is not None:
        raise Broken(TRACEBACK, ended.raised)
    text = ended.out + ended.err
    words = [line for line in text.splitlines() if _WORDS.search(line)]
    if ended.status != 0:
        raise Broken(*((NOTICED, "") if words else (CRASH, f"status {ended.status}, no word")))
    return {**made(ended.out), SAID: "\n".join(words)}


def _cut(stage: Stage) -> Path:
    """A run of the network that was cut off in its middle."""
    folder = stage.root / "cut"
    if not folder.is_dir():
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
