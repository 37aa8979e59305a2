"""Time model and metrics over full lists, all cutoffs together: python benchmarks/evaluation.py."""

from functools import partial
from typing import Any

import common
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
SIZES = {"lists": (6306, 6), "batch_size": (64, 4), "list_size": (240, 240)}


def work(side: str, *, keys: Any) -> Work:
    """NDCG at 11 cutoffs of an untrained model for one side, over lists that are never cut."""
    cfg = training.config(OURS, "neuralndcg", 3, keys)
    parts, drawn = build(cfg), {"queries": 3 * keys.lists, "cache_dir": keys.cache_dir}
    lists = SyntheticLists(seed=0, **drawn).split("test")
    transform = parts.fit_transform(training.first(lists, min(256, keys.lists)))
    torch.manual_seed(0)
    if side == OURS:
        metrics, items = [Metric("ndcg", k) for k in CUTOFFS], parts.settings.evaluation_items
        model = parts.make_model(lists.width).to(parts.device)
        data = ItemTensors(lists, transform, parts.device)

        def call() -> object:
            found = predict(model, data, items=items)
            return metrics_of_scores(data, found, metrics, parts.convention, items=items)

        return Work(call, note=f"batches of {items:,} padded items", amount=keys.lists)
    model = peers.allrank_model(cfg.model, lists.width).to(parts.device).eval()
    batches = peers.allrank_loader(lists, transform, keys.batch_size, None)
    compute = peers.need("allrank.training.train_utils").compute_metrics
    score = torch.no_grad()(partial(compute, {"ndcg": CUTOFFS}, model, batches, parts.device))
    return Work(score, note=f"batches of {keys.batch_size} lists, all padded", amount=keys.lists)


def cases(keys: Any) -> list[Case]:
    """The test lists of a synthetic set."""
    return [Case(f"{keys.lists:,} full lists", partial(work, keys=keys), (OURS, "allrank"))]


if __name__ == "__main__":
    common.main("Evaluation", cases, SIZES)
