"""Training on real lists, where ``LTR_DATA_DIR`` names a folder that has them."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from conftest import compose, real_data

from ltr.experiment.build import build
from ltr.experiment.run import run

pytestmark = [pytest.mark.slow, real_data]


def overrides(tmp_path, *more: str) -> list[str]:
    return [f"data_dir={os.environ['LTR_DATA_DIR']}", f"cache_dir={tmp_path}/cache", *more]


@pytest.fixture
def sample(tmp_path) -> list[str]:
    return overrides(
        tmp_path, "dataset=letor", "dataset.folder=MSLR-WEB-sample", "dataset.fold=1",
        "transform=web30k", "evaluation_items=8192",
    )  # fmt: skip


def test_raw_mslr_features_stay_finite_and_a_model_learns_from_32_lists(sample, tmp_path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    experiment = build(compose(*sample))
    train = experiment.dataset.split("train")
    transform = experiment.fit_transform(train)
    for split in ("train", "vali", "test"):
        lists = experiment.dataset.split(split)
        assert lists.width == 136
        features = transform(lists.features)
        assert np.isfinite(features).all()
        assert np.abs(features).max() < 1e3
    got = run(compose(*sample, "model=mlp", "loss=listnet", "epochs=20"), out, {})
    results = json.loads((out / "results.json").read_text())
    assert got["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.02
    history = pd.read_csv(out / "history.csv")
    assert np.isfinite(history.drop(columns="epoch").iloc[1:].to_numpy()).all()


def test_mq2008_trains_and_counts_its_empty_lists(tmp_path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    args = overrides(tmp_path, "dataset=mq2008", "model=mlp", "loss=listnet", "epochs=10")
    got = run(compose(*args), out, {})
    results = json.loads((out / "results.json").read_text())
    assert results["data"]["test"]["empty_lists"] == 51
    assert len(pd.read_csv(out / "queries.csv")) == 156
    assert got["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.05
