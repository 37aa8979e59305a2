"""About how long the runs of a table take: a few steps of each row, measured on this machine."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tabulate import tabulate
from tqdm import tqdm

from ltr.data.batches import ItemTensors, train_batches
from ltr.data.dataset import SPLITS
from ltr.data.lists import Lists
from ltr.data.published.archives import SETS, Known
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError, LTRError
from ltr.experiment.build import build, make_dataset
from ltr.experiment.table.plan import Run
from ltr.training.device import describe_device, pick_device
from ltr.training.evaluation import evaluate
from ltr.training.step import Stepper

_STEPS, _SECONDS = 8, 6.0  # measured of a row: so many steps, or as many as go into the seconds
_LISTS = 200  # evaluated
_SPREAD = 0.75  # standard deviation of the log of a list's length, about Web30K's
_RELEVANT = 0.3  # share of the items that are relevant, by chance one of the grades


@dataclass(frozen=True)
class Shape:
    """What of a data set decides how long a run takes.

    Attributes:
        lists: by split.
        length: mean number of items of a list.
        longest: of a list, or None where it is not known.
        known: whether it was counted in the data themselves.
    """

    lists: dict[str, int]
    length: float
    longest: int | None
    known: bool


@dataclass(frozen=True)
class Cost:
    """Seconds of one run, and what they are made of.

    Attributes:
        step: seconds of a training step.
        steps: in an epoch.
        epochs: as planned; a run that stops early takes less.
        evaluation: seconds of one evaluation of vali.
        last: seconds of the evaluations of vali and test at the end.
    """

    step: float
    steps: int
    epochs: int
    evaluation: float
    last: float

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        after_epochs = (self.epochs + 1) * self.evaluation
        return self.epochs * self.steps * self.step + after_epochs + self.last


def expected(runs: Sequence[Run], workers: int) -> str:
    """How long what is missing will take, from the finished runs of the same row, or of any."""
    took = finished(runs)
    todo = [run for run in runs if not run.done]
    if not todo:
        return "nothing to run"
    if not took:
        return f"{workers} at a time"
    overall = statistics.median(value for values in took.values() for value in values)
    seconds = sum(statistics.median(took.get(run.label, [overall])) for run in todo) / workers
    return f"{workers} at a time, about {in_words(seconds)} as the finished ones took"


def finished(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Seconds that the finished runs took, by row."""
    took: dict[str, list[float]] = {}
    for run in runs:
        if run.done:
            results = json.loads((run.folder / "results.json").read_text())
            took.setdefault(run.label, []).append(float(results["wall_seconds"]))
    return took


def estimate(runs: Sequence[Run], *, workers: int, threads: int) -> str:
    """What the runs to do will take, row by row and in all, and how that was found.

    A row of which a run is finished takes what that took. Of every other a few training steps and
    an evaluation are measured, on drawn lists of the shape of the data set: the model, the loss,
    the batches and the device are the row's own, the features are noise.

    Args:
        runs: of a table, those that are done too.
        workers: runs at a time.
        threads: of each.
    """
    took = finished(runs)
    todo: dict[str, list[Run]] = {}
    for run in runs:
        if not run.done:
            todo.setdefault(run.label, []).append(run)
    lines, total, unknown = [], 0.0, []
    before = torch.get_num_threads()
    for label, own in tqdm(todo.items(), desc="measuring", unit="row", leave=False, disable=None):
        if label in took:
            seconds, how = statistics.median(took[label]), "as its finished runs took"
        else:
            try:
                torch.set_num_threads(int(own[0].config.threads or threads))
                cost = measured(own[0])
            except LTRError as error:
                lines.append([label, len(own), "not estimated", str(error)])
                unknown.append(label)
                continue
            finally:
                torch.set_num_threads(before)
            seconds = cost.seconds
            how = (
                f"{cost.epochs} epochs of {cost.steps} steps of {cost.step:.3f} s, evaluation "
                f"{cost.evaluation:.1f} s"
            )
        lines.append([label, len(own), in_words(seconds), how])
        total += seconds * len(own)
    table = tabulate(lines, ["row", "runs", "each", "made of"], disable_numparse=True)
    device = describe_device(pick_device(runs[0].config.device))
    rest = f"; without {', '.join(unknown)}" if unknown else ""
    return (
        f"{table}\n\n"
        f"in all {in_words(total)}, {in_words(total / workers)} with {workers} at a time{rest}\n"
        f"an estimate for {device}, {threads} threads a run, each row measured alone: runs side by "
        "side share memory and caches and take longer\n"
        f"{_source(runs[0])}"
    )


def _source(run: Run) -> str:
    try:
        shape = shape_of(run)
    except DataError as error:
        return str(error)
    lists = ", ".join(f"{split} {shape.lists[split]:,}" for split in SPLITS)
    where = "counted in the data" if shape.known else "as published; the data are not here"
    return f"lists {lists}, {shape.length:.0f} items in the mean, {where}"


def measured(run: Run) -> Cost:
    """The cost of ``run``, from a few steps of its own model and loss.

    Raises:
        ConfigError, DataError: it cannot be built, is no network, or its data are not known.
    """
    shape = shape_of(run)
    config = run.config.copy()
    if not str(config.model.get("_target_")).startswith("ltr.models."):
        raise ConfigError("trees are not measured, a finished run tells")
    experiment = build(config)
    settings = experiment.settings
    width = int(config.dataset.get("width") or experiment.dataset.width)
    torch.manual_seed(0)
    lists = drawn_lists(shape, max(_LISTS, 2 * settings.batch_size), width)
    data = ItemTensors(lists, no_transform(lists), experiment.device)
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
    each = -(-len(lists) // settings.batch_size)
    step = _timed(steps, experiment.device, each)

    def evaluation() -> None:
        """Evaluate the drawn lists once."""
        evaluate(
            model,
            data,
            experiment.metrics,
            experiment.convention,
            items=settings.evaluation_items,
            precision=settings.precision,
        )

    of_item = _timed(evaluation, experiment.device, 1) / lists.items
    of_split = {split: of_item * shape.length * count for split, count in shape.lists.items()}
    monitored = dict.fromkeys((*settings.monitor, "vali"))
    return Cost(
        step=step,
        steps=-(-shape.lists["train"] // settings.batch_size),
        epochs=settings.epochs,
        evaluation=sum(of_split[split] for split in monitored),
        last=of_split["vali"] + 2 * of_split["test"],  # metrics, then the scores that are kept
    )


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
        longest = max(int(lists.lengths.max()) for lists in splits.values())
        return Shape(count, items / sum(count.values()), longest, known=True)
    name = str(run.config.dataset.name)
    if name not in SETS:
        raise DataError(run.absent)
    known = [record for record in SETS[name].known if record.fold == run.fold]
    both = [(r.rows / r.lists, len(r.splits)) for r in known if r.rows and r.lists]
    length = max(both, key=lambda pair: pair[1])[0]
    return Shape(_lists_by_split(known, SETS[name].vali_share), length, None, known=False)


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
    """``count`` lists of noise whose lengths are spread as search results are, the same each time.

    Lengths are lognormal with the mean of ``shape``; a third of the items is relevant.
    """
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(-(_SPREAD**2) / 2, _SPREAD, count) * shape.length
    longest = shape.longest or round(10 * shape.length)
    lengths = np.clip(np.rint(lengths), 1, longest).astype(np.int64)
    items = int(lengths.sum())
    labels = np.where(rng.random(items) < _RELEVANT, rng.integers(1, 3, items), 0)
    return Lists(
        features=rng.standard_normal((items, width), dtype=np.float32),
        labels=labels.astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        qids=np.arange(count).astype(str),
    )


def _timed(work: Callable[[], object], device: torch.device, parts: int) -> float:
    """Median seconds of a part of ``work``, which has ``parts``; the first time warms up."""
    took: list[float] = []
    started = time.perf_counter()
    while len(took) < 2 or (
        len(took) * parts < _STEPS and time.perf_counter() - started < _SECONDS
    ):
        before = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append((time.perf_counter() - before) / parts)
    return statistics.median(took[1:])


def in_words(seconds: float) -> str:
    """A duration in the unit that fits.

    >>> in_words(40), in_words(400), in_words(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
