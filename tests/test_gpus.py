"""Processes that run jobs at once have a GPU each, as far as there are."""

from ltr.experiment.sweep import gpus_here, offer, take_gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"


def test_the_gpus_are_those_that_this_process_may_use() -> None:
    assert gpus_here(3, {}) == ["0", "1", "2"]
    assert gpus_here(2, {VISIBLE: "4, GPU-5"}) == ["4", "GPU-5"]
    assert gpus_here(0, {}) == []


def test_each_process_takes_the_gpu_of_its_first_job_and_keeps_it() -> None:
    environ: dict[str, str] = {}
    offer(["4", "7"], environ)
    processes = [{**environ} for _ in range(3)]
    for job, process in enumerate(processes):
        take_gpu(job, process)
    assert [process[VISIBLE] for process in processes] == ["4", "7", "4"]
    take_gpu(3, processes[0])
    assert processes[0][VISIBLE] == "4"


def test_one_gpu_or_none_is_left_as_it_is() -> None:
    for some in ([], ["0"]):
        environ: dict[str, str] = {}
        offer(some, environ)
        take_gpu(0, environ)
        assert environ == {}
