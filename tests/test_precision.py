"""precision=tf32: how far it reaches, and that scores and training stay what they are."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_lists
from some_steps import LISTS, SETTINGS, figures

from ltr import losses
from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.metrics import Convention, parse_metric
from ltr.models import MLP
from ltr.training.evaluation import means, metrics_of_scores, predict

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Watched(torch.autograd.Function):
    """The identity, which notes whether TF32 is allowed forward and backward."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, seen: list[bool]) -> torch.Tensor:
        ctx.seen = seen
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.seen.append(torch.backends.cuda.matmul.allow_tf32)
        return grad, None


def test_tf32_reaches_a_step_and_prediction_and_no_further(monkeypatch) -> None:
    data = ItemTensors(LISTS, no_transform(LISTS))
    seen: list[bool] = []
    forward = MLP.forward
    monkeypatch.setattr(MLP, "forward", lambda *a: Watched.apply(forward(*a), seen))
    found = []
    for precision in ("float32", "tf32"):
        make = partial(MLP, LISTS.width, hidden_sizes=(4,))
        steps = figures(make, losses.listnet_loss, replace(SETTINGS, precision=precision))
        assert len(seen) == 2 * len(steps) > 0, "forward and backward"
        predict(make().requires_grad_(False), data, precision=precision)
        assert {*seen} == {precision == "tf32"}
        assert not torch.backends.cuda.matmul.allow_tf32
        seen.clear()
        found.append(steps)
    assert torch.equal(*found), "on a CPU there is no TF32"


@needs_gpu
def test_tf32_changes_scores_by_its_rounding_and_ndcg_hardly() -> None:
    lists = make_lists([30, 50, 20] * 40)
    data = ItemTensors(lists, no_transform(lists), "cuda")
    torch.manual_seed(0)
    model = MLP(lists.width, hidden_sizes=(256, 256)).cuda()
    scores = {p: predict(model, data, precision=p) for p in ("float32", "tf32")}
    gap = (scores["tf32"] - scores["float32"]).abs().max() / scores["float32"].std()
    assert 0 < gap < 1e-2
    metrics, convention = (parse_metric("ndcg@10"),), Convention()
    found = [
        means(metrics_of_scores(data, one, metrics, convention), convention)["ndcg@10"]
        for one in scores.values()
    ]
    np.testing.assert_allclose(*found, atol=2e-3)
