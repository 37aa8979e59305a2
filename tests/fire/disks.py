"""Works on disks that fill up: on a tmpfs of a random size, or under a limit of a file's size."""

import ctypes
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fire import readers
from fire.children import LIMIT, Ended, child, end_orphans, program
from fire.kills import differences, leftovers, parts_under
from fire.outcomes import (
    CRASH,
    HANG,
    HARMLESS,
    LEFT,
    LOST,
    NOTICED,
    TRACEBACK,
    Result,
    Subject,
    worst,
)
from fire.stage import Stage, refill
from fire.works import (
    CACHE,
    LISTS,
    NETWORK_RUN,
    SEARCH,
    SWEEP,
    TABLE,
    TREES_RUN,
    Command,
    Made,
    Work,
    run_folders,
)

_NEW_NAMESPACE, _REC_PRIVATE, _REMOUNT = 0x20000, 0x44000, 32
_LARGE = 64 << 20
_PAGE = 4096
_SEVERAL = {"sweep", "table", "search"}  # works of several runs: the others go on, status 1 counts


@dataclass(frozen=True)
class Case:
    """A work and what lies on its disk before it begins.

    Attributes:
        name: of the subject.
        work: its command, how to go on, what it makes.
        source: the folder that is there already; None: an empty one.
    """

    name: str
    work: Work
    source: Callable[[], Path] | None = None


def subjects(stage: Stage) -> list[Subject]:
    """A subject for each work that writes."""
    mounts = _own_namespace()
    return [
        Subject(case.name, lambda rng, case=case: [_filled(stage, case, mounts, rng)])  # type: ignore[misc]
        for case in _cases(stage)
    ]


def _cases(stage: Stage) -> Iterator[Case]:
    def network() -> Path:
        return stage.reference(NETWORK_RUN).folder

    yield Case("training", NETWORK_RUN)
    yield Case("resume", NETWORK_RUN, stage.cut_off)
    yield Case("trees", TREES_RUN)
    yield Case("cache", CACHE)
    yield Case("predict", _writing(stage, "predict"), network)
    yield Case("evaluate", _writing(stage, "evaluate"), network)
    yield Case("sweep", SWEEP)
    yield Case("search", SEARCH)
    yield Case("table", TABLE)


def _writing(stage: Stage, name: str) -> Work:
    """``predict`` or ``evaluate`` with an output, of a run that is there."""
    own = {"predict": ("input=data/mine/train.txt",), "evaluate": ("split=train",)}[name]

    def command(folder: Path) -> Command:
        run = run_folders(folder)[0].relative_to(folder)
        places = LISTS[2:] if name == "evaluate" else ()
        return (
            f"scripts/{name}.py",
            f"checkpoint={run}",
            *own,
            *places,
            "output=output.csv",
            "threads=1",
        )

    def made(folder: Path) -> Made:
        return {"output.csv": (folder / "output.csv").read_text()}

    return Work(name, (), command, made)


def _filled(stage: Stage, case: Case, mounts: bool, rng: Random) -> Result:
    """Do a work on a disk without space enough, see what it left, go on with space."""
    expected = _expected(stage, case)
    share = rng.uniform(0.02, 1.0)
    with stage.empty(f"disks-{case.name}") as place, _disk(place, mounts) as folder:
        if case.source is None:
            (folder / "data").symlink_to(stage.data)
        else:
            refill(folder, case.source())
        growth = max(expected.pages - _pages(folder), 2 * expected.largest)
        size = _used(folder) + int(share * growth)
        if mounts:
            _limit(folder, size)
            room = f"a disk of {size} bytes"
        else:
            room = f"files of at most {int(share * expected.largest)} bytes"
        command = case.work.begin if case.source is None else case.work.go_on(folder)
        parts = parts_under(folder)
        had = run_folders(folder)
        ended = child(
            program(*command),
            folder,
            file_size=None if mounts else max(512, int(share * expected.largest)),
        )
        results = [_stopped(ended, several=case.name in _SEVERAL)]
        results += [_loadable(run) for run in {*had, *run_folders(folder)}]
        results.append(_given_back(folder, parts))
        if mounts:
            _limit(folder, _LARGE)
        results.append(_gone_on(stage, case, expected, folder))
        end_orphans()
    result = worst(results)
    return Result(result.outcome, f"{room}: {result.detail}" if result.detail else "")


@dataclass(frozen=True)
class Expected:
    """What a case makes with space enough."""

    pages: int
    largest: int
    made: Made


def _expected(stage: Stage, case: Case) -> Expected:
    if case.name not in _KEPT:
        if case.work.begin:
            folder = stage.reference(case.work).folder
            _KEPT[case.name] = Expected(_pages(folder), _largest(folder), {})
        else:
            with stage.copy_of(f"whole-{case.name}", case.source()) as folder:  # type: ignore[misc]
                ended = child(program(*case.work.go_on(folder)), folder)
                if ended.status != 0:
                    raise RuntimeError(f"{case.name}: {ended.err}")
                made = case.work.made(folder)
                _KEPT[case.name] = Expected(_pages(folder), len(made["output.csv"]), made)
    return _KEPT[case.name]


_KEPT: dict[str, Expected] = {}


def _stopped(ended: Ended, *, several: bool) -> Result:
    """A work ends well, or in one line and status 2; of several runs some may have failed."""
    if ended.hung:
        return Result(HANG, f"more than {LIMIT:.0f} s")
    if ended.raised is not None:
        return Result(TRACEBACK, ended.raised)
    if ended.status == 0:
        return Result(HARMLESS)
    lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if (ended.status == 2 and len(lines) == 1) or (several and ended.status in (1, 2)):
        return Result(NOTICED)
    said = (ended.err.strip().splitlines() or ["nothing"])[-1][:160]
    return Result(CRASH, f"status {ended.status}, {len(lines)} lines of error, last said: {said}")


def _loadable(run: Path) -> Result:
    """The last checkpoint is whole, whatever was written after it."""

    def work() -> str:
        readers.of_checkpoint(run / "last.pt")
        return ""

    ended = child(work, run)
    if ended.status == 0:
        return Result(HARMLESS)
    return Result(LOST, f"{run.name}/last.pt cannot be loaded: {ended.raised}")


def _given_back(folder: Path, before: set[Path]) -> Result:
    """Whether the space of what was begun and not finished is free again, in any folder."""
    parts = [str(path.relative_to(folder)) for path in sorted(parts_under(folder) - before)]
    if not parts:
        return Result(HARMLESS)
    return Result(LEFT, f"left on the full disk: {', '.join(parts[:3])}")


def _gone_on(stage: Stage, case: Case, expected: Expected, folder: Path) -> Result:
    ended = child(program(*case.work.go_on(folder)), folder)
    if ended.hung:
        return Result(HANG, f"going on takes more than {LIMIT:.0f} s")
    if ended.status != 0:
        said = ended.raised or (ended.err.strip().splitlines() or ["nothing"])[-1][:200]
        return Result(LOST, f"with space again it ends with {ended.status}: {said}")
    if case.work.begin:
        return worst([differences(stage, case.work, folder), leftovers(folder)])
    same = case.work.made(folder) == expected.made
    return leftovers(folder) if same else Result(LOST, "with space again its output is another")


def _pages(folder: Path) -> int:
    """Bytes that a tmpfs needs for a folder, in whole pages."""
    return sum(
        -(-path.lstat().st_size // _PAGE) * _PAGE
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def _used(folder: Path) -> int:
    """Bytes that are taken on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_frsize * (disk.f_blocks - disk.f_bfree)


def _largest(folder: Path) -> int:
    return max(p.lstat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _own_namespace() -> bool:
    """Whether this process may mount; what it mounts is seen by it and its children only."""
    if os.geteuid() != 0 or not Path("/proc/self/ns/mnt").exists():
        return False
    libc = _libc()
    return (
        libc.unshare(_NEW_NAMESPACE) == 0
        and libc.mount(b"none", b"/", None, _REC_PRIVATE, None) == 0
    )


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def _disk(place: Path, mounts: bool) -> Iterator[Path]:
    """An empty disk of its own in ``place``; a plain folder where nothing may be mounted."""
    folder = place / "disk"
    folder.mkdir()
    if not mounts:
        yield folder
        shutil.rmtree(folder)
        return
    if _libc().mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={_LARGE}".encode()) != 0:
        raise OSError(ctypes.get_errno(), f"tmpfs cannot be mounted on {folder}")
    try:
        yield folder
    finally:
        _libc().umount2(os.fsencode(folder), 2)  # what still runs there keeps it until it ends


def _limit(folder: Path, size: int) -> None:
    """Make the disk this large; it may be full at once."""
    options = f"size={-(-size // _PAGE) * _PAGE}".encode()
    if _libc().mount(b"tmpfs", os.fsencode(folder), b"tmpfs", _REMOUNT, options) != 0:
        raise OSError(ctypes.get_errno(), f"the disk cannot be made {size} bytes")
