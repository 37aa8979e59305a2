"""Damaged machine code is made again, and a folder that takes none is gone on without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTION = "def triple(x):\n    return 3 * x\n"
BEGIN = """
import os, random, resource, signal, sys
from pathlib import Path
import numba
from ltr.kernels.compile import keep
from own import triple

folder = Path(os.environ["NUMBA_CACHE_DIR"])

def hits():
    compiled = keep(numba.njit(triple))
    assert compiled(2.5) == 7.5
    return sum(compiled.stats.cache_hits.values())

def files():
    return sorted(path for path in folder.rglob("*") if path.is_file())
"""
DAMAGED = """
assert (hits(), hits()) == (0, 1)
index, code = files()[::-1] if files()[0].suffix == ".nbc" else files()
assert (index.suffix, code.suffix) == (".nbi", ".nbc")
rng = random.Random(0)
for path in (index, code):
    sound = path.read_bytes()
    cuts = [sound[:n] for n in (0, 1, 9, len(sound) // 2, len(sound) - 1)]
    noise = [bytes(len(sound)), b"cbuiltins\\nno_such\\n.", b"text"]
    for content in cuts + noise:
        path.write_bytes(content)
        assert (hits(), hits()) == (0, 1), (path.suffix, content[:20])
sound = code.read_bytes()
for at in rng.sample(range(len(sound)), 20):
    code.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.randrange(8)]) + sound[at + 1:])
    hits()
code.unlink()
code.mkdir()
assert hits() == 0
"""
FULL = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for size in (0, 20, 400):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    assert (hits(), hits()) == (0, 0), size
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert (hits(), hits()) == (0, 1)
"""
NO_FOLDER = """
hits()
"""


def run(folder: Path, code: str) -> None:
    """Run ``code`` in a process of its own: damaged machine code may end it."""
    (folder / "own.py").write_text(FUNCTION)
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
            "NUMBA_CACHE_DIR": str(folder / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_damaged_machine_code_is_made_again(tmp_path: Path) -> None:
    run(tmp_path, DAMAGED)


@pytest.mark.slow
def test_a_full_disk_is_gone_on_without(tmp_path: Path) -> None:
    run(tmp_path, FULL)


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_gone_on_without(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    run(tmp_path, NO_FOLDER)


SLOPES = """
import hashlib
import numpy as np
from ltr.kernels.ranks import approx_rank_lists

scores, weights = np.random.default_rng(0).normal(size=(2, 8, 40))
ranks, slope = np.zeros((2, 8, 40))
for backward in (False, True):
    lists, mask = np.arange(8), np.ones((8, 40), dtype=bool)
    approx_rank_lists(lists, scores, mask, 0.1, ranks, weights, slope, backward)
print(hashlib.sha256(ranks.tobytes() + slope.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_kept_code_gives_the_bits_of_the_process_that_compiled_it(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    first, again = (
        subprocess.run(
            [sys.executable, "-c", SLOPES], env=env, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    assert first == again
