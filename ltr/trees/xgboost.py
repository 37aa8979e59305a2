"""XGBoost: boosted trees grown level by level."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.trees.boosting import Boosting, Importances, Order, check_whole_labels, items_of, labels_of
from ltr.trees.model import BoostedTrees


class XGBoost(BoostedTrees):
    """Trees of XGBoost (Chen and Guestrin, 2016); a knob not described here is XGBoost's.

    Args:
        width: number of features of an item.
        objective: XGBoost's own, used where no loss is chosen: ``"rank:ndcg"`` (LambdaMART) or
            ``"rank:pairwise"``; None is the first.
        options: other parameters of XGBoost by name, those that have no argument here.

    Raises:
        ConfigError: XGBoost is not installed, has no such objective, or ``options`` has
            what cannot be set there.
    """

    library = "xgboost"
    title = "XGBoost"
    native = "model.ubj"
    objectives = ("rank:ndcg", "rank:pairwise")
    per_feature = ("monotone_constraints",)
    reserved: ClassVar = {
        "seed": "set seed instead",
        "random_state": "set seed instead",
        "nthread": "set threads instead",
        "n_jobs": "set threads instead",
        "device": "set device instead",
        "eta": "set model.learning_rate instead",
        "min_split_loss": "set model.gamma instead",
        "alpha": "set model.reg_alpha instead",
        "lambda": "set model.reg_lambda instead",
        "eval_metric": "set metrics and select_on instead",
        "disable_default_eval_metric": "set metrics and select_on instead",
        "validate_parameters": "options are checked here: leave it out",
        "process_type": "trees are always grown anew: leave it out",
        "updater": "it is that of hist: leave it out",
        "multi_strategy": "an item has one score: leave it out",
        "verbosity": "leave it out",
        "tree_method": "it is hist: leave it out",
        "base_score": "it is 0: leave it out",
        "booster": "the best round is kept, so that its trees must not change later: leave it out",
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
        super().__init__(width, objective, options)
        self.params: dict[str, Any] = {
            "learning_rate": learning_rate,
            "max_depth": max_depth,
            "max_leaves": max_leaves,
            "min_child_weight": min_child_weight,
            "reg_alpha": reg_alpha,
            "reg_lambda": reg_lambda,
            "gamma": gamma,
            "colsample_bytree": colsample_bytree,
            "subsample": subsample,
            "max_bin": max_bin,
            **{name: _as_text(value) for name, value in self.options.items()},
        }
        self.pairs: dict[str, Any] = {
            "lambdarank_pair_method": lambdarank_pair_method,
            "lambdarank_num_pair_per_sample": lambdarank_num_pair_per_sample,
        }

    def boost(self, order: Order) -> Boosting:
        """Begin a fit; see the base class."""
        params = self.params | {
            "tree_method": "hist",
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "seed": order.seed,
            "nthread": order.threads,
            "device": order.device if self.module.build_info()["USE_CUDA"] else "cpu",
            "verbosity": 0,
        }
        if order.derivatives is None:
            objective = self.own_objective()
            if objective == "rank:ndcg":
                check_whole_labels(
                    order.data["train"],
                    "XGBoost's rank:ndcg",
                    most=31,
                    instead="set model.objective=rank:pairwise, or boost with a loss, such as "
                    "loss=lambdarank",
                )
            params |= self.pairs | {"objective": objective}
        return _Boosting(self.module, params, order)

    def count_leaves(self, booster: Any) -> int:
        """See the base class."""
        return sum(tree.count("leaf=") for tree in booster.get_dump())

    def importances_in(self, booster: Any) -> Importances:
        """See the base class; the gain is the sum over splits of what each lowers the objective."""
        names = [f"f{i}" for i in range(self.width)]  # XGBoost's own; it leaves out unused ones
        found = (booster.get_score(importance_type=kind) for kind in ("total_gain", "weight"))
        gain, splits = (np.array([each.get(n, 0.0) for n in names], float) for each in found)
        return Importances(gain, splits)

    def library_error(self) -> type[Exception]:
        """See the base class."""
        return self.module.core.XGBoostError

    def load(self, content: bytes) -> Any:
        """See the base class."""
        booster = self.module.Booster({"verbosity": 0})
        booster.load_model(bytearray(content))
        booster.set_param({"device": "cpu"})
        self.check_width(booster.num_features())
        return booster

    def score_items(self, booster: Any, items: NDArray[np.float32]) -> NDArray[np.floating]:
        """See the base class."""
        booster.set_param({"nthread": torch.get_num_threads()})
        return booster.inplace_predict(items, predict_type="margin")


def _as_text(value: Any) -> Any:
    """A list as XGBoost reads it; anything else as it is.

    >>> _as_text([1, 0]), _as_text([[0, 1], [2]]), _as_text([1]), _as_text(0.5)
    ('(1,0)', '[[0, 1], [2]]', '(1)', 0.5)
    """
    if not isinstance(value, list):
        return value
    if any(isinstance(one, list) for one in value):
        return json.dumps(value)
    return f"({','.join(map(str, value))})"


def _parameters(config: Any) -> Iterator[str]:
    """The names of single values in what XGBoost says of its configuration.

    They stand in mappings called ``..._param``; that of the learner's model is found from the data.
    """
    for key, value in config.items() if isinstance(config, dict) else ():
        if key.endswith("_param") and key != "learner_model_param":
            yield from (name for name, one in value.items() if not isinstance(one, dict | list))
        else:
            for below in value if isinstance(value, list) else [value]:
                yield from _parameters(below)


class _Boosting(Boosting):
    def __init__(self, module: Any, params: dict[str, Any], order: Order) -> None:
        def lists(split: str, kind: Any, **more: Any) -> Any:
            data = order.data[split]
            return kind(
                items_of(data), labels_of(data), group=data.lengths, nthread=order.threads, **more
            )

        train = lists("train", module.QuantileDMatrix, max_bin=params["max_bin"])
        watched = {split: lists(split, module.DMatrix) for split in order.data if split != "train"}
        self._lists = {"train": train, **watched}
        self._booster = module.Booster(params, cache=list(self._lists.values()))
        self._derivatives = order.derivatives

    def round(self) -> None:
        train = self._lists["train"]
        if self._derivatives is None:
            self._booster.update(train, self.trees)
        else:
            derivatives = self._derivatives
            self._booster.update(
                train, self.trees, fobj=lambda scores, _: derivatives(scores.astype(np.float64))
            )

    def scores(self, split: str) -> NDArray[np.float32]:
        return self._booster.predict(self._lists[split], output_margin=True)

    def parameters(self) -> set[str]:
        return set(_parameters(json.loads(self._booster.save_config())))

    @property
    def trees(self) -> int:
        return self._booster.num_boosted_rounds()

    def content(self, trees: int) -> bytes:
        return bytes(self._booster[:trees].save_raw("ubj"))
