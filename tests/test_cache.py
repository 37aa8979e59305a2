"""The cache: whole entries or none, whoever is killed, fails or comes at the same time."""

import hashlib
import itertools
import logging
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
from filelock import FileLock
from folders import refused, write_folder

from ltr.data import cache
from ltr.data.assemble import Block, assemble
from ltr.data.cache import cached_lists, file_digest, sealed, unsealed
from ltr.data.lists import Lists

FEATURES = np.arange(60, dtype=np.float32).reshape(20, 3)
LABELS = np.arange(20, dtype=np.float32) % 3
OFFSETS = np.array([0, 1, 5, 20])
QIDS = np.array(["a", "bé", "last one"])
PLACES = np.repeat(np.arange(3), np.diff(OFFSETS))


def blocks(*ends: int) -> Iterator[Block]:
    for start, end in itertools.pairwise(ends):
        rows = slice(start, end)
        yield Block(FEATURES[rows], LABELS[rows], QIDS.tolist(), PLACES[rows], missing=end // 7)


def build(file: Path) -> Lists:
    return assemble(blocks(0, 7, 7, 20), file, digest="d" * 64)


def never(file: Path) -> Lists:
    raise AssertionError("the entry is there: it need not be built")


def assert_built(lists: Lists) -> None:
    assert np.array_equal(lists.features, FEATURES)
    assert np.array_equal(lists.labels, LABELS)
    assert np.array_equal(lists.offsets, OFFSETS)
    assert np.array_equal(lists.qids, QIDS)
    assert (lists.digest, lists.missing) == ("d" * 64, 3)


def settle(path: Path, monkeypatch) -> None:
    """Let the file's times be long past, as far as the cache can tell."""
    monkeypatch.setattr(cache.time, "time_ns", lambda: path.stat().st_ctime_ns + 10**10)


def entries(cache_dir: Path) -> list[str]:
    return sorted(path.name for path in cache_dir.iterdir() if path.suffix != ".lock")


def test_built_once_then_mapped(tmp_path) -> None:
    folder = tmp_path / "new" / "cache"
    assert_built(cached_lists(folder, "a key: 1", build))
    assert_built(lists := cached_lists(folder, "a key: 1", never))
    for array in (lists.features, lists.labels):
        assert isinstance(array.base, np.memmap)
        assert (array.flags.writeable, array.flags.c_contiguous) == (False, True)
    assert [x.dtype for x in (lists.features, lists.labels, lists.offsets)] == ["f4", "f4", "i8"]
    assert_built(cached_lists(folder, "a key: 2", build))
    assert len(entries(folder)) == 2


def test_width_found_late_and_rows_put_in_order(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ltr.data.assemble._AT_ONCE", 4)
    rows = np.array([[1, 1, 0, 0, 0]] * 4 + [[2, 2, 2, 2, 2]] * 3 + [[3, 0, 0, 0, 0]] * 3)

    def widening(file: Path | None, *qids: str) -> Lists:
        parts = [Block(rows[:4, :2], np.zeros(4), qids, np.array([0, 1, 1, 0])),
                 Block(rows[4:7], np.ones(3), qids, np.array([1, 1, 1])),
                 Block(rows[7:, :1], np.full(3, 2), qids, np.array([1, 0, 1]))]  # fmt: skip
        return assemble(parts, file)

    order = [0, 3, 8, 1, 2, 4, 5, 6, 7, 9]
    cached = cached_lists(tmp_path, "ordered", lambda file: widening(file, "a", "b"))
    for lists in (widening(None, "a", "b"), cached):
        assert lists.features.tolist() == rows[order].tolist()
        assert lists.labels.tolist() == np.array([0] * 4 + [1] * 3 + [2] * 3)[order].tolist()
        assert lists.rows.tolist() == order
        assert lists.lengths.tolist() == [3, 7]
    files = ["features.npy", "labels.npy", "meta.json", "offsets.npy", "qids.npy", "rows.npy"]
    assert entries(tmp_path / entries(tmp_path)[0]) == files
    wide = cached_lists(tmp_path, "wide", lambda file: widening(file, "a", "a"))
    assert wide.features.tolist() == rows.tolist()


def test_an_interrupted_or_wrong_build_leaves_nothing(tmp_path) -> None:
    def ended(error: type[BaseException]) -> Iterator[Block]:
        yield from blocks(0, 20)
        raise error

    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error):
            cached_lists(tmp_path, "k", lambda file, error=error: assemble(ended(error), file))
        assert entries(tmp_path) == []
    assert_built(cached_lists(tmp_path, "k", build))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("fails", ["features.npy", "labels.npy", "meta.json"])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, fails) -> None:
    plain, full = Path.open, Path("/dev/full")

    def opened(self, mode="r", *args) -> Any:
        return plain(full if self.name == fails and mode == "wb" else self, mode, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        message = refused(lambda: cached_lists(tmp_path, "k", build))
    assert message.startswith(f"cannot write the cache {tmp_path}: No space left on device; free")
    assert entries(tmp_path) == []
    assert_built(cached_lists(tmp_path, "k", build))


def edit(entry: Path, **changes) -> None:
    meta = unsealed((entry / "meta.json").read_bytes())
    (entry / "meta.json").write_text(sealed({**meta, **changes}))


DAMAGE = {
    "another version": lambda entry: edit(entry, version=99),
    "another key": lambda entry: edit(entry, key="other"),
    "no labels": lambda entry: (entry / "labels.npy").unlink(),
    "features cut": lambda entry: os.truncate(entry / "features.npy", 300),
}


@pytest.mark.parametrize("how", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_entry_is_built_again(tmp_path, caplog, how) -> None:
    cached_lists(tmp_path, "k", build)
    (entry,) = (tmp_path / name for name in entries(tmp_path))
    how(entry)
    with caplog.at_level(logging.WARNING):
        assert_built(cached_lists(tmp_path, "k", build))
    assert caplog.messages == [f"the cache entry {entry} was damaged or outdated and is made again"]
    assert_built(cached_lists(tmp_path, "k", never))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["features", "labels", "offsets", "qids", "meta"])
def test_no_flipped_bit_is_used(tmp_path, name) -> None:
    cached_lists(tmp_path, "k", build)
    (entry,) = (tmp_path / name for name in entries(tmp_path))
    path = entry / ("meta.json" if name == "meta" else f"{name}.npy")
    sound = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in range(0, len(sound), 4):
        content = bytearray(sound)
        content[at] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        assert cache._open(entry, "k") is None


def test_arrays_are_checked_once_by_a_process(tmp_path, monkeypatch) -> None:
    cached_lists(tmp_path, "k", build)
    (entry,) = (tmp_path / name for name in entries(tmp_path))
    settle(entry / "features.npy", monkeypatch)
    read, real = [], cache._hash
    monkeypatch.setattr(cache, "_hash", lambda path: read.append(path.name) or real(path))
    cache._checked.clear()
    for expected in (1, 0):
        read.clear()
        assert_built(cached_lists(tmp_path, "k", never))
        assert read.count("features.npy") == expected
    with (entry / "features.npy").open("r+b") as file:
        file.seek(140)
        file.write(b"?")
    with pytest.raises(AssertionError):
        cached_lists(tmp_path, "k", never)


# Other processes.

WRITER = """
import sys, time
import numpy as np
from pathlib import Path
from ltr.data.assemble import Block, assemble
from ltr.data.cache import cached_lists

folder, key, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])

def blocks():
    with (folder.parent / "builds").open("a") as log:
        log.write(key + "\\n")
    for i in range(20):
        yield Block(np.full((50, 30), i), np.full(50, i), [str(i)], np.zeros(50, int))
        time.sleep(pause)

print("begin", flush=True)
lists = cached_lists(folder, key, lambda file: assemble(blocks(), file, digest="d"))
print(float(lists.features.sum()), len(lists), flush=True)
"""
WHOLE = f"{sum(range(20)) * 50 * 30.0} 20"


def writer(folder: Path, key: str, pause: float) -> processes.Process:
    process = processes.start(WRITER, str(folder), key, str(pause))
    assert process.stdout.readline() == "begin\n"
    return process


def finished(process: processes.Process) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.strip()


@pytest.mark.slow
def test_two_processes_build_one_entry(tmp_path) -> None:
    cache_dir = tmp_path / "cache"
    writers = [writer(cache_dir, "k", 0.02) for _ in range(2)]
    assert [finished(process) for process in writers] == [WHOLE] * 2
    assert (tmp_path / "builds").read_text() == "k\n"
    assert len(entries(cache_dir)) == 1


@pytest.mark.slow
def test_killed_writers_leave_a_usable_cache(tmp_path) -> None:
    cache_dir, rng, seen = tmp_path / "cache", random.Random(0), set()
    for _ in range(6):
        process = writer(cache_dir, "k", 0.005)
        time.sleep(rng.uniform(0, 0.12))
        process.kill()
        process.communicate()
        left = entries(cache_dir) if cache_dir.exists() else []
        seen |= {Path(name).suffix for name in left}
        assert len([name for name in left if not name.endswith(".tmp")]) <= 1
    assert ".tmp" in seen  # else nobody was killed in the middle
    assert finished(writer(cache_dir, "k", 0)) == WHOLE
    assert [name for name in entries(cache_dir) if name.endswith(".tmp")] == []


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path) -> None:
    whole, dead, alive = (f"{name}-0123456789abcdef" for name in ("whole", "dead", "alive"))
    theirs = {"thesis.tmp/text": "a", "thesis.lock": "b", f"{whole}/x.npy": "whole"}
    half = {f"{name}.tmp/features.npy": "half" for name in (dead, alive)}
    write_folder(tmp_path, theirs | half)
    with FileLock(tmp_path / f"{alive}.lock"):
        cached_lists(tmp_path, "k", build)
        assert not (tmp_path / f"{dead}.tmp").exists()
        assert (tmp_path / f"{alive}.tmp" / "features.npy").read_text() == "half"
    cached_lists(tmp_path, "l", build)
    assert [name for name in entries(tmp_path) if name.endswith(".tmp")] == ["thesis.tmp"]
    assert {name: (tmp_path / name).read_text() for name in theirs} == theirs


# Digests of files.


@pytest.fixture
def path(tmp_path) -> Path:
    (path := tmp_path / "train.txt").write_text("abc")
    return path


def test_a_file_is_hashed_once_unless_it_is_young_or_changed(path, tmp_path, monkeypatch) -> None:
    hashed, plain = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *given: hashed.append(1) or plain(*given))
    known = hashlib.sha256(b"abc").hexdigest()
    for times in (1, 2, 3, 3):
        if times == 3:
            settle(path, monkeypatch)
        assert file_digest(path, tmp_path / "cache") == known
        assert len(hashed) == times
    (tmp_path / "file").write_text("where the folder of the cache should be")
    assert file_digest(path, tmp_path / "file") == known
    before = path.stat()
    time.sleep(0.02)  # the clock of the file system ticks
    path.write_text("abd")  # the same size, and the old time put back
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert file_digest(path, tmp_path / "cache") != known


def test_a_damaged_note_is_not_believed(path, tmp_path, monkeypatch) -> None:
    settle(path, monkeypatch)
    first = file_digest(path, tmp_path)
    (note,) = (tmp_path / "digests").iterdir()
    sound = note.read_text()
    other = sound.replace(first, first[::-1])
    for content in ("", "{", "[]", '{"digest": "x"}', sound.replace(first, "abc"), other):
        note.write_text(content)
        assert file_digest(path, tmp_path) == first


def test_a_file_that_changes_while_it_is_hashed(path, tmp_path, monkeypatch) -> None:
    plain = hashlib.file_digest

    def slow(file, name):
        found = plain(file, name)
        path.write_text("abcd")
        return found

    monkeypatch.setattr(hashlib, "file_digest", slow)
    assert f"{path}: changed while it was read" in refused(lambda: file_digest(path, tmp_path))
    assert not (tmp_path / "digests").exists()
