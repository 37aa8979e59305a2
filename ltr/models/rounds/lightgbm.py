"""LightGBM: boosted trees grown leaf by leaf."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.data.batches import ItemTensors
from ltr.errors import DataError
from ltr.models.rounds.model import FitData, Importances, Round, check_whole_labels, single
from ltr.models.rounds.objective import LossObjective
from ltr.models.rounds.trees import BoostedTrees

LONGEST = 10_000  # items in a list, of LightGBM's own objectives
_MOST = 1022  # LightGBM is given the gain of one more grade: 2^1023 is a float64, 2^1024 is not


class LightGBM(BoostedTrees):
    """Trees of LightGBM (Ke et al., 2017); a knob not described here is LightGBM's of that name.

    Args:
        width: number of features of an item.
        objective: LightGBM's own, used where no loss is chosen: ``"lambdarank"`` (Burges, 2010) or
            ``"rank_xendcg"`` (Bruch et al., 2020); None is the first.
        options: other parameters of LightGBM by name.
    """

    library = "lightgbm"
    error = "basic.LightGBMError"
    title = "LightGBM"
    objectives = ("lambdarank", "rank_xendcg")
    per_feature = (
        "monotone_constraints", "feature_contri", "max_bin_by_feature",
        "cegb_penalty_feature_lazy", "cegb_penalty_feature_coupled",
    )  # fmt: skip
    reserved: ClassVar = {
        "set model.objective instead": "application app objective_type loss",
        "set epochs instead": "num_iterations",
        "set seed instead": "seed",
        "set threads instead": "num_threads",
        "set metrics and select_on instead": "metric eval_at first_metric_only",
        "set patience instead": "early_stopping_round early_stopping_min_delta",
        "leave it out": "verbosity",
        "LightGBM reads no file here: leave it out": "data valid header label_column weight_column "
        "group_column ignore_column two_round pre_partition precise_float_parser "
        "parser_config_file",
        "it is set, so that a run can be repeated: leave it out": "deterministic force_row_wise "
        "force_col_wise device_type feature_pre_filter",
        "the lists say which features are categories: leave it out": "categorical_feature",
        "the gain is 2^label - 1, for another one boost with a loss": "label_gain",
        "the best round is kept, so that its trees must not change later: leave it out": "boosting",
    }

    def __init__(
        self,
        width: int,
        *,
        objective: str | None = None,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        max_depth: int = -1,
        min_data_in_leaf: int = 20,
        min_sum_hessian_in_leaf: float = 1e-3,
        lambda_l1: float = 0.0,
        lambda_l2: float = 0.0,
        feature_fraction: float = 1.0,
        bagging_fraction: float = 1.0,
        max_bin: int = 255,
        lambdarank_truncation_level: int = 30,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            width, objective, options, learning_rate=learning_rate, num_leaves=num_leaves,
            max_depth=max_depth, min_data_in_leaf=min_data_in_leaf,
            min_sum_hessian_in_leaf=min_sum_hessian_in_leaf, lambda_l1=lambda_l1,
            lambda_l2=lambda_l2, feature_fraction=feature_fraction,
            bagging_fraction=bagging_fraction, bagging_freq=int(bagging_fraction < 1),
            max_bin=max_bin, lambdarank_truncation_level=lambdarank_truncation_level,
        )  # fmt: skip

    def boost(self, data: FitData, objective: LossObjective | None) -> Iterator[Round]:
        """Fit on the CPU: LightGBM is installed without any other device."""
        params = self._params(data)

        def lists(of: ItemTensors, **more: Any) -> Any:
            return self.module.Dataset(
                of.features.cpu().numpy(),
                of.labels.cpu().numpy(),
                group=of.lengths,
                categorical_feature=self.categories or "auto",  # of an array: none
                params=dict(params),
                **more,
            )

        train = lists(data.train, weight=data.weights_of_items)
        booster = self.module.Booster(dict(params), train)
        watched = [split for split in data.scored if split != "train"]
        for split in watched:
            booster.add_valid(lists(data.scored[split], reference=train), split)
        known = booster.model_to_string().partition("\nparameters:")[2]
        self.check_options(re.findall(r"(?m)^\[(\w+):", known))

        # LightGBM shows the scores it keeps to a function of metrics, split after split.
        shown: list[NDArray[np.float32]] = []

        def keep(scores: NDArray[np.float64], _: Any) -> tuple[str, float, bool]:
            shown.append(single(scores))
            return "kept", 0.0, True

        while True:
            shown.clear()
            booster.eval_valid(keep)
            if "train" in data.scored:
                booster.eval_train(keep)
            scores = dict(zip([*watched, "train"], shown, strict=False))
            yield self.round(booster, booster.current_iteration(), scores, objective)
            booster.update(fobj=objective)

    def _params(self, data: FitData) -> dict[str, Any]:
        params = self.params | {
            "objective": "none",
            "metric": "none",
            "seed": data.seed,
            "num_threads": data.threads,
            "deterministic": True,
            "force_row_wise": True,  # else LightGBM measures which is faster
            "feature_pre_filter": False,
            "verbosity": -1,
        }
        if data.loss is not None:
            return params
        what, train = f"LightGBM's {self.own_objective()}", data.train
        instead = "boost with a loss, such as loss=ranknet"
        check_whole_labels(train, what, most=_MOST, instead=instead)
        longest = int(train.lengths.max())
        if longest > LONGEST:
            raise DataError(
                f"{what} takes lists of at most {LONGEST:,} items, train has one of "
                f"{longest:,}: boost with a loss, such as loss=lambdarank, or use model=xgboost"
            )
        gains = [2.0**grade - 1 for grade in range(int(train.labels.max()) + 2)]
        return params | {"objective": self.own_objective(), "label_gain": gains}

    def written(self, booster: Any, trees: int) -> bytes:
        return booster.model_to_string(num_iteration=trees).encode()

    def count_leaves(self, booster: Any) -> int:
        return sum(map(int, re.findall(r"(?m)^num_leaves=(\d+)$", booster.model_to_string())))

    def importances_in(self, booster: Any) -> Importances:
        """See the base class; the gain is the sum over splits of what each lowers the objective."""
        gain, splits = (booster.feature_importance(kind) for kind in ("gain", "split"))
        return Importances(gain.astype(float), splits.astype(float))

    def load(self, content: bytes) -> Any:
        booster = self.module.Booster(model_str=content.decode())
        self.expect_same(booster.num_feature() == self.width, "features")
        return booster

    def score_with(self, booster: Any, items: NDArray[np.float32]) -> NDArray[np.floating]:
        return booster.predict(items, raw_score=True, num_threads=torch.get_num_threads())
