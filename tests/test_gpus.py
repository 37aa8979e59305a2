"""Processes that run jobs at once have a GPU each, as far as there are."""

import pytest

from ltr.experiment.sweep import offer_gpus, take_gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("count", "visible", "taken"),
    [(2, {}, ["0", "1", "0"]), (2, {VISIBLE: "4, GPU-5,6"}, ["4", "GPU-5", "4"])],
)
def test_each_process_takes_the_gpu_of_its_first_job(count, visible, taken) -> None:
    environ = {**visible}
    offer_gpus(count, environ)
    processes = [{**environ} for _ in range(3)]
    for job, process in enumerate(processes):
        take_gpu(job, process)
    assert processes == [{VISIBLE: gpu} for gpu in taken]  # a later job takes none


def test_one_gpu_or_none_is_left_as_it_is() -> None:
    environ: dict[str, str] = {}
    for count in (0, 1):
        offer_gpus(count, environ)
        assert environ == {}
