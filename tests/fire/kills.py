"""Works are killed, or asked to stop, at random moments; then a user goes on."""

import os
import signal
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from random import Random

from filelock import FileLock, Timeout

from fire import works
from fire.children import Ended, Moment, child, program
from fire.works import Made, Result, Stage, Subject, Work, trees, worst

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_CLEAN: dict[int, int] = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}


def subjects(stage: Stage) -> list[Subject]:
    """A subject for each work."""
    of_runs = (works.NETWORK, trees("lightgbm"), works.SWEEP, works.SEARCH, works.TABLE)
    every = (*of_runs, works.CACHE)
    return [Subject("kills", work.name, partial(_killed, stage, work)) for work in every]


def _killed(stage: Stage, work: Work, rng: Random) -> list[Result]:
    """Kill ``work`` once, or twice, and go on."""
    _, ended = stage.undisturbed(work)
    results, moments, children = [], [], []
    with stage.empty(f"kills-{work.name}-{rng.getrandbits(32)}") as folder:
        command = work.begin
        for _ in range(rng.choice((1, 1, 2))):
            moment = _moment(rng, ended.seconds, ended.writes)
            moments.append(str(moment))
            children.append(child(program(*command), folder, moment))
            results.append(stopped(children[-1], moment.signum))
            command = work.go_on(folder)
        results.append(_gone_on(stage, work, folder))
    for one in children:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)  # a run that outlived its table
    outcome, detail = worst(results)
    return [Result(outcome, f"{', then '.join(moments)}: {detail}" if detail else "")]


def _moment(rng: Random, seconds: float, writes: int) -> Moment:
    signum = rng.choice(_SIGNALS)
    if rng.random() < 0.6:
        return Moment(signum, "write", rng.randint(1, max(1, writes)))
    return Moment(signum, "seconds", rng.uniform(0, seconds))


def stopped(ended: Ended, signum: int) -> Result:
    """Whether a stop was a clean one; a work may be done before it comes."""
    if ended.raised is not None:
        return Result("traceback", f"stopped with a traceback: {ended.raised}")
    if ended.status not in (0, _CLEAN[signum]):
        return Result("crash", f"stopped with status {ended.status}, last said: {ended.last_line}")
    return Result("harmless")


def _gone_on(stage: Stage, work: Work, folder: Path) -> Result:
    """Go on to the end, and compare with what nothing disturbed."""
    ended = child(program(*work.go_on(folder)), folder)
    if ended.raised is not None:
        return Result("traceback", f"going on: {ended.raised}")
    if ended.status != 0:
        return Result("lost", f"going on ends with {ended.status}: {ended.last_line}")
    return worst([_differences(stage, work, folder), leftovers(folder)])


def _differences(stage: Stage, work: Work, folder: Path) -> Result:
    """What ``work`` has made in ``folder``, beside what it makes undisturbed."""
    made, expected = work.made(folder), _expected(stage, work)
    if work is works.SEARCH:  # what it draws after a trial that was cut off may be other settings
        counts = {name: made[name] for name in made if name.startswith("trials")}
        expected = {**expected, **dict.fromkeys(counts, "3")}
        wrong = [name for name in made if made[name] != expected.get(name, made[name])]
    else:
        wrong = [name for name in {**expected, **made} if made.get(name) != expected.get(name)]
    if not wrong:
        return Result("harmless")
    only_history = all(name.endswith("history.csv") for name in wrong)
    detail = f"differs from the run never stopped: {', '.join(wrong[:4])}"
    return Result("lost" if only_history else "silent", detail)


@cache
def _expected(stage: Stage, work: Work) -> Made:
    """What ``work`` makes undisturbed; of a search the trials of a longer one."""
    whole = works.LONGER_SEARCH if work is works.SEARCH else work
    return whole.made(stage.undisturbed(whole)[0])


def leftovers(folder: Path) -> Result:
    """Parts of files, and locks that are held, that a work which is done leaves behind."""
    parts = [*folder.rglob(".part-*"), *folder.rglob("*.part"), *folder.rglob("*.tmp")]
    left = [path.relative_to(folder) for path in parts if not _given_up(path)]
    left += [path.relative_to(folder) for path in folder.rglob("*.lock") if _is_held(path)]
    detail = f"left behind: {', '.join(map(str, left[:4]))}"
    return Result("left", detail) if left else Result("harmless")


def _given_up(path: Path) -> bool:
    """Whether it lies in a run folder that was begun and given up, since it had no checkpoint."""
    runs = [above for above in path.parents if (above / ".hydra").is_dir()]
    return bool(runs) and not (runs[0] / "results.json").is_file()


def _is_held(path: Path) -> bool:
    try:
        FileLock(path, timeout=0).acquire().lock.release()
    except Timeout:
        return True
    return False
