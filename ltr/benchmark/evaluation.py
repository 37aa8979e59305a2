"""Time evaluation: model and metrics over full lists, all cutoffs together, ours and allRank's."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from ltr.benchmark import peers
from ltr.benchmark.training import config_of, first_lists
from ltr.benchmark.worker import OURS, Case, Work
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.synthetic import SyntheticLists
from ltr.experiment.build import build
from ltr.metrics import Metric
from ltr.training.evaluation import metrics_of_scores, predict

CUTOFFS = [*range(1, 11), 30]
CHECKED = 64  # lists whose metrics are compared, at scores that both sides are given
TOLERANCE = {"ndcg": 1e-5}  # ours are float64, allRank's float32


def cases(sizes: DictConfig) -> list[Case]:
    """The test lists of a synthetic set, never cut; the longest has up to 1,251 items."""
    settings = {"lists": int(sizes.test_lists), "batch_size": int(sizes.train_batch)}
    return [Case(f"{sizes.test_lists:,} full lists", settings, (OURS, "allrank"), TOLERANCE)]


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """NDCG at 11 cutoffs of an untrained model for one side."""
    count, batch_size = int(settings["lists"]), int(settings["batch_size"])
    lists = SyntheticLists(queries=3 * count, seed=0, cache_dir=cache_dir).split("test")
    sizes = {"queries": 3, "loss": "neuralndcg", "batch_size": batch_size, "list_size": 240}
    cfg = config_of(sizes, device, cache_dir)
    experiment = build(cfg)
    transform = experiment.fit_transform(first_lists(lists, min(256, count)))
    scores, labels, mask = _scored(first_lists(lists, min(CHECKED, count)))
    torch.manual_seed(0)
    if side == OURS:
        metrics = [Metric("ndcg", k) for k in CUTOFFS]
        items, convention = experiment.settings.evaluation_items, experiment.convention
        model = experiment.model(lists.width).to(experiment.device)
        data = ItemTensors(lists, transform, experiment.device)

        def call() -> object:
            """Score the lists, and compute every metric of every list."""
            found = predict(model, data, items=items)
            return metrics_of_scores(data, found, metrics, convention, items=items)

        def ndcg() -> Tensor:
            given = scores.double(), labels.double(), mask, convention
            return torch.stack([metric(*given) for metric in metrics], -1)

        note = f"batches of {items:,} padded items"
    else:
        model = peers.allrank_model(cfg, lists.width).to(device)
        data = peers.allrank_loader(lists, transform, batch_size=batch_size, list_size=None)
        compute = peers.need("allrank.training.train_utils").compute_metrics
        theirs = peers.need("allrank.models.metrics").ndcg

        @torch.no_grad()
        def call() -> object:
            """NDCG at all cutoffs by allRank's ``compute_metrics``."""
            model.eval()
            return compute({"ndcg": CUTOFFS}, model, data, torch.device(device))

        def ndcg() -> Tensor:
            return theirs(scores, labels.masked_fill(~mask, -1.0), ats=CUTOFFS).double()

        note = f"batches of {batch_size} lists, all padded to {int(lists.lengths.max()):,}"
    return Work(call, lambda: {"ndcg": ndcg().flatten().tolist()}, count, "lists", note)


def _scored(lists: Lists) -> tuple[Tensor, Tensor, Tensor]:
    """Random scores, no two of a list equal, with the labels and the mask."""
    mask = np.arange(lists.lengths.max()) < lists.lengths[:, None]
    labels = np.zeros(mask.shape, np.float32)
    labels[mask] = lists.labels
    scores = np.random.default_rng(0).random(mask.shape).argsort(-1)
    return torch.from_numpy(scores).float(), torch.from_numpy(labels), torch.from_numpy(mask)
