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
import pytest
from filelock import FileLock

from ltr.data import cache
from ltr.data.assemble import Block, assemble
from ltr.data.cache import cached_lists, file_digest, sealed, unsealed
from ltr.data.lists import Lists
from tests.helpers import processes
from tests.helpers.folders import refused, write_folder

FEATURES = np.arange(60, dtype=np.float32).reshape(20, 3)
LABELS = np.arange(20, dtype=np.float32) % 3
OFFSETS = np.array([0, 1, 5, 20])
QIDS = np.array(["a", "bé", "last one"])
QUERY_INDICES = np.repeat(np.arange(3), np.diff(OFFSETS))


def blocks(*ends: int) -> Iterator[Block]:
    for start, end in itertools.pairwise(ends):
        rows = slice(start, end)
        indices = QUERY_INDICES[rows]
        yield Block(FEATURES[rows], LABELS[rows], QIDS.tolist(), indices, missing=end // 7)


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


def make_stable(path: Path, monkeypatch) -> None:
    """Let the file's times be long past, as far as the cache can tell."""
    monkeypatch.setattr(cache.time, "time_ns", lambda: path.stat().st_ctime_ns + 10**10)


def entries(cache_dir: Path) -> list[str]:
    return sorted(path.name for path in cache_dir.iterdir() if path.suffix != ".lock")


def test_cached_lists_builds_once_and_then_maps(tmp_path) -> None:
    folder = tmp_path / "new" / "cache"
    assert_built(cached_lists(folder, "a key: 1", build))
    lists = cached_lists(folder, "a key: 1", never)
    assert_built(lists)
    for array in (lists.features, lists.labels):
        assert isinstance(array.base, np.memmap)
        assert (array.flags.writeable, array.flags.c_contiguous) == (False, True)
    arrays = (lists.features, lists.labels, lists.offsets)
    assert [array.dtype for array in arrays] == ["f4", "f4", "i8"]
    assert_built(cached_lists(folder, "a key: 2", build))
    assert len(entries(folder)) == 2


def test_assemble_widens_blocks_and_orders_rows(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ltr.data.assemble._ROWS_PER_STEP", 4)
    rows = np.array([[1, 1, 0, 0, 0]] * 4 + [[2, 2, 2, 2, 2]] * 3 + [[3, 0, 0, 0, 0]] * 3)

    def widening(file: Path | None, *qids: str) -> Lists:
        widening_blocks = [
            Block(rows[:4, :2], np.zeros(4), qids, np.array([0, 1, 1, 0])),
            Block(rows[4:7], np.ones(3), qids, np.array([1, 1, 1])),
            Block(rows[7:, :1], np.full(3, 2), qids, np.array([1, 0, 1])),
        ]
        return assemble(widening_blocks, file)

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


def test_cached_lists_leaves_nothing_of_a_failed_build(tmp_path) -> None:
    def failing_blocks(error: type[BaseException]) -> Iterator[Block]:
        yield from blocks(0, 20)
        raise error

    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error):
            cached_lists(
                tmp_path, "k", lambda file, error=error: assemble(failing_blocks(error), file)
            )
        assert entries(tmp_path) == []
    assert_built(cached_lists(tmp_path, "k", build))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("fails", ["features.npy", "labels.npy", "meta.json"])
def test_cached_lists_leaves_nothing_on_a_full_disk(tmp_path, monkeypatch, fails) -> None:
    real_open = Path.open

    def open_full(self, mode="r", *args) -> Any:
        path = Path("/dev/full") if self.name == fails and mode == "wb" else self
        return real_open(path, mode, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
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


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_cached_lists_builds_a_damaged_entry_again(tmp_path, caplog, damage) -> None:
    cached_lists(tmp_path, "k", build)
    (entry,) = (tmp_path / name for name in entries(tmp_path))
    damage(entry)
    with caplog.at_level(logging.WARNING):
        assert_built(cached_lists(tmp_path, "k", build))
    assert caplog.messages == [
        f"the cache entry {entry} was damaged or outdated and was built again"
    ]
    assert_built(cached_lists(tmp_path, "k", never))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["features", "labels", "offsets", "qids", "meta"])
def test_cached_lists_notices_every_flipped_bit(tmp_path, name) -> None:
    cached_lists(tmp_path, "k", build)
    (entry,) = (tmp_path / name for name in entries(tmp_path))
    path = entry / ("meta.json" if name == "meta" else f"{name}.npy")
    sound = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in range(0, len(sound), 4):
        content = bytearray(sound)
        content[position] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        assert cache._open(entry, "k") is None


def test_cached_lists_checks_an_array_once_a_process(tmp_path, monkeypatch) -> None:
    cached_lists(tmp_path, "k", build)
    (entry,) = (tmp_path / name for name in entries(tmp_path))
    make_stable(entry / "features.npy", monkeypatch)
    hashed = []
    real_hash = cache._hash
    monkeypatch.setattr(cache, "_hash", lambda path: hashed.append(path.name) or real_hash(path))
    cache._checked.clear()
    for expected in (1, 0):
        hashed.clear()
        assert_built(cached_lists(tmp_path, "k", never))
        assert hashed.count("features.npy") == expected
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
COMPLETE = f"{sum(range(20)) * 50 * 30.0} 20"


def writer(folder: Path, key: str, pause: float) -> processes.Process:
    process = processes.start(WRITER, str(folder), key, str(pause))
    assert process.stdout.readline() == "begin\n"
    return process


def finished(process: processes.Process) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.strip()


@pytest.mark.slow
def test_cached_lists_builds_an_entry_once_for_two_processes(tmp_path) -> None:
    cache_dir = tmp_path / "cache"
    writers = [writer(cache_dir, "k", 0.02) for _ in range(2)]
    assert [finished(process) for process in writers] == [COMPLETE] * 2
    assert (tmp_path / "builds").read_text() == "k\n"
    assert len(entries(cache_dir)) == 1


@pytest.mark.slow
def test_cached_lists_recovers_from_killed_writers(tmp_path) -> None:
    cache_dir = tmp_path / "cache"
    rng = random.Random(0)
    suffixes = set()
    for _ in range(6):
        process = writer(cache_dir, "k", 0.005)
        time.sleep(rng.uniform(0, 0.12))
        process.kill()
        process.communicate()
        leftovers = entries(cache_dir) if cache_dir.exists() else []
        suffixes |= {Path(name).suffix for name in leftovers}
        assert len([name for name in leftovers if not name.endswith(".tmp")]) <= 1
    assert ".tmp" in suffixes  # else nobody was killed in the middle
    assert finished(writer(cache_dir, "k", 0)) == COMPLETE
    assert [name for name in entries(cache_dir) if name.endswith(".tmp")] == []


def test_cached_lists_removes_leftovers_of_dead_writers_only(tmp_path) -> None:
    complete = "complete-0123456789abcdef"
    dead = "dead-0123456789abcdef"
    alive = "alive-0123456789abcdef"
    unrelated = {"thesis.tmp/text": "a", "thesis.lock": "b", f"{complete}/x.npy": "complete"}
    unfinished = {f"{name}.tmp/features.npy": "half" for name in (dead, alive)}
    write_folder(tmp_path, unrelated | unfinished)
    with FileLock(tmp_path / f"{alive}.lock"):
        cached_lists(tmp_path, "k", build)
        assert not (tmp_path / f"{dead}.tmp").exists()
        assert (tmp_path / f"{alive}.tmp" / "features.npy").read_text() == "half"
    cached_lists(tmp_path, "l", build)
    assert [name for name in entries(tmp_path) if name.endswith(".tmp")] == ["thesis.tmp"]
    assert {name: (tmp_path / name).read_text() for name in unrelated} == unrelated


# Digests of files.


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "train.txt"
    path.write_text("abc")
    return path


def test_file_digest_hashes_once_unless_a_file_is_young_or_changed(
    path, tmp_path, monkeypatch
) -> None:
    hashed = []
    real_digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda *args: hashed.append(1) or real_digest(*args)
    )
    expected = hashlib.sha256(b"abc").hexdigest()
    for times in (1, 2, 3, 3):
        if times == 3:
            make_stable(path, monkeypatch)
        assert file_digest(path, tmp_path / "cache") == expected
        assert len(hashed) == times
    (tmp_path / "file").write_text("where the folder of the cache should be")
    assert file_digest(path, tmp_path / "file") == expected
    old_status = path.stat()
    time.sleep(0.02)  # the clock of the file system ticks
    path.write_text("abd")  # the same size, and the old time put back
    os.utime(path, ns=(old_status.st_atime_ns, old_status.st_mtime_ns))
    assert path.stat().st_mtime_ns == old_status.st_mtime_ns
    assert file_digest(path, tmp_path / "cache") != expected


def test_file_digest_ignores_a_damaged_record(path, tmp_path, monkeypatch) -> None:
    make_stable(path, monkeypatch)
    first = file_digest(path, tmp_path)
    (record,) = (tmp_path / "digests").iterdir()
    sound = record.read_text()
    changed = [sound.replace(first, "abc"), sound.replace(first, first[::-1])]
    for content in ("", "{", "[]", '{"digest": "x"}', *changed):
        record.write_text(content)
        assert file_digest(path, tmp_path) == first


def test_file_digest_refuses_a_file_that_changes_meanwhile(path, tmp_path, monkeypatch) -> None:
    real_digest = hashlib.file_digest

    def digest_and_change(file, name):
        digest = real_digest(file, name)
        path.write_text("abcd")
        return digest

    monkeypatch.setattr(hashlib, "file_digest", digest_and_change)
    assert f"{path}: the file changed while it was being read" in refused(
        lambda: file_digest(path, tmp_path)
    )
    assert not (tmp_path / "digests").exists()
