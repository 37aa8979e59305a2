"""CatBoost: boosted symmetric trees."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from ltr.arrays import Floats, Reals
from ltr.boosting.model import FitData, Importances, Round, scores_to_float32
from ltr.boosting.trees import RESERVED, BoostedTrees
from ltr.data.batches import ItemTensors


class CatBoost(BoostedTrees):
    """Boosted trees of CatBoost (Prokhorenkova et al., 2018).

    CatBoost does all rounds in one call, and the rounds are evaluated one by one afterwards. So
    ``patience=`` stops the evaluation but saves no training time. CatBoost cannot be fitted to a
    loss of ``ltr.losses``, because it splits lists before it passes them to an objective written in
    Python. Its own objectives are ``"YetiRank"`` (Gulin et al., 2011), ``"YetiRankPairwise"``,
    ``"PairLogit"`` and ``"QueryRMSE"``.
    """

    library = "catboost"
    error = "CatBoostError"
    title = "CatBoost"
    objectives = ("YetiRank", "YetiRankPairwise", "PairLogit", "QueryRMSE")
    reserved: ClassVar = {
        **RESERVED,
        "only symmetric trees can be cut at the best round: leave this option out, or use "
        "model=lightgbm (trees grown by leaf) or model=xgboost (by level)": "grow_policy",
    }
    accepts_losses = False

    def grow(self, data: FitData) -> Iterator[Round]:
        """Do all rounds in one call, then yield them one by one."""
        booster = self._fit(data)
        zeros = {
            split: np.zeros(len(lists.labels), np.float32) for split, lists in data.scored.items()
        }
        latest = self.round(data, booster, 0, zeros)
        yield latest
        stages = {
            split: booster.staged_predict(self._table(lists), thread_count=torch.get_num_threads())
            for split, lists in data.scored.items()
        }
        for trees in range(1, data.settings.epochs + 1):
            if trees <= booster.tree_count_:
                scores = {split: scores_to_float32(next(stage)) for split, stage in stages.items()}
                latest = self.round(data, booster, trees, scores)
            yield latest

    def _fit(self, data: FitData) -> Any:
        """Return the booster after all rounds; if ``epochs`` is 0, it is not fitted."""
        train = data.train
        on_gpu = train.device.type == "cuda"
        threads = torch.get_num_threads()
        params = self.params | {
            "loss_function": self.own_objective(),
            "iterations": data.settings.epochs,
            "random_seed": data.settings.seed,
            "thread_count": threads,
            "task_type": "GPU" if on_gpu else "CPU",
            "allow_writing_files": False,
            "logging_level": "Silent",
        }
        booster = self.module.CatBoost(params)
        if data.settings.epochs:
            pool = self.module.Pool(
                self._table(train),
                train.labels.cpu().numpy(),
                cat_features=self.categories or None,
                group_weight=data.weights_of_items,
                group_id=np.repeat(np.arange(len(train)), train.lengths),
                thread_count=threads,
            )
            stop_on_request = SimpleNamespace(after_iteration=lambda _: not data.stop())
            callbacks = None if on_gpu else [stop_on_request]  # CatBoost has no callbacks on a GPU
            booster.fit(pool, callbacks=callbacks)
        return booster

    def _table(self, lists: ItemTensors) -> Any:
        return with_categories(lists.features.cpu().numpy(), self.categories)

    def to_bytes(self, booster: Any, trees: int) -> bytes:
        shrunk = booster.copy()
        shrunk.shrink(ntree_end=trees)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "booster.cbm"
            shrunk.save_model(str(path), format="cbm")
            return path.read_bytes()

    def count_leaves(self, booster: Any) -> int:
        return int(booster.get_tree_leaf_counts().sum())

    def importances(self) -> Importances:
        """Return ``PredictionValuesChange``, which sums to 100, in the field ``gain``.

        CatBoost does not count splits, so the field ``splits`` is NaN.
        """
        gain = self.booster.get_feature_importance(type="PredictionValuesChange")
        return Importances(gain, np.full(self.width, np.nan))

    def load(self, content: bytes) -> Any:
        booster = self.module.CatBoost()
        booster.load_model(blob=content)
        self.check_match(len(booster.feature_names_) == self.width, "features")
        self.check_match(booster.get_cat_feature_indices() == self.categories, "categories")
        return booster

    def score_with(self, booster: Any, items: Floats) -> Reals:
        table = with_categories(items, self.categories)
        return booster.predict(table, thread_count=torch.get_num_threads())


def with_categories(items: Floats, categories: Sequence[int]) -> Any:
    """Convert ``items`` for CatBoost: the columns ``categories`` become integers, -1 = missing.

    >>> with_categories(np.array([[0.5, 2], [1.5, np.nan]], np.float32), [1])
         0  1
    0  0.5  2
    1  1.5 -1
    """
    if not categories:
        return items
    table = pd.DataFrame(items)
    for column in categories:
        table[column] = np.nan_to_num(items[:, column], nan=-1).astype(np.int32)
    return table
