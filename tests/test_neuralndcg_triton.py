"""NeuralNDCG's kernel for the GPU: its steps as Triton's interpreter takes them, and on a GPU."""

import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from ragged import random_lists, value_and_gradient

from ltr.losses import neural_ndcg_loss

INTERPRETED = """
import torch
from functools import partial
from ragged import random_lists, value_and_gradient
from ltr.losses.fused_permutation import neural_dcg
from ltr.losses import neuralndcg_triton
from ltr.losses.neuralndcg_triton import right_on, neural_dcg_on_gpu
torch.set_num_threads(1)
for dtype, near in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
    scores, labels, mask = random_lists(0, dtype, size=20)
    data = scores.masked_fill(~mask, 0), labels.masked_fill(~mask, 0), mask
    for transposed in (False, True):
        for knobs in ({}, {"k": 3, "temperature": 0.1}, {"max_iter": 1}, {"tol": 0.1}):
            usual = {"k": None, "temperature": 1.0, "max_iter": 4, "tol": 1e-6}
            knobs = {**usual, "transposed": transposed, **knobs}
            found = value_and_gradient(partial(neural_dcg_on_gpu, **knobs), *data)
            expected = value_and_gradient(partial(neural_dcg, **knobs), *data)
            torch.testing.assert_close(found, expected, atol=near, rtol=near)
            print("agrees")
neuralndcg_triton.neural_dcg_on_gpu = neural_dcg
assert right_on(torch.device("cpu"))
right_on.cache_clear()
neuralndcg_triton.neural_dcg_on_gpu = lambda *data, **knobs: 1.01 * neural_dcg(*data, **knobs)
assert not right_on(torch.device("cpu"))
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_steps_of_the_kernel_are_those_of_the_cpu() -> None:
    paths = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.stdout.split() == ["agrees"] * 16, done.stderr
    assert done.returncode == 0, done.stderr
    assert "NeuralNDCG's kernel is wrong on cpu: not used" in done.stderr


@pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("triton") is None, reason="no GPU with Triton"
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1, 16, 240, 1000])
def test_the_gpu_agrees_with_the_cpu(size: int, dtype: torch.dtype, transposed: bool) -> None:
    from ltr.losses.neuralndcg_triton import right_on

    assert right_on(torch.device("cuda", 0))
    data = random_lists(0, dtype, size=size)
    loss = partial(neural_ndcg_loss, k=10, transposed=transposed)
    expected = value_and_gradient(loss, *data)
    near = 1e-9 if dtype == torch.float64 else 1e-4
    for _ in range(5):
        scores, labels, mask = (x.cuda() for x in data)
        scores.requires_grad_()
        values = loss(scores, labels, mask)
        weights = torch.arange(1, 8, dtype=dtype, device="cuda")
        (slope,) = torch.autograd.grad((values * weights).sum(), scores)
        torch.testing.assert_close(values.cpu(), expected[0], atol=near, rtol=0)
        torch.testing.assert_close(slope.cpu(), expected[1], atol=near, rtol=near)
