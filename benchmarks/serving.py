"""Time one list at a time, by PyTorch, ONNX Runtime and trees: python benchmarks/serving.py."""

import itertools
from functools import partial
from typing import Any

import common
import numpy as np
import peers
import torch
from common import OURS, Case, Work
from training import first

from ltr.boosting.model import FitData
from ltr.cli.compose import composed
from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.experiment.build import build
from ltr.inference.export.onnx import build_onnx

SIZES = {"lengths": ([10, 100, 1000], [3, 5]), "trees": (500, 2), "calls": (200, 4)}
TREES = ("lightgbm", "xgboost")


def work(side: str, *, model: str, items: int, keys: Any) -> Work:
    """Raw features of one list to its scores, for one side; networks are untrained."""
    place = f"device={keys.device}", f"cache_dir='{keys.cache_dir}'", f"epochs={keys.trees}"
    given = f"model={model}", "dataset=synthetic", "dataset.queries=100", "patience=null"
    experiment = build(composed("train", *given, *place, *["loss=neuralndcg"][model in TREES :]))
    lists = experiment.dataset.split("train")
    raw = np.ascontiguousarray(lists.features[np.resize(np.arange(lists.items), items)])
    score = (_trees if model in TREES else _network)(side, experiment, lists, raw, keys)
    return Work(score, lambda: {"scores": np.ravel(score())})


def _network(side: str, experiment: Any, lists: Any, raw: Any, keys: Any) -> Any:
    """PyTorch with the transform in NumPy, or a graph that holds the transform."""
    transform = experiment.fit_transform(lists)
    torch.manual_seed(0)
    network = experiment.make_model(lists.width).to(experiment.device).eval()
    mask = torch.ones(1, len(raw), dtype=torch.bool, device=experiment.device)
    if side == OURS:
        ranks = torch.arange(1, len(raw) + 1, device=experiment.device)[None]

        @torch.inference_mode()
        def score() -> Any:
            features = torch.from_numpy(transform(raw)).to(experiment.device)
            return network(features[None], mask, ranks).cpu().numpy()

        return score
    runtime = peers.need("onnxruntime")
    content = build_onnx(network, transform)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    given = {"features": raw[None], "mask": mask.cpu().numpy()}
    return lambda: session.run(["scores"], given)[0]


def _trees(side: str, experiment: Any, lists: Any, raw: Any, keys: Any) -> Any:
    """The library inside our model, or the library's own prediction."""
    trees, some = experiment.make_model(lists.width), first(lists, len(lists) // 2)
    data = FitData(ItemTensors(some, no_transform(some)), {}, experiment.settings)
    *_, last = itertools.islice(trees.rounds(data), keys.trees + 1)
    content, threads = last.state(), torch.get_num_threads()
    trees.restore(content)
    if side == OURS:
        mask, features = torch.ones(1, len(raw), dtype=torch.bool), torch.from_numpy(raw)[None]
        return lambda: trees(features, mask).numpy()
    booster = trees.load(content)
    if side == "lightgbm":
        return partial(booster.predict, raw, raw_score=True, num_threads=threads)
    booster.set_param({"nthread": threads})
    return partial(booster.inplace_predict, raw, predict_type="margin")


def cases(keys: Any) -> list[Case]:
    """A list of each length for every model, on one thread unless ``threads`` says otherwise."""
    torch.set_num_threads(keys.threads or 1)
    found = []
    for model in ("transformer", "mlp", *TREES):
        name = f"{model}, {keys.trees} trees" if model in TREES else model
        sides = (OURS, model if model in TREES else "onnxruntime")
        for n in keys.lengths:
            make = partial(work, model=model, items=n, keys=keys)
            found.append(Case(f"{name}, {n:,} items", make, sides, {"scores": 1e-5}))
    return found


if __name__ == "__main__":
    common.main("Serving: one list, one thread", cases, SIZES, latencies=True)
