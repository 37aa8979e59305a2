"""Every kind of file that the project writes is damaged and read again, by function or command."""

import contextlib
import io
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from fire import works
from fire.children import LIMIT, Ended, child, program
from fire.works import Command, Made, Result, Stage, Subject, Work, fingerprints, run_folders

_LIMIT = 60.0  # seconds of a batch that takes two on an idle machine
_WORDS = re.compile(
    r"error|warning|damaged|failed|cannot|ignored|changed|anew|made again|other code|note:", re.I
)


class Kind(NamedTuple):
    """A kind of file and how it is read."""

    name: str
    source: Callable[[], Path]  # the folder that holds it, undamaged
    files: tuple[str, ...]  # patterns of the files of this kind in that folder
    read: Callable[[Path], tuple[Made, str]]  # what is made of the folder, and said meanwhile
    batch: int = 20  # tries in one child


def subjects(stage: Stage) -> list[Subject]:
    """A subject for each kind of file, then one for each command that reads several."""
    return [
        Subject("flips", kind.name, partial(_damaged, stage, kind))
        for kind in (*_kinds(stage), *_commands(stage))
    ]


def _kinds(stage: Stage) -> Iterator[Kind]:
    """The kinds of files that functions read."""

    def kind(name: str, source: Callable[[], Path], read: Callable[[Path], Any], file: str) -> Kind:
        return Kind(name, source, (file,), lambda folder: heard(lambda: fingerprints(read(folder))))

    def run_of(work: Work) -> Callable[[], Path]:
        return lambda: run_folders(stage.undisturbed(work)[0])[0]

    def scores_of_model(folder: Path) -> Any:
        import ltr

        features = np.random.default_rng(0).normal(size=(40, 5))
        return ltr.Ranker.load(folder, device="cpu").predict(features, qid=np.arange(40) // 5)

    def checkpoint(folder: Path) -> Any:
        from ltr.training.checkpoint import load_checkpoint

        return load_checkpoint(folder / "last.pt")

    def lists(folder: Path) -> Any:
        from ltr.data.files import LetorFiles

        files = LetorFiles(name="letor", folder="mine", data_dir=stage.data, cache_dir=folder)
        of_split = {split: files.split(split) for split in ("train", "vali", "test")}
        names = ("features", "labels", "offsets", "qids")
        return {
            split: {name: np.array(getattr(one, name)) for name in names} | {"digest": one.digest}
            for split, one in of_split.items()
        }

    def results(folder: Path) -> Any:
        from ltr.experiment.run_folder import find_runs

        ((run,), _) = find_runs([str(folder)])
        queries = {str(name): run.queries[name].to_numpy() for name in run.queries.columns}
        return {"results": run.results, "queries": queries}

    def scores(folder: Path) -> Any:
        from ltr.analysis.scores_file import read_scores

        text = (stage.data / "mine" / "test.txt").read_text()
        qids = [line.split()[1].removeprefix("qid:") for line in text.splitlines()]
        return read_scores(folder / "scores.csv", qids, "test.txt")

    libraries = filter(find_spec, ("lightgbm", "xgboost", "catboost"))
    for work in (works.NETWORK, *map(works.trees, libraries)):
        yield kind(f"best.pt-{work.name}", run_of(work), scores_of_model, "best.pt")
        yield kind(f"last.pt-{work.name}", run_of(work), checkpoint, "last.pt")
    for name in ("features.npy", "labels.npy", "offsets.npy", "qids.npy", "meta.json"):
        cache = lambda: stage.undisturbed(works.NETWORK)[0] / "cache"  # noqa: E731
        yield kind(name, cache, lists, f"*/{name}")
    for name, read in (("results.json", results), ("queries.csv", results), ("scores.csv", scores)):
        yield kind(name, run_of(works.NETWORK), read, name)


def _commands(stage: Stage) -> Iterator[Kind]:
    """The commands that read several kinds of files; each try damages one of them."""
    of_run = ("**/best.pt", "**/last.pt", "**/results.json", "**/queries.csv", "**/scores.csv",
              "**/history.csv", "**/identity.txt", "**/.hydra/*.yaml")  # fmt: skip
    of_cache = ("cache/*/*",)

    def kind(name: str, work: Work, files: tuple[str, ...], command: Any = None) -> Kind:
        """Read by ``command``, which prints what counts; None: go on, and see what was made."""

        def read(folder: Path) -> tuple[Made, str]:
            ended = _ended(command(folder) if command else work.go_on(folder), folder)
            lines = (ended.out + ended.err).splitlines()
            made = {"printed": ended.out} if command else work.made(folder)
            return made, "\n".join(filter(_WORDS.search, lines))

        return Kind(name, lambda: stage.undisturbed(work)[0], files, read, batch=1)

    def evaluation(folder: Path) -> Command:
        run = run_folders(folder)[0].relative_to(folder)
        return ("scripts/evaluate.py", f"checkpoint={run}", *works.LISTS[2:], "threads=1")

    yield kind("evaluate.py", works.NETWORK, ("out/*/*.pt", *of_cache), evaluation)
    resumed = kind("train.py-resume", works.NETWORK, (*of_run, *of_cache))
    yield resumed._replace(source=stage.cut_off)
    comparison = ("scripts/compare.py", "out/two", "samples=200")
    yield kind("compare.py", works.SWEEP, of_run, lambda _: comparison)
    yield kind("sweep-again", works.SWEEP, (*of_run, *of_cache, "out/two/*.*"))
    of_search = ("out/search/mine/*", "out/experiment/*", "out/**/code.txt", *of_cache)
    yield kind("search-again", works.SEARCH, of_search)
    yield kind("table-again", works.TABLE, (*of_run, "out/tables/*/*", *of_cache))


class Broken(Exception):
    """A command ended in a way that is an outcome by itself: its two arguments."""


def _ended(command: Command, folder: Path) -> Ended:
    """How a command, run in a child of this child, ends well."""
    ended = child(program(*command), folder, limit=LIMIT / 2)
    if ended.raised is not None:
        raise Broken("traceback", ended.raised)
    if ended.status and ended.status > 0 and _WORDS.search(ended.out + ended.err):
        raise Broken("noticed", "")
    if ended.status != 0:
        raise Broken("crash", f"status {ended.status}, last said: {ended.last_line}")
    return ended


def _damaged(stage: Stage, kind: Kind, rng: Random) -> list[Result]:
    """Damage files of the kind, read them, compare: a batch in one child, while it lives."""
    source, number = kind.source(), rng.getrandbits(32)
    paths = {path for name in kind.files for path in source.glob(name) if path.is_file()}
    names = sorted(path.relative_to(source) for path in paths if path.stat().st_size)
    results: list[Result] = []
    with stage.empty(f"flips-{kind.name}-{number}") as above, (above / "log").open("a+") as log:

        def copied(place: str) -> Path:  # no path twice
            return Path(shutil.copytree(source, above / place, symlinks=True))

        def work() -> None:
            undamaged = kind.read(copied("whole"))
            for place in range(kind.batch):
                folder, name = copied(str(place)), rng.choice(names)
                log.write(json.dumps([f"{name}, {damage(folder / name, rng)}"]) + "\n")
                log.flush()
                log.write(json.dumps(judged(lambda: kind.read(folder), undamaged)) + "\n")  # noqa: B023
                log.flush()
                shutil.rmtree(folder)

        ended = child(work, above, limit=_LIMIT if kind.batch > 1 else 2 * LIMIT)
        log.seek(0)
        lines = [json.loads(line) for line in log]
    for (what,), (outcome, detail) in zip(lines[::2], lines[1::2], strict=False):
        results.append(Result(outcome, f"{what}: {detail}" if detail else ""))
    if len(lines) % 2 and (ended.status is None or ended.status < 0):
        return [*results, Result("crash", f"{lines[-1][0]}: status {ended.status}")]
    if ended.status != 0:
        raise RuntimeError(f"{kind.name}: {ended.err}")
    return results


def damage(path: Path, rng: Random) -> str:
    """Damage a file, three of four times by a bit, else by a cut; say how."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    if rng.random() < 0.75:
        bit = rng.randrange(8)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        return f"bit {bit} of byte {place}"
    path.write_bytes(content[:place])
    return f"cut to {place} of {len(content)} bytes"


def judged(read: Callable[[], tuple[Made, str]], undamaged: tuple[Made, str]) -> Result:
    """How a read of damaged files ends, beside what it gives undamaged; it runs in a child."""
    from ltr.errors import LTRError

    try:
        made, words = read()
    except LTRError as error:
        one = "\n" not in str(error).strip()
        return Result("noticed") if one else Result("traceback", f"several lines: {error}")
    except Broken as error:
        return Result(*error.args)
    except Exception as error:
        return Result("traceback", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
    expected, usual = undamaged
    said = {*words.splitlines()} - {*usual.splitlines()}
    wrong = [name for name in {**expected, **made} if expected.get(name) != made.get(name)]
    if wrong and not said:
        return Result("silent", f"another {', '.join(wrong[:4])}")
    return Result("noticed" if said else "harmless")


def heard(read: Callable[[], Made]) -> tuple[Made, str]:
    """What a reader gives, and the lines that it says meanwhile: warnings, and all of stderr."""
    words = io.StringIO()
    handler = logging.StreamHandler(words)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stderr(words):  # Python's warnings go there as well
            return read(), words.getvalue()
    finally:
        logging.getLogger().removeHandler(handler)
