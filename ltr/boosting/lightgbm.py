"""LightGBM: boosted trees grown leaf by leaf."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ltr.arrays import Doubles, Floats, Reals
from ltr.boosting.model import (
    FitData,
    Importances,
    Round,
    check_whole_labels,
    scores_to_float32,
)
from ltr.boosting.trees import BoostedTrees
from ltr.data.batches import ItemTensors
from ltr.errors import DataError

_LONGEST_LIST = 10_000  # the most items in a list that LightGBM's lambdarank accepts
# LightGBM also gets the gain of the next grade: 2^1023 fits float64, 2^1024 does not.
_LARGEST_LABEL = 1022


class LightGBM(BoostedTrees):
    """Boosted trees of LightGBM (Ke et al., 2017), on the CPU.

    Its objectives are ``"lambdarank"`` (Burges, 2010) and ``"rank_xendcg"`` (Bruch, 2021).
    """

    library = "lightgbm"
    error = "basic.LightGBMError"
    title = "LightGBM"
    objectives = ("lambdarank", "rank_xendcg")

    def grow(self, data: FitData) -> Iterator[Round]:
        user_params = {
            "bagging_freq": int(self.params.get("bagging_fraction", 1) < 1)
        } | self.params
        params = user_params | self._run_params(data)
        train = self._dataset(data.train, params, weight=data.weights_of_items)
        booster = self.module.Booster(dict(params), train)
        valid_splits = [split for split in data.scored if split != "train"]
        for split in valid_splits:
            valid = self._dataset(data.scored[split], params, reference=train)
            booster.add_valid(valid, split)
        written_params = booster.model_to_string().partition("\nparameters:")[2]
        self.check_parameters(user_params, re.findall(r"(?m)^\[(\w+):", written_params))
        while True:
            scores = _current_scores(booster, valid_splits, with_train="train" in data.scored)
            yield self.round(data, booster, booster.current_iteration(), scores)
            booster.update(fobj=data.objective)

    def _run_params(self, data: FitData) -> dict[str, Any]:
        """Return the parameters that the run sets.

        Raises ``DataError`` if the labels or the lists are not valid for the objective.
        """
        params: dict[str, Any] = {
            "objective": "none",
            "metric": "none",
            "seed": data.settings.seed,
            "num_threads": torch.get_num_threads(),
            "deterministic": True,
            "force_row_wise": True,  # otherwise LightGBM measures which way is faster
            "feature_pre_filter": False,
            "verbosity": -1,
        }
        if data.loss is not None:
            return params
        objective = self.own_objective()
        check_whole_labels(
            data.train,
            f"LightGBM's {objective}",
            largest=_LARGEST_LABEL,
            remedy="boost with a loss, such as loss=ranknet",
        )
        if objective == "lambdarank":
            _check_lengths(data.train)
        gains = [2.0**grade - 1 for grade in range(int(data.train.labels.max()) + 2)]
        return params | {"objective": objective, "label_gain": gains}

    def _dataset(self, lists: ItemTensors, params: dict[str, Any], **options: Any) -> Any:
        return self.module.Dataset(
            lists.features.cpu().numpy(),
            lists.labels.cpu().numpy(),
            group=lists.lengths,
            categorical_feature=self.categories or "auto",  # auto finds none in an array
            params=dict(params),
            **options,
        )

    def to_bytes(self, booster: Any, trees: int) -> bytes:
        return booster.model_to_string(num_iteration=trees).encode()

    def count_leaves(self, booster: Any) -> int:
        return sum(map(int, re.findall(r"(?m)^num_leaves=(\d+)$", booster.model_to_string())))

    def importances(self) -> Importances:
        """Return the total reduction of the objective by each feature's splits, and their
        number.
        """
        gain, splits = map(self.booster.feature_importance, ("gain", "split"))
        return Importances(gain, splits.astype(float))

    def load(self, content: bytes) -> Any:
        booster = self.module.Booster(model_str=content.decode())
        self.check_match(booster.num_feature() == self.width, "features")
        return booster

    def score_with(self, booster: Any, items: Floats) -> Reals:
        return booster.predict(items, raw_score=True, num_threads=torch.get_num_threads())


def _check_lengths(train: ItemTensors) -> None:
    """Raise ``DataError`` if a list is longer than LightGBM's lambdarank allows."""
    longest = int(train.lengths.argmax())
    if train.lengths[longest] > _LONGEST_LIST:
        raise DataError(
            f"query id {train.qids[longest]} of train has {train.lengths[longest]:,} items, but "
            f"LightGBM's lambdarank takes at most {_LONGEST_LIST:,}: set "
            "model.objective=rank_xendcg, boost with a loss (loss=ranknet), choose model=xgboost, "
            "or leave out some of the items"
        )


def _current_scores(
    booster: Any, valid_splits: Sequence[str], *, with_train: bool
) -> dict[str, Floats]:
    """Return the scores of the items of each split, which LightGBM passes to a metric function."""
    collected: list[Floats] = []

    def collect(scores: Doubles, _: Any) -> tuple[str, float, bool]:
        collected.append(scores_to_float32(scores))
        return "collected", 0.0, True

    booster.eval_valid(collect)  # one call for each split, in order
    if with_train:
        booster.eval_train(collect)
    return dict(zip([*valid_splits, "train"], collected, strict=False))
