"""Time serving: one list at a time, scored in PyTorch, by ONNX Runtime and by tree libraries."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig

from ltr.benchmark import peers
from ltr.benchmark.training import config_of, first_lists
from ltr.benchmark.worker import OURS, Case, Work
from ltr.console.compose import composed
from ltr.data.batches import ItemTensors
from ltr.data.synthetic import SyntheticLists
from ltr.data.transforms import no_transform
from ltr.experiment.build import build
from ltr.rounds.model import FitData, RoundModel
from ltr.trees import BoostedTrees

ONNX = "onnxruntime"
NETWORKS, TREES = ("transformer", "mlp"), ("lightgbm", "xgboost")
TOLERANCE = {"scores": 1e-5}
_QUERIES = 100  # lists that trees are grown on, and that items are taken of


def cases(sizes: DictConfig) -> list[list[Case]]:
    """A list of each length for every model; the lengths of a model grow."""
    found = []
    for model in (*NETWORKS, *TREES):
        sides = (OURS, ONNX if model in NETWORKS else model)
        settings = {"model": model, "trees": int(sizes.serving_trees)}
        what = model if model in NETWORKS else f"{model}, {sizes.serving_trees} trees"
        found.append(
            [
                Case(f"{what}, {int(n):,} items", settings | {"items": int(n)}, sides, TOLERANCE)
                for n in sizes.serving_items
            ]
        )
    return found


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """Raw features of one list to its scores, for one side; networks are untrained."""
    model, items = str(settings["model"]), int(settings["items"])
    lists = SyntheticLists(queries=_QUERIES, seed=0, cache_dir=cache_dir).split("train")
    rows = np.resize(np.arange(lists.items), items)
    raw = np.ascontiguousarray(lists.features[rows])
    if model in TREES:
        score, note = _trees(side, model, raw, int(settings["trees"]), cache_dir)
    else:
        score, note = _network(side, model, raw, device, cache_dir)
    return Work(
        call=score,
        answer=lambda: {"scores": np.asarray(score(), np.float64).ravel().tolist()},
        unit="lists",
        note=note,
    )


def _network(
    side: str, model: str, raw: NDArray[np.float32], device: str, cache_dir: str
) -> tuple[Callable[[], Any], str]:
    cfg = config_of(
        {"queries": _QUERIES, "loss": "neuralndcg", "batch_size": 64, "list_size": 240},
        device, cache_dir,
    )  # fmt: skip
    if model != "transformer":
        cfg.model = composed("train", f"model={model}", "loss=neuralndcg").model
    experiment = build(cfg)
    lists = experiment.dataset.split("train")
    transform = experiment.fit_transform(lists)
    torch.manual_seed(0)
    network = experiment.model(lists.width).to(experiment.device).eval()
    if side == ONNX:
        return _by_onnx(network, transform, raw), "the graph holds the transform"
    mask = torch.ones(1, len(raw), dtype=torch.bool, device=experiment.device)
    ranks = torch.arange(1, len(raw) + 1, device=experiment.device)[None]

    @torch.inference_mode()
    def score() -> NDArray[np.float32]:
        features = torch.from_numpy(transform(raw)).to(experiment.device)
        return network(features[None], mask, ranks).cpu().numpy()

    return score, "networks: PyTorch, the transform in NumPy"


def _by_onnx(
    network: torch.nn.Module, transform: Any, raw: NDArray[np.float32]
) -> Callable[[], Any]:
    from ltr.export import onnx as exporter  # the exporter of PyTorch is slow to import

    runtime = peers.need("onnxruntime")
    content = exporter.onnx_of_network(network, transform).files[exporter.NAME]
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    given = {"features": raw[None], "mask": np.ones((1, len(raw)), bool)}
    return lambda: session.run(["scores"], given)[0]


def _trees(
    side: str, model: str, raw: NDArray[np.float32], count: int, cache_dir: str
) -> tuple[Callable[[], Any], str]:
    experiment = build(
        composed(
            "train", f"model={model}", f"epochs={count}", "dataset=synthetic", "patience=null",
            f"dataset.queries={_QUERIES}", f"cache_dir='{cache_dir}'",
        )
    )  # fmt: skip
    some = first_lists(experiment.dataset.split("train"), _QUERIES // 2)
    trees = experiment.model(some.width)
    assert isinstance(trees, BoostedTrees)
    rounds = trees.rounds(FitData(ItemTensors(some, no_transform(some)), rounds=count))
    *_, last = itertools.islice(rounds, count + 1)
    content = last.state()
    trees.take(content)
    if side != OURS:
        return _native(model, trees.load(content), raw), "trees: the library's own prediction"
    return _ours(trees, raw), "trees: the library inside our model"


def _ours(trees: RoundModel, raw: NDArray[np.float32]) -> Callable[[], Any]:
    mask = torch.ones(1, len(raw), dtype=torch.bool)
    features = torch.from_numpy(raw)[None]
    return lambda: trees(features, mask).numpy()


def _native(model: str, booster: Any, raw: NDArray[np.float32]) -> Callable[[], Any]:
    if model == "lightgbm":
        return lambda: booster.predict(raw, raw_score=True, num_threads=torch.get_num_threads())
    booster.set_param({"nthread": torch.get_num_threads()})
    return lambda: booster.inplace_predict(raw, predict_type="margin")
