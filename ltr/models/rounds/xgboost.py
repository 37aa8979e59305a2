"""XGBoost: boosted trees grown level by level."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ltr.arrays import Floats, Reals
from ltr.data.batches import ItemTensors
from ltr.models.rounds.model import FitData, Importances, Round, check_whole_labels
from ltr.models.rounds.trees import BoostedTrees


class XGBoost(BoostedTrees):
    """Boosted trees of XGBoost (Chen and Guestrin, 2016).

    Its objectives are ``"rank:ndcg"`` (LambdaMART) and ``"rank:pairwise"``.
    """

    library = "xgboost"
    error = "core.XGBoostError"
    title = "XGBoost"
    objectives = ("rank:ndcg", "rank:pairwise")

    def grow(self, data: FitData) -> Iterator[Round]:
        device = data.train.device.type if self.module.build_info()["USE_CUDA"] else "cpu"
        given = {
            name: _as_text(value)
            for name, value in self.params.items()
            if data.loss is None or not name.startswith("lambdarank_")  # for XGBoost's objectives
        }
        params = given | {
            "tree_method": "hist",
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "seed": data.settings.seed,
            "nthread": torch.get_num_threads(),
            "device": device,
            "verbosity": 0,
        }
        if data.loss is None:
            params["objective"] = self.own_objective()
            if self.own_objective() == "rank:ndcg":
                instead = "set model.objective=rank:pairwise, or boost with a loss: loss=lambdarank"
                check_whole_labels(data.train, "XGBoost's rank:ndcg", most=31, instead=instead)
        kinds = ["c" if i in self.categories else "q" for i in range(self.width)]

        def lists(of: ItemTensors, kind: Any, **more: Any) -> Any:
            return kind(
                of.features.cpu().numpy(),
                of.labels.cpu().numpy(),
                group=of.lengths,
                feature_types=kinds if self.categories else None,
                enable_categorical=True,
                nthread=torch.get_num_threads(),
                **more,
            )

        kind, max_bin = self.module.QuantileDMatrix, params.get("max_bin", 256)
        train = lists(data.train, kind, max_bin=max_bin, weight=data.weights)
        scored = {
            split: train if split == "train" else lists(part, self.module.DMatrix)
            for split, part in data.scored.items()
        }
        booster = self.module.Booster(params, cache=[train, *scored.values()])
        self.check_known(given, re.findall(r'"(\w+)":"', booster.save_config()))
        while True:
            scores = {s: booster.predict(part, output_margin=True) for s, part in scored.items()}
            yield self.round(data, booster, booster.num_boosted_rounds(), scores)
            booster.update(train, booster.num_boosted_rounds(), fobj=data.objective)

    def written(self, booster: Any, trees: int) -> bytes:
        return bytes(booster[:trees].save_raw("ubj"))

    def count_leaves(self, booster: Any) -> int:
        return sum(tree.count("leaf=") for tree in booster.get_dump())

    def importances(self) -> Importances:
        """Return gain and splits; gain is the sum of how much each split lowers the objective."""
        found = [self.booster.get_score(importance_type=kind) for kind in ("total_gain", "weight")]
        names = [f"f{i}" for i in range(self.width)]  # XGBoost's names; unused features are missing
        return Importances(*(np.array([one.get(name, 0.0) for name in names]) for one in found))

    def load(self, content: bytes) -> Any:
        booster = self.module.Booster({"verbosity": 0})
        booster.load_model(bytearray(content))
        booster.set_param({"device": "cpu"})
        self.expect_same(booster.num_features() == self.width, "features")
        return booster

    def score_with(self, booster: Any, items: Floats) -> Reals:
        booster.set_param({"nthread": torch.get_num_threads()})
        return booster.inplace_predict(items, predict_type="margin")


def _as_text(value: Any) -> Any:
    """Convert a list to text that XGBoost can read; return any other value unchanged.

    >>> _as_text([1, 0]), _as_text([[0, 1], [2]]), _as_text(0.5)
    ('(1, 0)', '[[0, 1], [2]]', 0.5)
    """
    if not isinstance(value, list):
        return value
    nested = any(isinstance(one, list) for one in value)
    return str(value if nested else tuple(value))
