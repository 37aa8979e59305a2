"""A mistyped index costs a message, not gigabytes; data that are wide on purpose are read."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from folders import refused

from ltr.data import letor, letor_blocks, lists_writer
from ltr.data.files import LetorFiles
from ltr.data.letor import read_letor

Read = Callable[..., np.ndarray]


def into_memory(folder: Path, **knobs) -> np.ndarray:
    return read_letor(folder / "mine" / "train.txt", **knobs).features


def into_cache(folder: Path, **knobs) -> np.ndarray:
    where = {"data_dir": folder, "cache_dir": folder / "cache"}
    return LetorFiles(name="letor", folder="mine", **where, **knobs).split("train").features


@pytest.fixture(params=[into_memory, into_cache])
def read(request: pytest.FixtureRequest) -> Read:
    return request.param


@pytest.fixture(params=["compiled", "not compiled"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files take the path of large ones."""
    monkeypatch.setattr(letor_blocks, "COMPILED_BYTES", 0 if request.param == "compiled" else 1e9)
    monkeypatch.setattr(letor_blocks, "CHUNK_BYTES", 2000)


def write(folder: Path, rows: list[str]) -> Path:
    path = folder / "mine" / "train.txt"
    path.parent.mkdir()
    path.write_text("".join(f"1 qid:{n // 10} {row}\n" for n, row in enumerate(rows)))
    return path


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("at", [[0], [190], [60, 61], [399]])
def test_a_mistyped_index_is_named_before_it_costs_memory(tmp_path, read, at) -> None:
    rows = ["1:0.5 2:1 3:2"] * 400
    for line in at:
        rows[line] = "1:1 1000000:1 2:3" if line == 399 else "1:1 1000000:1"  # fast and plain
    path = write(tmp_path, rows)
    message = refused(lambda: read(tmp_path))
    assert message.startswith(f"{path}:{at[0] + 1}: index 1000000, but the other rows end at ")
    assert re.search(r"take 1\.[567] GB", message)  # the rows to come are estimated
    assert "set dataset.width=1000000" in message
    assert not list(tmp_path.glob("cache/*.tmp"))


@pytest.mark.usefixtures("kernel")
def test_what_is_wide_on_purpose_is_read(tmp_path, read, monkeypatch) -> None:
    monkeypatch.setattr(letor_blocks, "CHEAP_BYTES", 1000)
    rng = np.random.default_rng(0)
    indices = [np.sort(rng.choice(3000, 5, replace=False)) + 1 for _ in range(300)]
    write(tmp_path, [" ".join(f"{i}:1" for i in row) for row in indices])
    features = read(tmp_path)
    assert features.shape == (300, max(row[-1] for row in indices))
    assert [(np.flatnonzero(row) + 1).tolist() for row in features] == [
        row.tolist() for row in indices
    ]


def test_a_given_width_allows_an_odd_index(tmp_path, read, monkeypatch) -> None:
    monkeypatch.setattr(letor_blocks, "CHEAP_BYTES", 1000)
    write(tmp_path, ["1:1"] * 99 + ["900:1"])
    assert "set dataset.width=900" in refused(lambda: read(tmp_path))
    assert read(tmp_path, width=900).shape == (100, 900)


def test_an_odd_index_that_costs_little_is_read(tmp_path, read) -> None:
    write(tmp_path, ["1:1"] * 99 + ["900:1"])
    assert read(tmp_path).shape == (100, 900)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("knobs", [{}, {"width": 5000}])
def test_what_does_not_fit_is_refused(tmp_path, read, knobs, monkeypatch) -> None:
    monkeypatch.setattr(letor, "available_memory", lambda: (10**6, "memory"))
    monkeypatch.setattr(lists_writer.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    path = write(tmp_path, ["4999:1", "5000:1"] * 100)
    message = refused(lambda: read(tmp_path, **knobs))
    assert message.startswith(f"{path}:2: index 5000: about ")
    assert "rows of 5,000 features take 4 MB, and " in message
    assert "has 1 MB free" in message


def test_too_little_memory_is_one_line(tmp_path, read, monkeypatch) -> None:
    def full(*args, **knobs) -> None:
        raise MemoryError

    path = write(tmp_path, ["1:1"])
    monkeypatch.setattr(letor_blocks, "parse_rows", full)
    assert refused(lambda: read(tmp_path)).startswith(f"{path}: not enough memory; free some")
