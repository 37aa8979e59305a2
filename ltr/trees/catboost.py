"""CatBoost: boosted symmetric trees."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.trees.boosting import Boosting, Importances, Order, items_of, labels_of, single
from ltr.trees.model import BoostedTrees

_STOPPING = ("od_type", "od_wait", "od_pval", "early_stopping_rounds")
_CHOOSING = ("use_best_model", "best_model_min_trees")
_WRITING = (
    "allow_writing_files", "train_dir", "save_snapshot", "snapshot_file", "snapshot_interval",
    "logging_level", "metric_period", "verbose", "verbose_eval", "silent", "output_borders",
    "input_borders",
)  # fmt: skip
_CATEGORIES = ("cat_features", "text_features", "embedding_features")
_NO_CATEGORIES = "a feature is a number here: leave it out"


class CatBoost(BoostedTrees):
    """Trees of CatBoost (Prokhorenkova et al., 2018); a knob not described here is CatBoost's.

    Its rounds are done in one go, and looked at afterwards one by one: ``patience`` ends the
    looking, and saves no time. It does not boost with a loss of ``ltr.losses``: its objectives in
    Python see parts of lists.

    Args:
        width: number of features of an item.
        objective: CatBoost's: ``"YetiRank"`` (Gulin et al., 2011), ``"YetiRankPairwise"``,
            ``"PairLogit"``, or ``"QueryRMSE"``; None is the first.
        options: other parameters of CatBoost by name, those that have no argument here.

    Raises:
        ConfigError: CatBoost is not installed, has no such objective, or ``options`` has
            what cannot be set there.
    """

    library = "catboost"
    title = "CatBoost"
    native = "model.cbm"
    objectives = ("YetiRank", "YetiRankPairwise", "PairLogit", "QueryRMSE")
    per_feature = (
        "monotone_constraints", "feature_weights", "first_feature_use_penalties",
        "per_object_feature_penalties",
    )  # fmt: skip
    reserved: ClassVar = {
        **dict.fromkeys(_STOPPING, "set patience instead"),
        **dict.fromkeys(_CHOOSING, "set select instead"),
        **dict.fromkeys(_WRITING, "leave it out"),
        **dict.fromkeys(_CATEGORIES, _NO_CATEGORIES),
        "grow_policy": "only symmetric trees can be cut at the best round: leave it out, or use "
        "model=lightgbm (grown by leaf) or model=xgboost (by level)",
        "loss_function": "set model.objective instead",
        "iterations": "set epochs instead",
        "random_seed": "set seed instead",
        "thread_count": "set threads instead",
        "task_type": "set device instead",
        "devices": "set device instead",
        "eval_metric": "set metrics and select_on instead",
        "custom_metric": "set metrics and select_on instead",
    }
    takes_losses = False

    def __init__(
        self,
        width: int,
        *,
        objective: str | None = None,
        learning_rate: float = 0.1,
        depth: int = 6,
        l2_leaf_reg: float = 3.0,
        random_strength: float = 1.0,
        border_count: int = 254,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(width, objective, options)
        self.params: dict[str, Any] = {
            "learning_rate": learning_rate,
            "depth": depth,
            "l2_leaf_reg": l2_leaf_reg,
            "random_strength": random_strength,
            "border_count": border_count,
            **self.options,
        }

    def boost(self, order: Order) -> Boosting:
        """Begin a fit; see the base class. All rounds are done here."""
        params = self.params | {
            "loss_function": self.own_objective(),
            "iterations": order.rounds,
            "random_seed": order.seed,
            "thread_count": order.threads,
            "task_type": "GPU" if order.device == "cuda" else "CPU",
            "allow_writing_files": False,
            "logging_level": "Silent",
        }
        return _Boosting(self.module, params, order)

    def count_leaves(self, booster: Any) -> int:
        """See the base class."""
        return int(booster.get_tree_leaf_counts().sum())

    def importances_in(self, booster: Any) -> Importances:
        """See the base class; the gain is ``PredictionValuesChange``, of a sum of 100."""
        gain = booster.get_feature_importance(type="PredictionValuesChange")
        return Importances(np.asarray(gain, float), np.full(self.width, np.nan))

    def library_error(self) -> type[Exception]:
        """See the base class."""
        return self.module.CatBoostError

    def load(self, content: bytes) -> Any:
        """See the base class."""
        booster = self.module.CatBoost()
        booster.load_model(blob=content)
        self.check_width(len(booster.feature_names_))
        return booster

    def score_items(self, booster: Any, items: NDArray[np.float32]) -> NDArray[np.floating]:
        """See the base class."""
        return _raw(booster, items, thread_count=torch.get_num_threads())


def _raw(booster: Any, items: NDArray[np.float32], **how: Any) -> NDArray[np.floating]:
    return booster.predict(items, prediction_type="RawFormulaVal", **how)


class _Stop:
    """Ends CatBoost's fit at the next round when the user asks for it."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def after_iteration(self, info: Any) -> bool:
        return not self._order.stop()


class _Boosting(Boosting):
    def __init__(self, module: Any, params: dict[str, Any], order: Order) -> None:
        self._booster = module.CatBoost(params)
        self._items = {split: items_of(data) for split, data in order.data.items()}
        self._staged: dict[str, Iterator[NDArray[np.floating]]] = {}
        self._now = {
            split: np.zeros(len(items), np.float32) for split, items in self._items.items()
        }
        self._trees = 0
        if order.rounds == 0:
            return
        train = order.data["train"]
        pool = module.Pool(
            self._items["train"], labels_of(train),
            group_id=np.repeat(np.arange(len(train)), train.lengths), thread_count=order.threads,
        )  # fmt: skip
        gpu = order.device == "cuda"  # where CatBoost has no callbacks
        self._booster.fit(pool, callbacks=None if gpu else [_Stop(order)])
        for split, items in self._items.items():
            self._staged[split] = self._booster.staged_predict(
                items, prediction_type="RawFormulaVal", thread_count=order.threads
            )

    def round(self) -> None:
        if self._trees < self._booster.tree_count_:
            self._trees += 1
            for split, stages in self._staged.items():
                self._now[split] = single(next(stages))

    def scores(self, split: str) -> NDArray[np.float32]:
        return self._now[split]

    def parameters(self) -> None:
        return None

    @property
    def trees(self) -> int:
        return self._trees

    def content(self, trees: int) -> bytes:
        booster = self._booster.copy()
        booster.shrink(ntree_end=trees)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "booster.cbm"
            booster.save_model(str(path), format="cbm")
            return path.read_bytes()
