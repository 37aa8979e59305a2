"""Losses of each kind learn on synthetic lists, beyond what chance can reach."""

import json
from pathlib import Path

import pytest
from conftest import compose

from ltr.experiment.run import run

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


KINDS = ("neuralndcg", "lambdarank", "listmle", "rmse", "plrank", "sodeep", "distil", "mix")


@pytest.mark.parametrize("loss", KINDS)
def test_it_beats_the_untrained_model(loss, cache, tmp_path) -> None:
    learns_from = []
    if loss == "distil":
        (tmp_path / "teacher").mkdir()
        run(compose(*SETTINGS, "loss=listnet", f"cache_dir={cache}"), tmp_path / "teacher", {})
        learns_from = [f"teacher={tmp_path}/teacher"]
    cfg = compose(*SETTINGS, f"loss={loss}", f"cache_dir={cache}", *learns_from)
    trained = run(cfg, tmp_path, {})["vali_ndcg@10"]
    untrained = json.loads((tmp_path / "results.json").read_text())["untrained_vali"]["ndcg@10"]
    assert trained > untrained + 0.1  # several standard deviations of random scores
