"""Every kind of file that the project writes is damaged and read again, by function or command."""

import contextlib
import functools
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

from fire.children import LIMIT, child
from fire.commands import SAID, Broken, commands
from fire.damage import damage
from fire.kinds import Kind, kinds
from fire.outcomes import CRASH, HANG, HARMLESS, NOTICED, SILENT, TRACEBACK, Result, Subject
from fire.stage import Stage
from fire.works import Made

_LIMIT = 40.0  # seconds of a batch that takes two on an idle machine


def subjects(stage: Stage) -> list[Subject]:
    """A subject for each kind of file, then one for each command that reads several."""
    every = [*kinds(stage), *commands(stage)]
    return [
        Subject(kind.name, functools.partial(_damaged, stage, kind), kind.share) for kind in every
    ]


def _damaged(stage: Stage, kind: Kind, rng: Random) -> list[Result]:
    """Damage files of the kind, read them, compare: a batch in one child, while it lives."""
    source, expected = kind.source(), _undamaged(stage, kind)
    found = {path for name in kind.files for path in source.glob(name) if path.is_file()}
    names = sorted(path for path in found if path.stat().st_size)
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
    expected: tuple[Made, list[str]],
) -> list[Result]:
    """The results of the tries up to one that ends its child, which counts as the last of them."""
    name, limit = f"flips-{kind.name}", _LIMIT if kind.batch > 1 else LIMIT
    with stage.empty(name) as above, (above / "results").open("a+") as notes:

        def work() -> None:
            for place, seed in enumerate(seeds):
                rng = Random(seed)
                path = rng.choice(names).relative_to(source)
                with stage.copy_of(f"{name}-{place}", source) as folder:  # no path twice
                    how = damage(folder / path, rng)
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
        if not lines:
            raise RuntimeError(f"{name}: {ended.err}")
        what = lines[-1][0]
        if ended.hung:
            results.append(Result(HANG, f"{what}: more than {limit:.0f} s"))
        elif ended.status < 0:
            results.append(Result(CRASH, f"{what}: killed by signal {-ended.status}"))
        else:
            raise RuntimeError(f"{name}: {ended.err}")
    return results


def judged(read: Callable[[], Made], undamaged: tuple[Made, list[str]]) -> tuple[str, str]:
    """How a read of damaged files ends, beside what it gives undamaged; it runs in a child."""
    from ltr.errors import LTRError

    try:
        made, words = heard(read)
    except LTRError as error:
        one = len(str(error).strip().splitlines()) == 1
        return (NOTICED, "") if one else (TRACEBACK, f"an error of several lines: {error}")
    except Broken as error:
        return error.outcome, str(error)
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    expected, usual = undamaged
    said = set(words) - set(usual)
    wrong = [name for name in {**expected, **made} if expected.get(name) != made.get(name)]
    if wrong and not said:
        return SILENT, f"another {', '.join(wrong[:4])}"
    return (NOTICED, "") if said else (HARMLESS, "")


def heard(read: Callable[[], Made]) -> tuple[Made, list[str]]:
    """What a reader gives, and the lines that it says meanwhile: warnings, and all of stderr."""
    words = io.StringIO()
    handler = logging.StreamHandler(words)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stderr(words):  # Python's warnings go there as well
            made = dict(read())
    finally:
        logging.getLogger().removeHandler(handler)
    said = words.getvalue() + made.pop(SAID, "")
    return made, said.splitlines()


def _undamaged(stage: Stage, kind: Kind) -> tuple[Made, list[str]]:
    """What the program makes of the files as they were written, and says meanwhile."""
    if kind.name not in _KEPT:
        with stage.copy_of(f"whole-{kind.name}", kind.source()) as folder:
            ended = child(lambda: json.dumps(heard(lambda: kind.read(folder))), folder)
        if ended.status != 0:
            raise RuntimeError(f"{kind.name} cannot be read undamaged: {ended.err}")
        made, said = json.loads(ended.answer)
        _KEPT[kind.name] = (made, said)
    return _KEPT[kind.name]


_KEPT: dict[str, tuple[Made, list[str]]] = {}
