"""Processes that run jobs at once have a GPU each, as far as there are."""

from pathlib import Path

import pytest
from filelock import FileLock

from ltr.experiment import gpus
from ltr.experiment.gpus import gpus_here, offer, take_gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> list[FileLock]:
    monkeypatch.setattr(gpus, "_held", [])
    return gpus._held


def taken(environ: dict[str, str], job: int, folder: Path) -> str | None:
    """What another process takes: it holds nothing yet."""
    environ, gpus._held = dict(environ), []
    take_gpu(job, environ, folder)
    return environ.get(VISIBLE)


def test_the_gpus_are_those_that_this_process_may_use() -> None:
    assert gpus_here(3, {}) == ["0", "1", "2"]
    assert gpus_here(2, {VISIBLE: "4, GPU-5"}) == ["4", "GPU-5"]
    assert gpus_here(0, {}) == []


def test_each_process_takes_a_free_gpu_and_keeps_it(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    offer(["4", "7"], environ)
    take_gpu(0, environ, tmp_path)
    assert environ[VISIBLE] == "4"
    first = gpus._held[0]
    take_gpu(1, environ, tmp_path)
    assert environ[VISIBLE] == "4", "it has one"
    assert taken(environ, 5, tmp_path) == "7"
    second = gpus._held[0]
    assert [taken({"LTR_GPUS": "4,7"}, job, tmp_path) for job in (2, 3)] == ["4", "7"]
    first.release()
    assert taken({"LTR_GPUS": "4,7"}, 3, tmp_path) == "4", "its process ended"
    second.release()


def test_one_gpu_or_none_is_left_as_it_is(tmp_path: Path) -> None:
    for some in ([], ["0"]):
        environ: dict[str, str] = {}
        offer(some, environ)
        take_gpu(0, environ, tmp_path)
        assert environ == {}
