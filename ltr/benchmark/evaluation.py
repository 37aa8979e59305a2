"""Model and metrics over full lists, all cutoffs together, ours and allRank's."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from ltr.benchmark import allrank_side, peers
from ltr.benchmark.training import config_of, first_lists
from ltr.benchmark.work import OURS, Answer, Case, Work
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.synthetic import SyntheticLists
from ltr.data.transforms import FeatureTransform
from ltr.experiment.build import build
from ltr.metrics import Convention, Metric
from ltr.training.evaluation import metrics_of_scores, predict

CUTOFFS = (*range(1, 11), 30)
CHECKED = 64  # lists whose metrics are compared, at scores that both sides are given
TOLERANCE = {"ndcg": 1e-5}  # ours are float64, allRank's float32


def cases(sizes: DictConfig) -> list[Case]:
    """The test lists of a synthetic set, never cut; the longest has up to 1,251 items."""
    settings = {"lists": int(sizes.test_lists), "batch_size": int(sizes.train_batch)}
    return [Case(f"{sizes.test_lists:,} full lists", settings, (OURS, "allrank"), TOLERANCE)]


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """NDCG at 11 cutoffs of an untrained model for one side."""
    count = int(settings["lists"])
    dataset = SyntheticLists(queries=3 * count, seed=0, cache_dir=cache_dir)
    lists = dataset.split("test")
    training = {"queries": 3, "loss": "neuralndcg", "list_size": 240} | dict(settings)
    cfg = config_of(training, device, cache_dir)
    experiment = build(cfg)
    transform = experiment.fit_transform(first_lists(lists, min(256, count)))
    checked = first_lists(lists, min(CHECKED, count))
    torch.manual_seed(0)
    if side == OURS:
        metrics = [Metric("ndcg", k) for k in CUTOFFS]
        model = experiment.model(lists.width).to(experiment.device)
        data = ItemTensors(lists, transform, experiment.device)
        items = experiment.settings.evaluation_items

        def call() -> None:
            """Score the lists, and compute every metric of every list."""
            scores = predict(model, data, items=items)
            metrics_of_scores(data, scores, metrics, experiment.convention, items=items)

        note = f"batches of {items:,} padded items"
        return Work(
            call,
            partial(_our_metrics, checked, metrics, experiment.convention),
            count,
            "lists",
            note,
        )
    model = allrank_side.model_of(cfg, lists.width).to(device)
    batches = allrank_side.loader(
        lists, transform, batch_size=int(settings["batch_size"]), list_size=None
    )
    return Work(
        partial(allrank_side.evaluated, model, batches, CUTOFFS, device),
        partial(_allranks_metrics, checked),
        count,
        "lists",
        f"batches of {settings['batch_size']} lists, all padded to {int(lists.lengths.max()):,}",
    )


def _scored(lists: Lists) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random scores, no two of a list equal, with the labels and the mask."""
    data = ItemTensors(lists, _no_features(lists.width))
    batch = data.batch(np.arange(len(lists)))
    rng = np.random.default_rng(0)
    scores = rng.random(batch.labels.shape).argsort(-1)
    return torch.from_numpy(scores).float(), batch.labels, batch.mask


def _no_features(width: int) -> FeatureTransform:
    zeros = np.zeros(width)
    return FeatureTransform(zeros.astype(np.int8), zeros + 1, zeros, zeros, 0.0)


def _our_metrics(lists: Lists, metrics: list[Metric], convention: Convention) -> Answer:
    scores, labels, mask = _scored(lists)
    values = [m(scores.double(), labels.double(), mask, convention) for m in metrics]
    return {"ndcg": torch.stack(values, -1).flatten().tolist()}


def _allranks_metrics(lists: Lists) -> Answer:
    ndcg = peers.need("allrank.models.metrics").ndcg
    scores, labels, mask = _scored(lists)
    values = ndcg(scores, labels.masked_fill(~mask, -1.0), ats=list(CUTOFFS))
    return {"ndcg": values.flatten().double().tolist()}
