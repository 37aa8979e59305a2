"""The counter of a training step: what it counts, and that it follows the path of a GPU."""

import pytest
import torch
from conftest import compose

from ltr.benchmark.benchmark import benchmark
from ltr.benchmark.step import Counting, count_step


def test_views_launch_nothing_and_bytes_are_those_read_and_written() -> None:
    values = torch.ones(2, 3)
    one, place = torch.ones(1), torch.tensor([0])
    with Counting() as counting:
        (values.t() + values.t()).sum()
        values + one.expand(2, 3)  # what is expanded is read once
        values[place]  # as much is read as written
    found = counting.counts[""]
    assert dict(found.names) == {"add": 2, "sum": 1, "index": 1}
    assert (found.operators, found.launches) == (2 + 1 + 1 + 1 + 1 + 1, 4)
    all_of, row = 6 * 4, 3 * 4
    assert found.bytes == 3 * all_of + (all_of + 4) + (all_of + 4 + all_of) + (8 + row + row)


def test_one_function_is_one_operator_each_way() -> None:
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    with Counting() as counting:
        counting.as_one("cube", lambda x: (x * x * x).sum(), values).backward()
    assert values.grad is not None
    assert values.grad.tolist() == [3 * 1.0**2, 3 * 2.0**2]
    names = counting.counts[""].names
    assert (names["cube"], names["cube_backward"], names["mul"]) == (1, 1, 0)


@pytest.mark.slow
def test_a_step_on_a_gpu_waits_for_nothing(tmp_path, capsys) -> None:
    cfg = compose("what=step", "quick=true", f"cache_dir={tmp_path}", config="benchmark")
    counting, stepper, _ = count_step("lambdarank", cfg.quick_sizes, str(tmp_path))
    assert all(count.waits == 0 for count in counting.counts.values())
    assert counting.counts["loss"].names["log_sigmoid_forward"] == 1, "not Numba's kernel"
    assert counting.counts["update"].names["_foreach_norm"] == 1
    assert len(stepper._figures) == 2, "read late, as on a GPU"
    assert benchmark(cfg) == {}
    assert "lambdarank" in capsys.readouterr().out
