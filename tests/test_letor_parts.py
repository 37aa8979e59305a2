"""A file parsed by several processes gives the bytes that one gives, or one says what is wrong."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ltr.data import letor_parts
from ltr.data.files import LetorFiles
from ltr.data.letor_parts import _spans
from ltr.errors import DataError


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor_parts, "LEAST_BYTES", 200)


def text(lists: int, width: int = 6) -> str:
    """Lists of 1 to 7 items, with comments, blank lines and missing values."""
    rng = np.random.default_rng(0)
    lines = []
    for qid in range(lists):
        for _ in range(rng.integers(1, 8)):
            values = " ".join(
                f"{i + 1}:{v if v < 2 else float('nan'):.5g}"
                for i, v in enumerate(rng.normal(size=width))
            )
            lines.append(f"{rng.integers(5)} qid:q{qid} {values} # item\n")
        lines.append("\n# a comment\n" if qid % 3 == 0 else "")
    return "".join(lines)


def made(folder: Path, content: str, processes: int, **knobs: object) -> dict[str, bytes]:
    """The files of the train entry that ``processes`` processes make."""
    (folder / "mine").mkdir(parents=True, exist_ok=True)
    (folder / "mine" / "train.txt").write_text(content)
    cache = folder / f"cache{processes}"
    places = {"name": "letor", "folder": "mine", "data_dir": folder, "cache_dir": cache}
    LetorFiles(**places, processes=processes, **knobs).split("train")  # type: ignore[arg-type]
    (entry,) = (path for path in cache.iterdir() if (path / "meta.json").is_file())
    return {path.name: path.read_bytes() for path in entry.iterdir()}


@pytest.mark.parametrize("count", [2, 3, 50])
def test_parts_are_cut_between_lists_and_nothing_is_lost(tmp_path: Path, count: int) -> None:
    path, content = tmp_path / "train.txt", text(40).encode()
    path.write_bytes(content)
    spans = list(_spans(path, count))
    assert 2 <= len(spans) <= count
    parts = [content[begin:end] for begin, end in spans]
    assert b"".join(parts) == content
    ids = [{word for word in part.split() if word.startswith(b"qid:")} for part in parts]
    assert sum(map(len, ids)) == len(set().union(*ids)) == 40


@pytest.mark.slow
def test_two_processes_make_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = text(60)
    expected = made(tmp_path, content, 1)
    with monkeypatch.context() as patch:
        patch.setattr("ltr.data.files.parse_letor", None)  # it is not parsed by this process
        assert made(tmp_path, content, 2) == expected


def test_what_parts_cannot_do_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = lambda count, *_: ThreadPoolExecutor(count)  # noqa: E731
    monkeypatch.setattr(letor_parts, "ProcessPoolExecutor", threads)
    wide = text(30) + text(30, width=9).replace("qid:q", "qid:r")
    assert made(tmp_path / "wide", wide, 2) == made(tmp_path / "wide", wide, 1)
    again = text(30) + text(30)
    assert made(tmp_path / "again", again, 2, regroup=True) == made(
        tmp_path / "again", again, 1, regroup=True
    )
    line = text(60).count("\n") + 1
    with pytest.raises(DataError, match=rf"train\.txt:{line}: "):
        made(tmp_path / "bad", text(60) + "2 qid:z 1:one\n", 2)
