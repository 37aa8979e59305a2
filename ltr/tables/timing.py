"""Time a few steps of a run: its own model and loss, on noise of its data's shape."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.data.archives import SETS
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.lists import SPLITS, Lists
from ltr.data.transforms import no_transform
from ltr.errors import DataError
from ltr.experiment.build import Experiment, build
from ltr.experiment.parts import make_dataset
from ltr.rounds import RoundModel
from ltr.rounds.model import Order
from ltr.tables.runs import Run
from ltr.training.evaluation import metrics_of_scores, predict
from ltr.training.stepper import Stepper


@dataclass(frozen=True)
class Shape:
    """What of a data set decides how long a run takes."""

    lists: dict[str, int]  # by split
    length: float  # mean number of items of a list
    # items of each list of train, or None where the data are not here
    lengths: NDArray[np.int64] | None = None

    @property
    def known(self) -> bool:
        """Whether it was counted in the data themselves."""
        return self.lengths is not None


def shape_of(run: Run) -> Shape:
    """The shape of the run's data; as published where they are not here.

    Raises:
        DataError: the data are not here, and their shape is not published.
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
    of = {record.splits: record.lists for record in known if record.lists}
    lists = {split: of[(split,)] for split in SPLITS if (split,) in of}
    if "train" not in lists and ("train", "vali") in of:
        vali = round(of["train", "vali"] * (SETS[name].vali_share or 0))
        lists |= {"train": of["train", "vali"] - vali, "vali": vali}
    whole = of.get(tuple(SPLITS), 0)
    usual = {"train": 0.6, "vali": 0.2, "test": 0.2}
    return Shape({s: lists.get(s, round(usual[s] * whole)) for s in SPLITS}, length)


_SPREAD = 0.75  # standard deviation of the log of a list's length, about Web30K's
_RELEVANT = 0.3  # share of the items that are relevant, by chance one of the grades


def drawn_lists(shape: Shape, count: int, width: int) -> Lists:
    """``count`` lists of noise, as long as lists of train are, the same each time.

    Where the data are not here, lengths are lognormal with the mean of ``shape``.
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


@dataclass(frozen=True)
class Cost:
    """Seconds of one run, and what they are made of."""

    step: float  # seconds of a training step, of trees of a round
    steps: int  # in an epoch
    epochs: int  # as planned; a run that stops early takes fewer
    evaluation: float  # seconds of one evaluation of vali
    last: float  # seconds of the evaluations of vali and test at the end
    patience: int | None = None  # epochs without a better one that end the run, or None
    trees: bool = False  # whether an epoch is a round of boosting

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        after_epochs = (self.epochs + 1) * self.evaluation
        return self.epochs * self.steps * self.step + after_epochs + self.last

    def __str__(self) -> str:
        """Say what the seconds are made of."""
        steps = "rounds" if self.trees else f"epochs of {self.steps} steps"
        stop = "" if self.patience is None else f", patience {self.patience}"
        evaluation = f"evaluation {self.evaluation:.1f} s"
        return f"{self.epochs} {steps} of {self.step:.3f} s, {evaluation}{stop}"


_STEPS, _SECONDS = 8, 6.0  # timed of a row: so many steps, or as many as go into the seconds
_LISTS = 200  # evaluated
_ROUNDS = (2, 8)  # of boosting; their difference is free of what is done once
_GROWTH = 4  # the lists of the second fit, in those of the first


def measured(run: Run) -> Cost:
    """The cost of ``run``, from a few steps of its own model and loss.

    Raises:
        ConfigError, DataError: it cannot be built, or its data are not known.
    """
    shape = shape_of(run)
    experiment = build(run.config)
    settings = experiment.settings
    width = int(run.config.dataset.get("width") or experiment.dataset.width)

    def drawn(count: int) -> ItemTensors:
        lists = drawn_lists(shape, count, width)
        return ItemTensors(lists, no_transform(lists), experiment.device)

    trees = experiment.model(width)
    if isinstance(trees, RoundModel):
        train = shape.lists["train"] * shape.length
        step, of_item = _of_trees(trees, experiment, drawn(_LISTS), drawn(_GROWTH * _LISTS), train)
        steps = 1
    else:
        data = drawn(max(_LISTS, 2 * settings.batch_size))
        step, of_item = _of_network(experiment, data, width)
        steps = -(-shape.lists["train"] // settings.batch_size)
    of_split = {split: of_item * shape.length * count for split, count in shape.lists.items()}
    return Cost(
        step=step,
        steps=steps,
        epochs=settings.epochs,
        evaluation=sum(of_split[split] for split in dict.fromkeys((*settings.monitor, "vali"))),
        last=of_split["vali"] + of_split["test"],
        patience=settings.patience,
        trees=isinstance(trees, RoundModel),
    )


def _of_network(experiment: Experiment, data: ItemTensors, width: int) -> tuple[float, float]:
    """Seconds of a step on ``data``, and of an evaluation, by item."""
    settings = experiment.settings
    torch.manual_seed(0)
    model = experiment.model(width).to(experiment.device)
    optimizer = experiment.optimizer(model.parameters())
    assert experiment.loss is not None  # only trees do without
    stepper = Stepper(model, experiment.loss, optimizer, settings)
    epochs = iter(range(1, 1 << 30))

    def epoch() -> None:
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

    def evaluation() -> None:
        items = settings.evaluation_items
        scores = predict(model, data, items=items, precision=settings.precision)
        metrics_of_scores(data, scores, experiment.metrics, experiment.convention, items=items)

    model.train()
    step = _timed(epoch, experiment.device, -(-len(data) // settings.batch_size))
    return step, _timed(evaluation, experiment.device, 1) / len(data.labels)


def _of_trees(
    trees: RoundModel, experiment: Experiment, few: ItemTensors, many: ItemTensors, train: float
) -> tuple[float, float]:
    """Seconds of a round on ``train`` items, and of an evaluation, by item.

    A round takes a time of its own and one for each item, found from two sizes.
    """
    (a, _), (b, of_item) = (_round(trees, experiment, data) for data in (few, many))
    items = len(few.labels), len(many.labels)
    slope = min(max(0.0, (b - a) / (items[1] - items[0])), b / items[1])
    return b + slope * (train - items[1]), of_item


def _round(trees: RoundModel, experiment: Experiment, data: ItemTensors) -> tuple[float, float]:
    """Seconds of a round on ``data``, and of an evaluation, by item."""
    settings, loss, device = experiment.settings, experiment.loss, experiment.device
    derivatives = None if loss is None else trees.derivatives(loss, data, settings)
    took = []
    for rounds in _ROUNDS:
        started = time.perf_counter()
        order = Order(
            data={"train": data, "vali": data},
            derivatives=derivatives,
            rounds=rounds,
            seed=settings.seed,
            threads=torch.get_num_threads(),
            device=device.type,
            stop=lambda: False,
        )
        with trees.complaints():
            boosting = trees.begin(order)
            one = _timed(boosting.round, device, 1, times=rounds)
        took.append(time.perf_counter() - started)
    scores, items = boosting.scores("vali"), settings.evaluation_items
    started = time.perf_counter()
    metrics_of_scores(data, scores, experiment.metrics, experiment.convention, items=items)
    evaluation = time.perf_counter() - started
    # The difference is for a library that does its rounds in one go, before the first is asked for.
    each = max(one, (took[1] - took[0]) / (_ROUNDS[1] - _ROUNDS[0]))
    return each, evaluation / len(data.labels)


def _timed(
    work: Callable[[], object], device: torch.device, parts: int, times: int | None = None
) -> float:
    """Median seconds of one of the ``parts`` of ``work``; the first time warms up.

    ``work`` is called ``times`` times, or as often as ``_STEPS`` and ``_SECONDS`` say.
    """
    took: list[float] = []
    started = time.perf_counter()
    while len(took) < (times or 2) or (
        not times and len(took) * parts < _STEPS and time.perf_counter() - started < _SECONDS
    ):
        before = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append((time.perf_counter() - before) / parts)
    return statistics.median(took[1:])
