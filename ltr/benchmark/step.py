"""Count what a training step asks of a device: operators, launches, bytes; no GPU is needed."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any
from unittest import mock

import torch
from omegaconf import DictConfig
from tabulate import tabulate
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ltr.benchmark import training
from ltr.data.batches import Batch, ItemTensors, train_batches
from ltr.experiment.build import build
from ltr.losses.fused_permutation import neural_dcg
from ltr.training.stepper import DEFERRED, Stepper

HEAD = ("loss", "part", "operators", "launches", "MB", "waits")
PARTS = ("batch", "model", "loss", "backward", "update")
ABOUT = """A training step on a GPU, counted on the CPU: {batch} lists of {size} places, {width}
features, {parameters:,} parameters. A launch is an operator that is neither a view nor an
allocation; sorts and some gradients launch several kernels. MB: what these read and write, before
any cache. With compile=true model, loss and backward are two CUDA graphs into which features,
labels and mask are copied. Nothing is timed.
"""
_GRAPHS = 2 + 1  # forward and backward; the gradient that backward begins with
# They only make a tensor, or see one otherwise.
_FREE = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "detach",
         "_unsafe_view", "lift_fresh", "_reshape_alias", "alias"}  # fmt: skip
_WAITING = {"_local_scalar_dense", "nonzero", "is_nonzero", "equal"}
# They read as much of their source as they write, not all of it.
_PICKING = {"index", "gather", "index_select", "embedding"}


@dataclass
class Count:
    """What was dispatched.

    Attributes:
        operators: of PyTorch, views and allocations too.
        launches: operators with work to do; sorting and some gradients launch several kernels, so
            that this is the least number.
        bytes: read and written by these, each tensor once, expanded dimensions not at all.
        waits: operators for whose result the host waits.
        names: how often each operator with work came.
    """

    operators: int = 0
    launches: int = 0
    bytes: int = 0
    waits: int = 0
    names: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Count") -> "Count":
        return Count(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class Counting(TorchDispatchMode):
    """Counts inside ``with``; ``part`` names what the operators that come belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, Count] = {}
        self.part, self.paused = "", False

    def begin(self, part: str) -> None:
        """Count what comes now as of ``part``."""
        self.part = part

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if not self.paused:
            self.add(name, tree_leaves((args, kwargs)), tree_leaves(out), free=func.is_view)
        return out

    def add(
        self, name: str, given: Sequence[Any], made: Sequence[Any], *, free: bool = False
    ) -> None:
        """Count one operator with the tensors that it reads and writes."""
        read, written = ([x for x in some if isinstance(x, Tensor)] for some in (given, made))
        if not read and not written:
            return
        count = self.counts.setdefault(self.part, Count())
        count.operators += 1
        if free or name in _FREE:
            return
        if name in _PICKING:
            read = [*read[1:], *written]
        count.launches += 1
        count.bytes += sum(map(_bytes, read)) + sum(map(_bytes, written))
        count.waits += name in _WAITING
        count.names[name] += 1

    def as_one(self, name: str, function: Callable[..., Tensor], *given: Tensor) -> Tensor:
        """``function(*given)`` as one operator forward and one backward."""
        out: Tensor = _AsOne.apply(self, name, function, *given)
        return out

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Count nothing inside."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before


def _bytes(tensor: Tensor) -> int:
    size = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        size *= length if stride else 1
    return size


class _AsOne(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, counting: Counting, name: str, function: Callable[..., Tensor], *given: Tensor
    ) -> Tensor:
        with counting.pause(), torch.enable_grad():
            inner = [x.detach().requires_grad_(x.requires_grad) for x in given]
            out = function(*inner)
        counting.add(name, given, [out])
        ctx.kept = counting, name, inner, out
        return out.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        counting, name, inner, out = ctx.kept
        wanted = [x for x in inner if x.requires_grad]
        with counting.pause():
            found = iter(torch.autograd.grad(out, wanted, grad))
        grads = [next(found) if x.requires_grad else None for x in inner]
        counting.add(f"{name}_backward", [grad, out, *inner], grads)
        return None, None, None, *grads


@contextmanager
def as_on_a_gpu(counting: Counting) -> Iterator[None]:
    """Inside, the code takes on the CPU the paths that it takes on a GPU.

    That is the path without Numba and with all padding, PyTorch's fused attention and NeuralNDCG's
    kernel as one operator each way, dropout as one unless it is in place, and the multi-tensor form
    of the norm of the gradients.
    """

    def dropout(values: Tensor, rate: float, inplace: bool = False) -> Tensor:
        if inplace:
            return drop(values, rate, inplace=True)
        return torch.native_dropout(values, rate, True)[0]

    def attention(*given: Tensor, attn_mask: Tensor, dropout_p: float) -> Tensor:
        bias = torch.zeros_like(attn_mask, dtype=given[0].dtype)
        bias = bias.masked_fill_(~attn_mask, -torch.inf)
        name = "scaled_dot_product_attention"
        return counting.as_one(name, partial(plain, attn_mask=bias, dropout_p=dropout_p), *given)

    def backward(tensor: Tensor, *rest: Any, **knobs: Any) -> None:
        counting.begin("backward")
        whole(tensor, *rest, **knobs)
        counting.begin("update")

    def neural(scores: Tensor, *data: Tensor, **knobs: Any) -> Tensor:
        return counting.as_one("neural_dcg", lambda s: neural_dcg(s, *data, **knobs), scores)

    plain, drop = functional.scaled_dot_product_attention, functional.dropout
    whole = Tensor.backward
    with ExitStack() as stack:
        for name, instead in {
            "torch.compiler.is_compiling": lambda: True,
            "torch.nn.functional.scaled_dot_product_attention": attention,
            "torch.nn.functional.dropout": dropout,
            "torch.Tensor.backward": backward,
            "torch.nn.utils.clip_grad._has_foreach_support": lambda *_: True,
            "ltr.losses.neuralndcg.fast_neural_dcg": lambda _: neural,
        }.items():
            stack.enter_context(mock.patch(name, instead))
        yield


def counted_steps(cfg: DictConfig) -> str:
    """The table of what ``make bench ARGS=what=step`` counts, for the terminal."""
    sizes = cfg.quick_sizes if cfg.quick else cfg.sizes
    rows, about = [], ""
    for loss in training.LOSSES:
        counting, stepper, batch = count_step(loss, sizes, str(cfg.cache_dir))
        about = ABOUT.format(
            batch=batch.features.shape[0], size=batch.features.shape[1],
            width=batch.features.shape[2],
            parameters=sum(p.numel() for p in stepper.model.parameters()),
        )  # fmt: skip
        counts = [counting.counts.get(part, Count()) for part in PARTS]
        copies = _copied(batch.features, batch.labels, batch.mask)
        left = sum((counts[0], counts[-1], copies), Count(_GRAPHS, _GRAPHS))
        parts = [
            *zip(PARTS, counts, strict=True),
            ("step", sum(counts, Count())),
            ("step, compile=true, outside the graphs", left),
        ]
        rows += [
            (
                loss if part == PARTS[0] else "",
                part,
                c.operators,
                c.launches,
                c.bytes / 1e6,
                c.waits,
            )
            for part, c in parts
        ]
    return about + "\n" + tabulate(rows, HEAD, floatfmt=",.1f")


def _copied(*tensors: Tensor) -> Count:
    return Count(len(tensors), len(tensors), 2 * sum(map(_bytes, tensors)))


def count_step(loss: str, sizes: DictConfig, cache_dir: str) -> tuple[Counting, Stepper, Batch]:
    """Count the second step of a training with ``loss`` on synthetic lists."""
    size = {"batch_size": int(sizes.train_batch), "list_size": int(sizes.train_list_size)}
    settings = {"loss": loss, "queries": 2 * size["batch_size"], **size}
    experiment = build(training.config_of(settings, "cpu", cache_dir))
    lists = experiment.dataset.split("train")
    torch.manual_seed(0)
    data = ItemTensors(lists, experiment.fit_transform(lists))
    model = experiment.model(lists.width)
    assert experiment.loss is not None  # the settings choose one
    optimizer = experiment.optimizer(model.parameters())
    counting = Counting()
    model.register_forward_pre_hook(lambda *_: counting.begin("model"))
    model.register_forward_hook(lambda *_: counting.begin("loss"))
    stepper = Stepper(model, experiment.loss, optimizer, experiment.settings)
    stepper.window = DEFERRED
    batches = train_batches(data, **size, seed=0, epoch=0, fixed=True)
    model.train()
    with as_on_a_gpu(counting):
        stepper.take(next(batches))  # makes the state of the optimiser
        counting.counts.clear()
        with counting:
            counting.begin("batch")
            batch = next(batches)
            stepper.take(batch)
    return counting, stepper, batch
