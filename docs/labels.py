"""Print what each loss, metric and objective of a model does with labels of many kinds: tried.

python docs/labels.py    # the table of docs/reference/labels.md
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from tabulate import tabulate

from ltr.boosting import (
    AdaRank,
    BoostedTrees,
    CatBoost,
    LightGBM,
    PRank,
    RankBoost,
    RoundModel,
    XGBoost,
)
from ltr.boosting.model import FitData
from ltr.cli.compose import run_config
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError
from ltr.experiment.data_checks import check_loss_learns, check_metrics
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.metrics.spec import METRICS
from ltr.parts.components import build_settings
from ltr.testing.list_losses import import_function, loss_config, loss_names

KINDS = {
    "0 to 9": np.arange(10),
    "0 to 31": np.arange(32),
    "0 to 100": np.arange(101),
    "clicks, 0 to 5000": np.array([0, 0, 1, 2, 3, 10, 50, 400, 4999, 5000]),
    "real, 0 to 0.9": np.linspace(0, 0.9, 10),
}
YES, TOP, NO = "yes", "top", "no"
LINEAR = "all, gain=linear"
MEANING = f"""`{YES}` counts as said, with nothing to set. `{TOP}`: beside the largest label
one of half its size counts no more than 0. `{NO}` stops before training with a line that names the
label and says what to set or choose. Objectives of the tree libraries that count 2^y are as blind
as ndcg. The last column: all these labels under gain=linear; `-` has no gain."""
SPREAD = 16.0  # labels up to here count beside each other under 2^label and softmax
NOTHING = 1e-6  # what counts less than this share of the largest label counts nothing
_TREES: dict[tuple[type[BoostedTrees], str], str] = {
    (LightGBM, "lambdarank"): "the gain 2^y - 1",
    (LightGBM, "rank_xendcg"): "2^y, less a draw",
    (XGBoost, "rank:ndcg"): "the gain 2^y - 1",
    (XGBoost, "rank:pairwise"): "their order",
    (CatBoost, "YetiRank"): "their differences",
    (CatBoost, "YetiRankPairwise"): "their differences",
    (CatBoost, "PairLogit"): "their order",
    (CatBoost, "QueryRMSE"): "y, less the mean of its list",
}


def label_table() -> str:
    """A row for each loss, metric and objective, a column for each of ``KINDS``, and a legend."""
    rows = [
        [name, what, *map(tried, KINDS.values()), _all_of(linear) if linear else "-"]
        for name, what, tried, linear in _subjects()
    ]
    headers = ["", "what counts of a label y", *KINDS, LINEAR]
    return f"{tabulate(rows, headers, tablefmt='github', disable_numparse=True)}\n\n{MEANING}"


Tried = Callable[[np.ndarray], str]


def _all_of(tried: Tried) -> str:
    """What becomes of the labels of ``KINDS``, each outcome once."""
    return ", ".join(dict.fromkeys(map(tried, KINDS.values())))


def _subjects() -> Iterator[tuple[str, str, Tried, Tried | None]]:
    """The name of each row, what counts of a label, what becomes of some labels, and with a linear
    gain, where there is one.
    """
    for name in loss_names():
        config = loss_config(name)
        said = re.search(r"(?m)^# Labels: (.*)\.$", config.text)
        linear = partial(of_loss, name, gain="linear") if "gain" in config.values else None
        yield f"loss={name}", said[1] if said else "", partial(of_loss, name), linear
    for name in METRICS:
        metric = Metric(name)
        linear = partial(of_metric, metric, gain="linear") if "gain" in metric.parts else None
        yield name, _counted(metric), partial(of_metric, metric), linear
    for (trees, objective), what in _TREES.items():
        name = f"model={trees.library} model.objective={objective}"
        make = partial(trees, objective=objective, options=None)
        yield name, what, partial(of_rounds, make), None
    yield "model=adarank", "as model.metric counts it", partial(of_rounds, AdaRank), None
    yield "model=rankboost", "their order", partial(of_rounds, RankBoost), None
    yield "model=prank", "y, a grade", partial(of_rounds, PRank), None


def of_loss(name: str, labels: np.ndarray, **knobs: str) -> str:
    """What becomes of ``labels`` under ``loss=name`` with these ``knobs``."""
    config = loss_config(name)
    values, largest = config.values | knobs, float(labels.max())
    if "levels" in values:
        values["levels"] = levels_for(largest)
    loss = partial(import_function(config.target), **values)
    try:
        check_loss_learns(loss, _lists(labels))
    except ConfigError:
        return NO
    return TOP if loss_drowns(loss, largest) else YES


def of_metric(metric: Metric, labels: np.ndarray, gain: str = "exp2") -> str:
    """What becomes of ``labels`` under ``metric``."""
    largest = float(labels.max())
    convention = Convention(levels=levels_for(largest), gain=gain)
    try:
        check_metrics("data", _lists(labels), [metric], convention)
    except ConfigError:
        return NO
    return TOP if metric_drowns(metric, convention, largest) else YES


def loss_drowns(loss: partial, largest: float) -> bool:
    """Whether beside a label ``largest`` half of it counts no more for ``loss`` than 0.

    So it is with 2^label and with the softmax of labels. A threshold, ``relevant``, is meant so.
    """
    if largest < SPREAD or "relevant" in loss.keywords:
        return False
    scores, slopes = torch.linspace(-1, 1, 3)[None], []
    for labels in ((0.0, largest / 2), (largest / 2, 0.0)):  # no ties, which some losses draw
        torch.manual_seed(0)
        given = scores.clone().requires_grad_()
        found = loss(given, torch.tensor([[*labels, largest]]), torch.ones(1, 3, dtype=torch.bool))
        slopes.append(torch.autograd.grad(found.sum(), given)[0])
    one, other = slopes
    return bool((one - other).abs().max() < NOTHING * other.abs().max())


def metric_drowns(metric: Metric, convention: Convention, largest: float) -> bool:
    """Whether ``metric`` of the whole list does not see which of 0 and half of it comes first."""
    powers = "levels" in metric.parts or ("gain" in metric.parts and convention.gain == "exp2")
    if largest < SPREAD or not powers:
        return False
    whole, scores = replace(metric, k=None), torch.tensor([[3.0, 2.0, 1.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    lower, higher = (
        float(whole(scores, torch.tensor([[*middle, largest]]).double(), mask, convention))
        for middle in ((0.0, largest / 2), (largest / 2, 0.0))
    )
    return not higher > lower * (1 + NOTHING)


def of_rounds(make: Callable[[int], RoundModel], labels: np.ndarray) -> str:
    """What becomes of ``labels`` under the objective of a model fitted by rounds."""
    lists = _lists(labels)
    train = ItemTensors(lists, no_transform(lists))
    settings = build_settings(run_config(["epochs=1", "batch_size=1"])[0])
    try:
        _, after = itertools.islice(
            make(lists.width).rounds(FitData(train, {"train": train}, settings)), 2
        )
    except DataError:
        return NO
    return YES if np.isfinite(after.scores["train"]).all() else "not finite"


def _counted(metric: Metric) -> str:
    parts = {
        "gain": "the gain of y (2^y - 1, y, or a table)",
        "relevant": "whether y is at least convention.relevant",
        "levels": "(2^y - 1) / 2^(convention.levels - 1)",
    }
    return next((text for key, text in parts.items() if key in metric.parts), "y")


def _lists(labels: np.ndarray) -> Lists:
    """Ten lists of ``labels`` with a feature that goes with them and one that does not."""
    order = np.argsort(np.sin(np.arange(1, len(labels) + 1) * 12.9898))
    features = np.stack([np.arange(len(labels)), order], 1).astype(np.float32)
    return Lists(
        features=np.tile(features, (10, 1)),
        labels=np.tile(labels.astype(np.float32), 10),
        offsets=np.arange(11) * len(labels),
        qids=np.arange(10).astype(str),
    )


if __name__ == "__main__":
    print(label_table())
