"""XGBoost: boosted trees grown level by level."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ltr.arrays import Doubles, Floats, Reals
from ltr.boosting.model import FitData, Importances, Round, check_whole_labels
from ltr.boosting.trees import BoostedTrees
from ltr.data.batches import ItemTensors


class XGBoost(BoostedTrees):
    """Boosted trees of XGBoost (Chen and Guestrin, 2016).

    Its objectives are ``"rank:ndcg"`` (LambdaMART) and ``"rank:pairwise"``.
    """

    library = "xgboost"
    error = "core.XGBoostError"
    title = "XGBoost"
    objectives = ("rank:ndcg", "rank:pairwise")

    def grow(self, data: FitData) -> Iterator[Round]:
        user_params = {
            name: _as_text(value)
            for name, value in self.params.items()
            if data.loss is None or not name.startswith("lambdarank_")  # for XGBoost's objectives
        }
        params = user_params | self._run_params(data)
        train = self._matrix(
            data.train,
            self.module.QuantileDMatrix,
            max_bin=params.get("max_bin", 256),
            weight=data.weights,
        )
        scored = {
            split: train if split == "train" else self._matrix(lists, self.module.DMatrix)
            for split, lists in data.scored.items()
        }
        booster = self.module.Booster(params, cache=[train, *scored.values()])
        self.check_parameters(user_params, re.findall(r'"(\w+)":"', booster.save_config()))
        while True:
            scores = {
                split: booster.predict(matrix, output_margin=True)
                for split, matrix in scored.items()
            }
            yield self.round(data, booster, booster.num_boosted_rounds(), scores)
            booster.update(train, booster.num_boosted_rounds(), fobj=data.objective)

    def _run_params(self, data: FitData) -> dict[str, Any]:
        """Return the parameters that the run sets; raise ``DataError`` if a label is not valid."""
        has_cuda = self.module.build_info()["USE_CUDA"]
        params: dict[str, Any] = {
            "tree_method": "hist",
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "seed": data.settings.seed,
            "nthread": torch.get_num_threads(),
            "device": data.train.device.type if has_cuda else "cpu",
            "verbosity": 0,
        }
        if data.loss is not None:
            return params
        objective = self.own_objective()
        if objective == "rank:ndcg":
            remedy = (
                "set model.objective=rank:pairwise, or boost with a loss such as loss=lambdarank"
            )
            check_whole_labels(data.train, "XGBoost's rank:ndcg", largest=31, remedy=remedy)
        return params | {"objective": objective}

    def _matrix(self, lists: ItemTensors, matrix_type: Any, **options: Any) -> Any:
        feature_types = ["c" if i in self.categories else "q" for i in range(self.width)]
        return matrix_type(
            lists.features.cpu().numpy(),
            lists.labels.cpu().numpy(),
            group=lists.lengths,
            feature_types=feature_types if self.categories else None,
            enable_categorical=True,
            nthread=torch.get_num_threads(),
            **options,
        )

    def to_bytes(self, booster: Any, trees: int) -> bytes:
        return bytes(booster[:trees].save_raw("ubj"))

    def count_leaves(self, booster: Any) -> int:
        return sum(tree.count("leaf=") for tree in booster.get_dump())

    def importances(self) -> Importances:
        """Return the total reduction of the objective by each feature's splits, and their
        number.
        """
        return Importances(self._importance("total_gain"), self._importance("weight"))

    def _importance(self, kind: str) -> Doubles:
        by_name = self.booster.get_score(importance_type=kind)  # unused features are missing
        names = [f"f{i}" for i in range(self.width)]
        return np.array([by_name.get(name, 0.0) for name in names])

    def load(self, content: bytes) -> Any:
        booster = self.module.Booster({"verbosity": 0})
        booster.load_model(bytearray(content))
        booster.set_param({"device": "cpu"})
        self.check_match(booster.num_features() == self.width, "features")
        return booster

    def score_with(self, booster: Any, items: Floats) -> Reals:
        booster.set_param({"nthread": torch.get_num_threads()})
        return booster.inplace_predict(items, predict_type="margin")


def _as_text(value: Any) -> Any:
    """Convert a list to a string that XGBoost can read; return any other value unchanged.

    >>> _as_text([1, 0]), _as_text([[0, 1], [2]]), _as_text(0.5)
    ('(1, 0)', '[[0, 1], [2]]', 0.5)
    """
    if not isinstance(value, list):
        return value
    is_nested = any(isinstance(element, list) for element in value)
    return str(value if is_nested else tuple(value))
