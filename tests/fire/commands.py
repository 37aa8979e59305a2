"""The commands that read files which may be damaged, each as a kind of several files."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fire.children import LIMIT, child, program
from fire.kinds import Kind
from fire.outcomes import CRASH, HANG, NOTICED, TRACEBACK
from fire.stage import Stage
from fire.works import LISTS, NETWORK_RUN, SEARCH, SWEEP, TABLE, Command, Made, Work, run_folders

SAID = "said"  # the entry of a command's words of warning
_COMMANDS_SHARE = 0.05  # of the tries: a command takes some ten times a function
_WORDS = re.compile(
    r"error|warning|damaged|failed|cannot|ignored|changed|anew|made again|note:", re.I
)


class Broken(Exception):
    """A command ended in a way that is an outcome by itself."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


def commands(stage: Stage) -> Iterator[Kind]:
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
    of_cut = ("out/*/last.pt", "out/*/best.pt", "out/*/.hydra/*", "out/*/history.csv", *of_cache)
    yield again(NETWORK_RUN, of_cut, name="train.py-resume", source=stage.cut_off)
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
