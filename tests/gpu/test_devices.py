"""Every loss under autocast and on a GPU, and lists of text in chunks: the numbers of the CPU."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from ltr.text import chunked_loss
from tests.helpers.loss_cases import EVERY, bind_loss
from tests.helpers.ragged import random_lists
from tests.helpers.text_chunks import ITEMS, LABELS, gradients, scorer

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
        mask = torch.ones_like(mask)
        knobs = {"generator": torch.Generator().manual_seed(0)}
    leaf = scores.to(half).to(device, dtype).requires_grad_()
    is_half = dtype in (torch.bfloat16, torch.float16)
    with torch.autocast(device, dtype) if is_half else nullcontext():
        values = bind_loss(name, knobs)(leaf, labels.to(device), mask.to(device))
    (values * torch.arange(1, 8, device=device)).sum().backward()
    assert leaf.grad is not None
    return values.detach().cpu().double(), leaf.grad.cpu().double()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compilers, on a GPU
@pytest.mark.parametrize(("device", "dtype"), CASES)
def test_losses_on_any_device_are_those_of_the_cpu_in_float64(
    device: str, dtype: torch.dtype
) -> None:
    wrong = []
    for name, knobs in [*EVERY, ("svmndcg", {"gain": "linear"})]:
        if "stochastic" in knobs:  # which draws other numbers in each dtype
            continue
        on_device = measured(name, knobs, device, dtype, dtype)
        on_cpu = measured(name, knobs, "cpu", torch.float64, dtype)
        rounding = max(2e-4, 4 * torch.finfo(dtype).eps)  # the gradient is in the scores' dtype
        for actual, expected, near in zip(on_device, on_cpu, (2e-4, rounding), strict=True):
            size = expected.abs().max().clamp(min=1)
            error = ((actual - expected).abs().max() / size).item()
            if not error <= near:
                wrong.append((name, knobs, error))
    assert not wrong


@pytest.mark.slow
@GPU
@pytest.mark.parametrize("dtype", DTYPES)
def test_chunked_loss_on_a_gpu_has_the_gradient_of_the_whole(dtype: torch.dtype) -> None:
    items = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(1)).cuda()
    chunk_gradients = []
    for keeps_activations in (False, True):
        model = scorer(dropout=0.5).cuda()
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
        torch.manual_seed(2)
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            if keeps_activations:  # with the same draws
                scores = [model(chunk) for chunk in items.split(4)]
                value = chunked_loss(torch.nn.Identity(), scores, LABELS)
            else:
                value = chunked_loss(model, items.split(4), LABELS)
        scaler.scale(value).backward()
        scaler.unscale_(torch.optim.SGD(model.parameters()))
        chunk_gradients.append(gradients(model))
    assert chunk_gradients[0].isfinite().all()
    assert chunk_gradients[0].abs().max() > 0
    torch.testing.assert_close(*chunk_gradients)
