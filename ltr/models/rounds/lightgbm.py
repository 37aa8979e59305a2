"""LightGBM: boosted trees grown leaf by leaf."""

import re
from collections.abc import Iterator
from typing import Any

import torch

from ltr.arrays import Doubles, Floats, Reals
from ltr.data.batches import ItemTensors
from ltr.errors import DataError
from ltr.models.rounds.model import FitData, Importances, Round, check_whole_labels, single
from ltr.models.rounds.trees import BoostedTrees

_LONGEST_LIST = 10_000  # items, of its objective lambdarank
_MOST = 1022  # LightGBM also gets the gain of the next grade: 2^1023 fits float64, 2^1024 not


class LightGBM(BoostedTrees):
    """Boosted trees of LightGBM (Ke et al., 2017), on the CPU.

    Its objectives are ``"lambdarank"`` (Burges, 2010) and ``"rank_xendcg"`` (Bruch, 2021).
    """

    library = "lightgbm"
    error = "basic.LightGBMError"
    title = "LightGBM"
    objectives = ("lambdarank", "rank_xendcg")

    def grow(self, data: FitData) -> Iterator[Round]:
        own = {"bagging_freq": int(self.params.get("bagging_fraction", 1) < 1)} | self.params
        params = own | {
            "objective": "none",
            "metric": "none",
            "seed": data.settings.seed,
            "num_threads": torch.get_num_threads(),
            "deterministic": True,
            "force_row_wise": True,  # else LightGBM measures which is faster
            "feature_pre_filter": False,
            "verbosity": -1,
        }
        if data.loss is None:
            what, instead = f"LightGBM's {self.own_objective()}", "boost with a loss: loss=ranknet"
            check_whole_labels(data.train, what, most=_MOST, instead=instead)
            if self.own_objective() == "lambdarank":
                _check_lengths(data.train)
            gains = [2.0**grade - 1 for grade in range(int(data.train.labels.max()) + 2)]
            params |= {"objective": self.own_objective(), "label_gain": gains}

        def lists(of: ItemTensors, **more: Any) -> Any:
            return self.module.Dataset(
                of.features.cpu().numpy(),
                of.labels.cpu().numpy(),
                group=of.lengths,
                categorical_feature=self.categories or "auto",  # auto finds none in an array
                params=dict(params),
                **more,
            )

        train = lists(data.train, weight=data.weights_of_items)
        booster = self.module.Booster(dict(params), train)
        watched = [split for split in data.scored if split != "train"]
        for split in watched:
            booster.add_valid(lists(data.scored[split], reference=train), split)
        known = booster.model_to_string().partition("\nparameters:")[2]
        self.check_known(own, re.findall(r"(?m)^\[(\w+):", known))

        # LightGBM passes its current scores to a metric function, one split after another.
        shown: list[Floats] = []

        def keep(scores: Doubles, _: Any) -> tuple[str, float, bool]:
            shown.append(single(scores))
            return "kept", 0.0, True

        while True:
            shown.clear()
            booster.eval_valid(keep)
            if "train" in data.scored:
                booster.eval_train(keep)
            scores = dict(zip([*watched, "train"], shown, strict=False))
            yield self.round(data, booster, booster.current_iteration(), scores)
            booster.update(fobj=data.objective)

    def written(self, booster: Any, trees: int) -> bytes:
        return booster.model_to_string(num_iteration=trees).encode()

    def count_leaves(self, booster: Any) -> int:
        return sum(map(int, re.findall(r"(?m)^num_leaves=(\d+)$", booster.model_to_string())))

    def importances(self) -> Importances:
        """Return gain and splits; gain is the sum of how much each split lowers the objective."""
        gain, splits = map(self.booster.feature_importance, ("gain", "split"))
        return Importances(gain, splits.astype(float))

    def load(self, content: bytes) -> Any:
        booster = self.module.Booster(model_str=content.decode())
        self.expect_same(booster.num_feature() == self.width, "features")
        return booster

    def score_with(self, booster: Any, items: Floats) -> Reals:
        return booster.predict(items, raw_score=True, num_threads=torch.get_num_threads())


def _check_lengths(train: ItemTensors) -> None:
    """Raise ``DataError`` if a list is longer than LightGBM's lambdarank allows."""
    longest = int(train.lengths.argmax())
    if train.lengths[longest] > _LONGEST_LIST:
        raise DataError(
            f"query id {train.qids[longest]} of train has {train.lengths[longest]:,} items, "
            f"LightGBM's lambdarank takes at most {_LONGEST_LIST:,}: set "
            "model.objective=rank_xendcg, boost with a loss (loss=ranknet), choose model=xgboost, "
            "or leave items of it out"
        )
