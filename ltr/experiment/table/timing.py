"""What a run costs: a few steps of its own model and loss, measured on lists of noise."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import torch

from ltr.data.batches import ItemTensors, train_batches
from ltr.data.transforms import no_transform
from ltr.experiment.build import Experiment, build
from ltr.experiment.table.plan import Run
from ltr.experiment.table.workload import Shape, drawn_lists, shape_of
from ltr.training.evaluation import metrics_of_scores, predict
from ltr.training.step import Stepper
from ltr.trees import BoostedTrees, LossObjective
from ltr.trees.boosting import Order

_STEPS, _SECONDS = 8, 6.0  # measured of a row: so many steps, or as many as go into the seconds
_LISTS = 200  # evaluated
_ROUNDS = (2, 8)  # of boosting; their difference is free of what is done once
_GROWTH = 4  # the lists of the second fit, in those of the first


@dataclass(frozen=True)
class Cost:
    """Seconds of one run, and what they are made of.

    Attributes:
        step: seconds of a training step, of trees of a round.
        steps: in an epoch.
        epochs: as planned; a run that stops early takes less.
        evaluation: seconds of one evaluation of vali.
        last: seconds of the evaluations of vali and test at the end.
        patience: epochs without a better one that end the run, None where none do.
        trees: whether an epoch is a round of boosting.
    """

    step: float
    steps: int
    epochs: int
    evaluation: float
    last: float
    patience: int | None = None
    trees: bool = False

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        after_epochs = (self.epochs + 1) * self.evaluation
        return self.epochs * self.steps * self.step + after_epochs + self.last

    def __str__(self) -> str:
        """What the seconds are made of."""
        evaluation = f"evaluation {self.evaluation:.1f} s"
        stop = "" if self.patience is None else f", patience {self.patience}"
        if self.trees:
            return f"{self.epochs} rounds of {self.step:.3f} s, {evaluation}{stop}"
        return (
            f"{self.epochs} epochs of {self.steps} steps of {self.step:.3f} s, {evaluation}{stop}"
        )


class _Evaluations(TypedDict):
    evaluation: float
    last: float


def measured(run: Run) -> Cost:
    """The cost of ``run``, from a few steps of its own model and loss.

    Raises:
        ConfigError, DataError: it cannot be built, or its data are not known.
    """
    shape = shape_of(run)
    experiment = build(run.config)
    width = int(run.config.dataset.get("width") or experiment.dataset.width)
    trees = experiment.model(width)
    if isinstance(trees, BoostedTrees):
        return _of_trees(trees, experiment, shape, width)
    return _of_network(experiment, shape, width)


def _of_network(experiment: Experiment, shape: Shape, width: int) -> Cost:
    settings = experiment.settings
    torch.manual_seed(0)
    data = _drawn(experiment, shape, max(_LISTS, 2 * settings.batch_size), width)
    model = experiment.model(width).to(experiment.device)
    optimizer = experiment.optimizer(model.parameters())
    assert experiment.loss is not None  # only trees do without
    stepper = Stepper(model, experiment.loss, optimizer, settings)
    epochs = iter(range(1, 1 << 30))

    def steps() -> None:
        """Take all the batches of one epoch over the drawn lists."""
        for batch in train_batches(
            data,
            batch_size=settings.batch_size,
            list_size=settings.list_size,
            seed=settings.seed,
            epoch=next(epochs),
            fixed=settings.compile or experiment.device.type != "cpu",
        ):
            stepper.take(batch)
            stepper.settle(1, 1, data.qids)

    model.train()
    each = -(-len(data) // settings.batch_size)
    step = _timed(steps, experiment.device, each)

    def evaluation() -> None:
        """Evaluate the drawn lists once."""
        items = settings.evaluation_items
        scores = predict(model, data, items=items, precision=settings.precision)
        metrics_of_scores(data, scores, experiment.metrics, experiment.convention, items=items)

    of_item = _timed(evaluation, experiment.device, 1) / len(data.labels)
    return Cost(
        step=step,
        steps=-(-shape.lists["train"] // settings.batch_size),
        epochs=settings.epochs,
        patience=settings.patience,
        **_evaluations(of_item, experiment, shape),
    )


def _of_trees(trees: BoostedTrees, experiment: Experiment, shape: Shape, width: int) -> Cost:
    """A round takes a time of its own and one for each item, found from two sizes."""
    few, many = (_drawn(experiment, shape, n * _LISTS, width) for n in (1, _GROWTH))
    (a, _), (b, of_item) = (_round(trees, experiment, data) for data in (few, many))
    items = len(few.labels), len(many.labels)
    slope = min(max(0.0, (b - a) / (items[1] - items[0])), b / items[1])
    train = shape.lists["train"] * shape.length
    return Cost(
        step=b + slope * (train - items[1]),
        steps=1,
        epochs=experiment.settings.epochs,
        patience=experiment.settings.patience,
        trees=True,
        **_evaluations(of_item, experiment, shape),
    )


def _round(trees: BoostedTrees, experiment: Experiment, data: ItemTensors) -> tuple[float, float]:
    """Seconds of a round on ``data``, and of an evaluation, by item."""
    settings, loss = experiment.settings, experiment.loss
    derivatives = None if loss is None else LossObjective(loss, data)
    took, looked = [], 0.0
    for rounds in _ROUNDS:
        started = time.perf_counter()
        order = Order(
            data={"train": data, "vali": data},
            derivatives=derivatives,
            rounds=rounds,
            seed=settings.seed,
            threads=torch.get_num_threads(),
            device=experiment.device.type,
            stop=lambda: False,
        )
        with trees.complaints():
            boosting = trees.boost(order)
            one = _timed(boosting.round, experiment.device, 1, times=rounds)
        took.append(time.perf_counter() - started)
        started = time.perf_counter()
        metrics_of_scores(
            data,
            boosting.scores("vali"),
            experiment.metrics,
            experiment.convention,
            items=settings.evaluation_items,
        )
        looked = time.perf_counter() - started
    # The difference is for a library that does its rounds in one go, before the first is asked for.
    return max(one, (took[1] - took[0]) / (_ROUNDS[1] - _ROUNDS[0])), looked / len(data.labels)


def _drawn(experiment: Experiment, shape: Shape, count: int, width: int) -> ItemTensors:
    lists = drawn_lists(shape, count, width)
    return ItemTensors(lists, no_transform(lists), experiment.device)


def _evaluations(of_item: float, experiment: Experiment, shape: Shape) -> _Evaluations:
    """Seconds of evaluating after an epoch and at the end, from those of an item."""
    of_split = {split: of_item * shape.length * count for split, count in shape.lists.items()}
    monitored = dict.fromkeys((*experiment.settings.monitor, "vali"))
    return {
        "evaluation": sum(of_split[split] for split in monitored),
        "last": of_split["vali"] + of_split["test"],
    }


def _timed(
    work: Callable[[], object], device: torch.device, parts: int, times: int | None = None
) -> float:
    """Median seconds of a part of ``work``, which has ``parts``; the first time warms up.

    It is done ``times`` times, or as often as ``_STEPS`` and ``_SECONDS`` say.
    """
    took: list[float] = []
    started = time.perf_counter()

    def goes_on() -> bool:
        if times is not None:
            return len(took) < times
        short = len(took) * parts < _STEPS and time.perf_counter() - started < _SECONDS
        return len(took) < 2 or short

    while goes_on():
        before = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append((time.perf_counter() - before) / parts)
    return statistics.median(took[1:])
