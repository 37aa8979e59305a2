"""Two epochs of steps of small models, plain or compiled."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from ltr import losses
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.transforms import no_transform
from ltr.models import MLP, ContextAwareTransformer
from ltr.training.settings import Settings
from ltr.training.trainer import TrainingStep
from tests.helpers.made_lists import make_lists

LISTS = make_lists([3, 9, 1, 12, 4, 7, 5])
SETTINGS = Settings(
    seed=0, epochs=2, batch_size=3, list_size=8, select_on="ndcg@5", select="best",
    patience=None, monitor=(), empty_lists="keep", warmup=0.0, clip=None, l1=0.0, l2=0.01,
    augment={"noise": 0.0}, threads=1, precision="float32", compile=False, evaluation_items=100,
    checkpoint_minutes=10.0, deterministic=False,
)  # fmt: skip


def graphs() -> Iterator[tuple[str, int, int]]:
    """For each loss the number of its graphs and graph breaks; compiling again is an error.

    For a process in which shapes are not checked: the checks do not compile.
    """
    from torch._dynamo.utils import counters  # takes seconds

    transformer = partial(
        ContextAwareTransformer, LISTS.width, fc_sizes=(4,), blocks=1, feed_forward=4, dropout=0
    )
    mlp = partial(MLP, LISTS.width, hidden_sizes=(4,))
    torch._dynamo.config.error_on_recompile = True
    knobs = {"backend": "eager", "fullgraph": True, "dynamic": False}
    compiler = torch.compile
    for make, loss in (
        (transformer, losses.listnet_loss),
        (mlp, losses.lambdarank_loss),
        (mlp, partial(losses.neural_ndcg_loss, max_iter=1)),
    ):
        plain = figures(make, loss, SETTINGS)
        counters.clear()
        with (
            mock.patch("torch.compile", lambda function, **_: compiler(function, **knobs)),
            mock.patch("ltr.training.trainer._compiles_losses", return_value=True),  # as on a GPU
        ):
            found = figures(make, loss, replace(SETTINGS, compile=True))
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)
        name = getattr(loss, "func", loss).__name__
        yield name, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def figures(make: Callable[[], nn.Module], loss: Any, settings: Settings) -> Tensor:
    """Loss, lists and gradient norm of every step; the rate is another one in each."""
    torch.manual_seed(0)
    model, data = make(), ItemTensors(LISTS, no_transform(LISTS))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    stepper = TrainingStep(model, loss, optimizer, settings)
    stepper.sync_every = 100
    shape = {"batch_size": settings.batch_size, "list_size": settings.list_size}
    for epoch in range(settings.epochs):
        batches = train_batches(data, **shape, seed=0, epoch=epoch, fixed=True)
        for step, batch in enumerate(batches):  # the last one has one list
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + epoch + step)
            stepper(batch)
    return torch.stack(stepper._figures)
