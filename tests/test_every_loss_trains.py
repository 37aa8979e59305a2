"""Losses of each kind learn on synthetic lists, beyond what chance can reach."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose

from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.experiment.run import run
from ltr.metrics import ndcg
from ltr.scorers.parts import make_dataset

pytestmark = pytest.mark.slow

SETTINGS = [
    "model=mlp",
    "model.hidden_sizes=[16]",
    "dataset.queries=60",
    "list_size=24",
    "batch_size=10",
    "epochs=8",
    "optimizer.lr=0.01",
    "schedule=constant",
    "select=last",  # nothing is selected on the lists on which it is judged
    "metrics=[ndcg@10]",
    "select_on=ndcg@10",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lists are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def by_chance(cache: Path) -> tuple[float, float]:
    """Mean and standard deviation of NDCG@10 of 20 random scorers on the held-out lists."""
    lists = make_dataset(compose(*SETTINGS, f"cache_dir={cache}").dataset).split("vali")
    data = ItemTensors(lists, no_transform(lists))
    batch = data.batch(np.arange(len(lists)))
    found = []
    for seed in range(20):
        noise = torch.rand(batch.mask.shape, generator=torch.Generator().manual_seed(seed))
        found.append(ndcg(noise, batch.labels, batch.mask, k=10).mean().item())
    return float(np.mean(found)), float(np.std(found, ddof=1))


KINDS = ("neuralndcg", "lambdarank", "listmle", "rmse", "plrank", "sodeep", "distil", "mix")


@pytest.mark.parametrize("loss", KINDS)
def test_it_beats_the_untrained_model_and_chance(loss, cache, by_chance, tmp_path) -> None:
    mean, deviation = by_chance
    learns_from = []
    if loss == "distil":
        (tmp_path / "teacher").mkdir()
        run(compose(*SETTINGS, "loss=listnet", f"cache_dir={cache}"), tmp_path / "teacher", {})
        learns_from = [f"teacher={tmp_path}/teacher"]
    cfg = compose(*SETTINGS, f"loss={loss}", f"cache_dir={cache}", *learns_from)
    trained = run(cfg, tmp_path, {})["vali_ndcg@10"]
    results = json.loads((tmp_path / "results.json").read_text())
    assert trained > mean + 5 * deviation
    assert trained > results["untrained_vali"]["ndcg@10"] + 5 * deviation
