"""Time model and metrics over full lists, all cutoffs together: python benchmarks/evaluation.py."""

from functools import partial
from typing import Any

import common
import numpy as np
import peers
import torch
import training
from common import OURS, Case, Work

from ltr.data.batches import ItemTensors
from ltr.data.synthetic import SyntheticLists
from ltr.experiment.build import build
from ltr.metrics import Metric
from ltr.training.evaluation import metrics_of_scores, predict

CUTOFFS = [*range(1, 11), 30]
SIZES = {"lists": 6306, "batch_size": 64, "list_size": 240}
SMALL = {"lists": 6, "batch_size": 4}


def work(side: str, *, keys: Any) -> Work:
    """NDCG at 11 cutoffs of an untrained model for one side, over lists that are never cut."""
    cfg = training.config(OURS, "neuralndcg", 3, keys)
    experiment, drawn = build(cfg), {"queries": 3 * keys.lists, "cache_dir": keys.cache_dir}
    lists = SyntheticLists(seed=0, **drawn).split("test")
    transform = experiment.fit_transform(training.first(lists, min(256, keys.lists)))
    torch.manual_seed(0)
    # Both get the same scores of some lists, no two of a list equal, and must agree on them.
    few = training.first(lists, min(64, keys.lists))
    mask = torch.from_numpy(np.arange(few.lengths.max()) < few.lengths[:, None])
    labels = torch.zeros(mask.shape).masked_scatter(mask, torch.from_numpy(few.labels.copy()))
    scores = torch.from_numpy(np.random.default_rng(0).random(mask.shape).argsort(-1)).float()
    if side == OURS:
        metrics = [Metric("ndcg", k) for k in CUTOFFS]
        items, convention = experiment.settings.evaluation_items, experiment.convention
        model = experiment.model(lists.width).to(experiment.device)
        data = ItemTensors(lists, transform, experiment.device)

        def call() -> object:
            found = predict(model, data, items=items)
            return metrics_of_scores(data, found, metrics, convention, items=items)

        given = scores.double(), labels.double(), mask, convention
        ndcg = torch.stack([metric(*given) for metric in metrics], -1)
        note = f"batches of {items:,} padded items"
    else:
        model = peers.allrank_model(cfg.model, lists.width).to(experiment.device).eval()
        batches = peers.allrank_loader(lists, transform, keys.batch_size, None)
        compute = peers.need("allrank.training.train_utils").compute_metrics
        marked = labels.masked_fill(~mask, -1.0)
        ndcg = peers.need("allrank.models.metrics").ndcg(scores, marked, ats=CUTOFFS)

        @torch.no_grad()
        def call() -> object:
            return compute({"ndcg": CUTOFFS}, model, batches, experiment.device)

        note = f"batches of {keys.batch_size} lists, all padded to {int(lists.lengths.max()):,}"
    return Work(call, lambda: {"ndcg": ndcg.numpy()}, note, keys.lists)


def cases(keys: Any) -> list[Case]:
    """The test lists of a synthetic set; ours are float64, allRank's float32."""
    make = partial(work, keys=keys)
    return [Case(f"{keys.lists:,} full lists", make, (OURS, "allrank"), {"ndcg": 1e-5})]


if __name__ == "__main__":
    common.main("Evaluation", cases, SIZES, SMALL)
