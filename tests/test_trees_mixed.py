"""Trees on categories, missing values and weights: what the libraries themselves make of them."""

import numpy as np
import pandas as pd
import pytest
import torch
from made_columns import mixed_data, train_mixed
from made_trees import LIBRARIES, SMALL, needed
from numpy.typing import NDArray

from ltr.console.compose import typed
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.errors import CheckpointError
from ltr.inference.explain.importances import importances
from ltr.scorers.scorer import load_model
from ltr.training.evaluation import predict

ROUNDS = 8


def theirs(library: str, train: Lists, test: Lists) -> NDArray[np.floating]:
    """The scores of ``test`` by the ranker of the library as its users call it."""
    qid = np.repeat(np.arange(len(train)), train.lengths)
    module = pytest.importorskip(library)
    if library == "lightgbm":
        ranker = module.LGBMRanker(
            n_estimators=ROUNDS, min_child_samples=3, num_leaves=4, seed=1, verbose=-1,
            deterministic=True, force_row_wise=True, n_jobs=1,
        )  # fmt: skip
        weights = None if train.weights is None else np.repeat(train.weights, train.lengths)
        ranker.fit(
            train.features, train.labels, group=train.lengths, sample_weight=weights,
            categorical_feature=[1, 3],
        )  # fmt: skip
        return ranker.predict(test.features)
    if library == "xgboost":
        ranker = module.XGBRanker(
            n_estimators=ROUNDS, max_depth=2, learning_rate=0.1, tree_method="hist", base_score=0.0,
            random_state=1, feature_types=["q", "c", "q", "c"], enable_categorical=True, n_jobs=1,
            lambdarank_pair_method="topk", lambdarank_num_pair_per_sample=32,
        )  # fmt: skip
        ranker.fit(train.features, train.labels, qid=qid, sample_weight=train.weights)
        return ranker.predict(test.features)
    ranker = module.CatBoostRanker(
        iterations=ROUNDS, depth=2, learning_rate=0.1, loss_function="YetiRank", random_seed=1,
        thread_count=1, allow_writing_files=False, silent=True, random_strength=1.0,
        l2_leaf_reg=3.0, border_count=254,
    )  # fmt: skip
    weights = None if train.weights is None else np.repeat(train.weights, train.lengths)
    ranker.fit(
        as_table(train.features), train.labels, group_id=qid, group_weight=weights,
        cat_features=[1, 3],
    )  # fmt: skip
    return ranker.predict(as_table(test.features))


def as_table(features: NDArray[np.float32]) -> pd.DataFrame:
    table = pd.DataFrame(features)
    for column in (1, 3):
        table[column] = [str(int(v)) if v == v else "-1" for v in features[:, column]]
    return table


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_scores_are_those_of_the_library_s_own_ranker(library, weights, tmp_path) -> None:
    needed(library)
    data = mixed_data(weights=weights)
    train_mixed(
        tmp_path / "run", data, f"model={library}", *SMALL[library], f"epochs={ROUNDS}",
        "select=last", "threads=1",
    )  # fmt: skip
    ours = pd.read_csv(tmp_path / "run" / "scores.csv").score.to_numpy(np.float32)
    expected = theirs(library, data.split("train"), data.split("test")).astype(np.float32)
    assert np.isfinite(ours).all()
    assert len(set(ours)) > 8
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "more"),
    [("lightgbm", ["loss=ranknet"]), ("xgboost", ["loss=neuralndcg"]), ("catboost", [])],
)
def test_trees_split_on_categories_and_missing_values_and_are_kept(model, more, tmp_path) -> None:
    needed(model)
    out, data = tmp_path / "run", mixed_data()
    args = (f"model={model}", *SMALL[model], *more, "epochs=30", "select=last")
    assert train_mixed(out, data, *args)["test_ndcg@5"] > 0.8
    kept = load_model(str(out), torch.device("cpu"))
    assert kept.model.categories == [1, 3]
    gain = kept.model.importances().gain
    assert gain.argmax() == 1, "the brand tells most of the label"
    assert gain[0] > 0, "a price tells something where it is missing"
    test = ItemTensors(data.split("test"), kept.transform)
    assert test.features[:, :2].isnan().any(0).all()
    tested = pd.read_csv(out / "scores.csv").score.to_numpy(np.float32)
    np.testing.assert_array_equal(predict(kept.model, test).numpy(), tested)
    lines = importances(typed("importances", [str(out), f"write={tmp_path}"])).splitlines()
    assert lines[1].split()[:3] == ["feature", "name", "share"]
    assert lines[3].split()[:3] == ["2", "brand", "(category)"]
    table = pd.read_csv(tmp_path / "importances.csv").sort_values("feature")
    assert table.category.tolist() == [False, True, False, True]
    if model == "catboost":
        kept.model.categories = [1]
        with pytest.raises(CheckpointError, match="have other categories than their config"):
            kept.model.take(kept.model.content)
