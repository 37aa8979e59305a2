"""Every loss under autocast and on a GPU, and lists of text in chunks: the numbers of the CPU."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from ragged import random_lists
from test_fast_paths import EVERY, bound
from test_text import ITEMS, LABELS, gradients, scorer
from torch import Tensor

from ltr.text import chunked_loss

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
CASES = [("cpu", torch.bfloat16), *(pytest.param("cuda", dtype, marks=GPU) for dtype in DTYPES)]


def measured(
    name: str, knobs: dict[str, Any], device: str, dtype: torch.dtype, half: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Values and gradient for scores that ``half`` can tell apart, in ``dtype``."""
    scores, labels, mask = random_lists(0, torch.float32)
    if name in ("listmle", "p_listmle"):  # equal labels would be ordered by draws
        labels = torch.stack([torch.arange(40.0).roll(9 * i) for i in range(7)])
    if name == "plrank":  # on padding each device draws in its own order
        mask, knobs = torch.ones_like(mask), {"generator": torch.Generator().manual_seed(0)}
    leaf = scores.to(half).to(device, dtype).requires_grad_()
    under = dtype in (torch.bfloat16, torch.float16)
    with torch.autocast(device, dtype) if under else nullcontext():
        values = bound(name, knobs)(leaf, labels.to(device), mask.to(device))
    (values * torch.arange(1, 8, device=device)).sum().backward()
    assert leaf.grad is not None
    return values.detach().cpu().double(), leaf.grad.cpu().double()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compilers, on a GPU
@pytest.mark.parametrize(("device", "dtype"), CASES)
def test_every_loss_is_that_of_the_cpu_in_float64(device: str, dtype: torch.dtype) -> None:
    wrong = []
    for name, knobs in [*EVERY, ("svmndcg", {"gain": "linear"})]:
        if "stochastic" in knobs:  # which draws other numbers in each dtype
            continue
        found = measured(name, knobs, device, dtype, dtype)
        expected = measured(name, knobs, "cpu", torch.float64, dtype)
        rounded = max(2e-4, 4 * torch.finfo(dtype).eps)  # the gradient is in the scores' dtype
        for one, other, near in zip(found, expected, (2e-4, rounded), strict=True):
            off = ((one - other).abs().max() / other.abs().max().clamp(min=1)).item()
            if not off <= near:
                wrong.append((name, knobs, off))
    assert not wrong


@pytest.mark.slow
@GPU
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_a_gpu_the_gradient_of_chunks_is_that_of_the_whole(dtype: torch.dtype) -> None:
    x = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(1)).cuda()
    found = []
    for kept in (False, True):
        model = scorer(dropout=0.5).cuda()
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
        torch.manual_seed(2)
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            if kept:  # the same draws, all activations kept
                scores = [model(part) for part in x.split(4)]
                value = chunked_loss(torch.nn.Identity(), scores, LABELS)
            else:
                value = chunked_loss(model, x.split(4), LABELS)
        scaler.scale(value).backward()
        scaler.unscale_(torch.optim.SGD(model.parameters()))
        found.append(gradients(model))
    assert found[0].isfinite().all()
    assert found[0].abs().max() > 0
    torch.testing.assert_close(*found)
