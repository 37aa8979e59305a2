"""Works are killed, or asked to stop, at random moments; then a user goes on."""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from fire.children import LIMIT, ROOT, Ended, child, end_orphans, program
from fire.moments import AT_IMPORT, AT_TIME, AT_WRITE, Moment
from fire.outcomes import (
    CRASH,
    HANG,
    HARMLESS,
    LEFT,
    LOST,
    SILENT,
    TRACEBACK,
    Result,
    Subject,
    worst,
)
from fire.readers import as_text
from fire.stage import Stage
from fire.works import (
    CACHE,
    LONGER_SEARCH,
    NETWORK_RUN,
    SEARCH,
    SWEEP,
    TABLE,
    TREES_RUN,
    Made,
    Work,
)

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_CLEAN: dict[int, int] = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
_IMPORTS = (30, 2500)  # of a start that are cut off at; the first lines need some of their own


def subjects(stage: Stage) -> list[Subject]:
    """A subject for each work, and one for the start of a new process."""

    def killed(work: Work) -> Subject:
        return Subject(work.name, lambda rng: [_killed(stage, work, rng)])

    works = (NETWORK_RUN, TREES_RUN, CACHE, SWEEP, SEARCH)
    start = Subject("start", lambda rng: [_killed_at_start(stage, rng)])
    return [*map(killed, works), start, killed(TABLE)]


def _killed(stage: Stage, work: Work, rng: Random) -> Result:
    """Kill ``work`` once, or twice, and go on."""
    undisturbed = stage.reference(work)
    results, moments = [], []
    with stage.empty(f"kills-{work.name}") as folder:
        command = work.begin
        for _ in range(rng.choice((1, 1, 2))):
            moment = _moment(rng, undisturbed.seconds, undisturbed.writes)
            ended = child(program(*command), folder, moment=moment)
            moments.append(str(moment))
            results.append(_stopped(ended, moment))
            command = work.go_on(folder)
        results.append(_gone_on(stage, work, folder))
    end_orphans()
    return _named(worst(results), ", then ".join(moments))


def _moment(rng: Random, seconds: float, writes: int) -> Moment:
    signum = rng.choice(_SIGNALS)
    if rng.random() < 0.6:
        return Moment(signum, AT_WRITE, rng.randint(1, max(1, writes)))
    return Moment(signum, AT_TIME, rng.uniform(0, seconds))


def _killed_at_start(stage: Stage, rng: Random) -> Result:
    """Kill a new process of ``train.py`` while it imports."""
    work = NETWORK_RUN
    moment = Moment(rng.choice(_SIGNALS), AT_IMPORT, rng.randint(*_IMPORTS))
    with stage.empty("kills-start") as folder:
        ended = _started(work, folder, moment)
        result = worst([_stopped(ended, moment), _gone_on(stage, work, folder)])
    return _named(result, str(moment))


def _started(work: Work, folder: Path, moment: Moment) -> Ended:
    script, *arguments = work.begin
    begin = Path(__file__).with_name("start.py")
    line = [
        sys.executable,
        begin,
        int(moment.signum),
        f"{moment.at:.0f}",
        ROOT / script,
        *arguments,
    ]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [str(word) for word in line], cwd=folder, stdout=out, stderr=err, start_new_session=True
        )
        hung = False
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        return Ended(process.returncode, out.read(), err.read(), "", hung, 0.0, 0)


def _stopped(ended: Ended, moment: Moment) -> Result:
    """Whether a stop was a clean one; a work may be done before it comes."""
    if ended.hung:
        return Result(HANG, f"still there {LIMIT:.0f} s after it was asked to stop")
    if ended.raised is not None:
        return Result(TRACEBACK, f"stopped with a traceback: {ended.raised}")
    if ended.status not in (0, _CLEAN[moment.signum]):
        said = (ended.err.strip().splitlines() or ["nothing"])[-1][:160]
        return Result(CRASH, f"stopped with status {ended.status}, last said: {said}")
    return Result(HARMLESS)


def _gone_on(stage: Stage, work: Work, folder: Path) -> Result:
    """Go on to the end, and compare with what nothing disturbed."""
    ended = child(program(*work.go_on(folder)), folder)
    if ended.hung:
        return Result(HANG, f"going on takes more than {LIMIT:.0f} s")
    if ended.raised is not None:
        return Result(TRACEBACK, f"going on: {ended.raised}")
    if ended.status != 0:
        said = (ended.err.strip().splitlines() or ["nothing"])[-1][:200]
        return Result(LOST, f"going on ends with {ended.status}: {said}")
    return worst([differences(stage, work, folder), leftovers(folder)])


def differences(stage: Stage, work: Work, folder: Path) -> Result:
    """What ``work`` has made in ``folder``, beside what it makes undisturbed."""
    ended = child(lambda: as_text(work.made(folder)), folder)
    if ended.status != 0:
        return Result(LOST, f"what it left cannot be read: {ended.raised}")
    made: Made = json.loads(ended.answer)
    expected = _expected(stage, work)
    if work is SEARCH:  # a trial cut off takes a number: later trials draw as later ones do
        count = {name: expected.pop(name) for name in list(expected) if name.startswith("trials")}
        own = {name: made.pop(name) for name in count}
        wrong = [name for name in made if made[name] != expected.get(name)]
        short = [name for name, value in own.items() if value != "3"]
        wrong += [f"{name}: {own[name]} of 3" for name in short]
    else:
        wrong = [name for name in {**expected, **made} if made.get(name) != expected.get(name)]
    if not wrong:
        return Result(HARMLESS)
    only_history = all(name.endswith("history.csv") for name in wrong)
    said = f"differs from the run never stopped: {', '.join(wrong[:4])}"
    return Result(LOST if only_history else SILENT, said)


def _expected(stage: Stage, work: Work) -> Made:
    """What ``work`` makes undisturbed; of a search the trials of a longer one."""
    if work.name not in _KEPT:
        whole = LONGER_SEARCH if work is SEARCH else work
        folder = stage.reference(whole).folder
        ended = child(lambda: as_text(whole.made(folder)), folder)
        if ended.status != 0:
            raise RuntimeError(f"{work.name}: {ended.err}")
        _KEPT[work.name] = json.loads(ended.answer)
    return dict(_KEPT[work.name])


_KEPT: dict[str, Made] = {}


def leftovers(folder: Path) -> Result:
    """Parts of files, and locks that are held, that a work which is done leaves behind."""
    parts = [
        str(path.relative_to(folder))
        for path in sorted(parts_under(folder))
        if not _begun(path, folder)
    ]
    parts += [f"{name}, held" for name in _held(folder)]
    return Result(LEFT, f"left behind: {', '.join(parts[:4])}") if parts else Result(HARMLESS)


def parts_under(folder: Path) -> set[Path]:
    """Parts of files, by the name that ``ltr.whole`` gives them, or any other that tells of one."""
    return {
        path
        for path in folder.rglob("*")
        if path.name.startswith(".part-") or path.suffix in (".part", ".tmp")
    }


def _begun(path: Path, folder: Path) -> bool:
    """Whether it lies in a run folder that was begun and given up, since it had no checkpoint."""
    runs = [above for above in path.parents if (above / ".hydra").is_dir()]
    return bool(runs) and not (runs[0] / "results.json").is_file()


def _held(folder: Path) -> list[str]:
    from filelock import FileLock, Timeout

    held = []
    for path in folder.rglob("*.lock"):
        try:
            FileLock(path, timeout=0).acquire().lock.release()
        except Timeout:
            held.append(str(path.relative_to(folder)))
    return held


def _named(result: Result, moments: str) -> Result:
    return Result(result.outcome, f"{moments}: {result.detail}" if result.detail else "")
