"""What a run costs: a few steps of its own model and loss, on noise of its data's shape."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.data.batches import ItemTensors, train_batches
from ltr.data.lists import SPLITS, Lists
from ltr.data.published.archives import SETS, Known
from ltr.data.transforms import no_transform
from ltr.errors import DataError
from ltr.experiment.build import Experiment, build, make_dataset
from ltr.tables.runs import Run
from ltr.training.evaluation import metrics_of_scores, predict
from ltr.training.trainer import Stepper
from ltr.trees import BoostedTrees, LossObjective
from ltr.trees.model import Order

_SPREAD = 0.75  # standard deviation of the log of a list's length, about Web30K's
_RELEVANT = 0.3  # share of the items that are relevant, by chance one of the grades


@dataclass(frozen=True)
class Shape:
    """What of a data set decides how long a run takes.

    Attributes:
        lists: by split.
        length: mean number of items of a list.
        lengths: items of each list of train, or None where the data are not here.
    """

    lists: dict[str, int]
    length: float
    lengths: NDArray[np.int64] | None = None

    @property
    def known(self) -> bool:
        """Whether it was counted in the data themselves."""
        return self.lengths is not None


def shape_of(run: Run) -> Shape:
    """How many lists of which length the run has; as published where its data are not here.

    Raises:
        DataError: the data are not here, and nobody published how many lists they hold.
    """
    if run.absent is None:
        dataset = make_dataset(run.config.dataset)
        splits = {split: dataset.split(split) for split in SPLITS}
        items = sum(lists.items for lists in splits.values())
        count = {split: len(lists) for split, lists in splits.items()}
        return Shape(count, items / sum(count.values()), splits["train"].lengths)
    name = str(run.config.dataset.name)
    if name not in SETS:
        raise DataError(run.absent)
    known = [record for record in SETS[name].known if record.fold == run.fold]
    both = [(r.rows / r.lists, len(r.splits)) for r in known if r.rows and r.lists]
    length = max(both, key=lambda pair: pair[1])[0]
    return Shape(_lists_by_split(known, SETS[name].vali_share), length)


def _lists_by_split(known: Sequence[Known], vali_share: float) -> dict[str, int]:
    """Lists of each split; what is only known together is split as the data set is."""
    of = {record.splits: record.lists for record in known if record.lists}
    lists = {split: of[(split,)] for split in SPLITS if (split,) in of}
    if "train" not in lists and ("train", "vali") in of:
        vali = round(of["train", "vali"] * vali_share)
        lists |= {"train": of["train", "vali"] - vali, "vali": vali}
    whole = of.get(tuple(SPLITS), 0)
    usual = {"train": 0.6, "vali": 0.2, "test": 0.2}
    return {split: lists.get(split, round(usual[split] * whole)) for split in SPLITS}


def drawn_lists(shape: Shape, count: int, width: int) -> Lists:
    """``count`` lists of noise, as long as lists of train are, the same each time.

    Where the data are not here lengths are lognormal with the mean of ``shape``, about as search
    results are; a third of the items is relevant.
    """
    rng = np.random.default_rng(0)
    if shape.lengths is None:
        drawn = rng.lognormal(-(_SPREAD**2) / 2, _SPREAD, count) * shape.length
        lengths = np.clip(np.rint(drawn), 1, round(10 * shape.length)).astype(np.int64)
    else:
        lengths = rng.choice(shape.lengths, count)
    items = int(lengths.sum())
    labels = np.where(rng.random(items) < _RELEVANT, rng.integers(1, 3, items), 0)
    return Lists(
        features=rng.standard_normal((items, width), dtype=np.float32),
        labels=labels.astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        qids=np.arange(count).astype(str),
    )


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
