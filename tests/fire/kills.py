"""Works are killed, or asked to stop, at random moments; then a user goes on."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from filelock import FileLock, Timeout

from fire import works
from fire.children import Ended, Moment, child
from fire.works import Result, Stage, Subject, Work, different, trees

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_CLEAN: dict[int, int] = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}


def subjects(stage: Stage) -> Iterator[Subject]:
    """A subject for each work."""
    of_runs = (works.NETWORK, trees("lightgbm"), works.SWEEP, works.SEARCH, works.TABLE)
    for work in (*of_runs, works.CACHE):
        yield Subject("kills", work.name, partial(_killed, stage, work))


def _killed(stage: Stage, work: Work, rng: Random) -> Result:
    """Kill ``work`` once, or twice, and go on."""
    stage.undisturbed(work)
    seconds, writes = stage.spans[work.name]
    moments = []
    with stage.empty(f"kills-{work.name}-{rng.getrandbits(32)}") as folder:
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
