"""XGBoost: boosted trees grown level by level."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.data.batches import ItemTensors
from ltr.models.rounds.model import FitData, Importances, Round, check_whole_labels
from ltr.models.rounds.objective import LossObjective
from ltr.models.rounds.trees import BoostedTrees


class XGBoost(BoostedTrees):
    """Trees of XGBoost (Chen and Guestrin, 2016); a knob not described here is XGBoost's.

    Args:
        width: number of features of an item.
        objective: XGBoost's own, used where no loss is chosen: ``"rank:ndcg"`` (LambdaMART) or
            ``"rank:pairwise"``; None is the first.
        options: other parameters of XGBoost by name.
    """

    library = "xgboost"
    error = "core.XGBoostError"
    title = "XGBoost"
    objectives = ("rank:ndcg", "rank:pairwise")
    per_feature = ("monotone_constraints",)
    reserved: ClassVar = {
        "set seed instead": "seed random_state",
        "set threads instead": "nthread n_jobs",
        "set device instead": "device",
        "set model.learning_rate instead": "eta",
        "set model.gamma instead": "min_split_loss",
        "set model.reg_alpha instead": "alpha",
        "set model.reg_lambda instead": "lambda",
        "set metrics and select_on instead": "eval_metric disable_default_eval_metric",
        "leave it out": "validate_parameters process_type updater multi_strategy verbosity "
        "tree_method base_score",
        "the best round is kept, so that its trees must not change later: leave it out": "booster",
    }

    def __init__(
        self,
        width: int,
        *,
        objective: str | None = None,
        learning_rate: float = 0.1,
        max_depth: int = 6,
        max_leaves: int = 0,
        min_child_weight: float = 1.0,
        reg_alpha: float = 0.0,
        reg_lambda: float = 1.0,
        gamma: float = 0.0,
        colsample_bytree: float = 1.0,
        subsample: float = 1.0,
        max_bin: int = 256,
        lambdarank_pair_method: str = "topk",
        lambdarank_num_pair_per_sample: int = 32,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            width, objective, options, learning_rate=learning_rate, max_depth=max_depth,
            max_leaves=max_leaves, min_child_weight=min_child_weight, reg_alpha=reg_alpha,
            reg_lambda=reg_lambda, gamma=gamma, colsample_bytree=colsample_bytree,
            subsample=subsample, max_bin=max_bin,
        )  # fmt: skip
        self.pairs: dict[str, Any] = {
            "lambdarank_pair_method": lambdarank_pair_method,
            "lambdarank_num_pair_per_sample": lambdarank_num_pair_per_sample,
        }

    def boost(self, data: FitData, objective: LossObjective | None) -> Iterator[Round]:
        params = self._params(data)
        kinds = ["c" if i in self.categories else "q" for i in range(self.width)]

        def lists(of: ItemTensors, kind: Any, **more: Any) -> Any:
            return kind(
                of.features.cpu().numpy(),
                of.labels.cpu().numpy(),
                group=of.lengths,
                feature_types=kinds if self.categories else None,
                enable_categorical=True,
                nthread=data.threads,
                **more,
            )

        kind, max_bin = self.module.QuantileDMatrix, params["max_bin"]
        train = lists(data.train, kind, max_bin=max_bin, weight=data.weights)
        scored = {
            split: train if split == "train" else lists(part, self.module.DMatrix)
            for split, part in data.scored.items()
        }
        booster = self.module.Booster(params, cache=[train, *scored.values()])
        self.check_options(_parameters(json.loads(booster.save_config())))
        while True:
            scores = {s: booster.predict(part, output_margin=True) for s, part in scored.items()}
            yield self.round(booster, booster.num_boosted_rounds(), scores, objective)
            booster.update(train, booster.num_boosted_rounds(), fobj=objective)

    def _params(self, data: FitData) -> dict[str, Any]:
        device = data.train.device.type
        params = {name: _as_text(value) for name, value in self.params.items()} | {
            "tree_method": "hist",
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "seed": data.seed,
            "nthread": data.threads,
            "device": device if self.module.build_info()["USE_CUDA"] else "cpu",
            "verbosity": 0,
        }
        if data.loss is not None:
            return params
        objective = self.own_objective()
        if objective == "rank:ndcg":
            instead = "set model.objective=rank:pairwise, or boost with a loss, such as "
            instead += "loss=lambdarank"
            check_whole_labels(data.train, "XGBoost's rank:ndcg", most=31, instead=instead)
        return params | self.pairs | {"objective": objective}

    def written(self, booster: Any, trees: int) -> bytes:
        return bytes(booster[:trees].save_raw("ubj"))

    def count_leaves(self, booster: Any) -> int:
        return sum(tree.count("leaf=") for tree in booster.get_dump())

    def importances_in(self, booster: Any) -> Importances:
        """Gain and splits; the gain sums how much each split lowers the objective."""
        names = [f"f{i}" for i in range(self.width)]  # XGBoost's own; it leaves out unused ones
        found = (booster.get_score(importance_type=kind) for kind in ("total_gain", "weight"))
        gain, splits = (np.array([each.get(n, 0.0) for n in names], float) for each in found)
        return Importances(gain, splits)

    def load(self, content: bytes) -> Any:
        booster = self.module.Booster({"verbosity": 0})
        booster.load_model(bytearray(content))
        booster.set_param({"device": "cpu"})
        self.expect_same(booster.num_features() == self.width, "features")
        return booster

    def score_with(self, booster: Any, items: NDArray[np.float32]) -> NDArray[np.floating]:
        booster.set_param({"nthread": torch.get_num_threads()})
        return booster.inplace_predict(items, predict_type="margin")


def _as_text(value: Any) -> Any:
    """A list as XGBoost reads it; any other value unchanged.

    >>> _as_text([1, 0]), _as_text([[0, 1], [2]]), _as_text([1]), _as_text(0.5)
    ('(1,0)', '[[0, 1], [2]]', '(1)', 0.5)
    """
    if not isinstance(value, list):
        return value
    if any(isinstance(one, list) for one in value):
        return json.dumps(value)
    return f"({','.join(map(str, value))})"


def _parameters(config: Any) -> Iterator[str]:
    """The names of single values in XGBoost's configuration.

    They are in mappings called ``..._param``; XGBoost finds ``learner_model_param`` from the data.
    """
    for key, value in config.items() if isinstance(config, dict) else ():
        if key.endswith("_param") and key != "learner_model_param":
            yield from (name for name, one in value.items() if not isinstance(one, dict | list))
        else:
            for below in value if isinstance(value, list) else [value]:
                yield from _parameters(below)
