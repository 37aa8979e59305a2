"""Boosted trees as models: ``forward(features, mask, ranks=None) -> scores`` like any other.

A tree model is a ``BoostedTrees`` module around the booster of a library (the extra ``gbdt``). It
is fitted by a ``TreeTrainer``, where an epoch is a round, to an objective of the library or to any
loss of ``ltr.losses``; its state is the booster in the library's own data format. That holds
numbers and no code, but the libraries read it in C++ and believe it: see ``ltr.trees.trial``.
"""

from ltr.trees.catboost import CatBoost
from ltr.trees.fit import TreeTrainer
from ltr.trees.lightgbm import LightGBM
from ltr.trees.model import BoostedTrees
from ltr.trees.objective import LossObjective
from ltr.trees.xgboost import XGBoost

__all__ = ["BoostedTrees", "CatBoost", "LightGBM", "LossObjective", "TreeTrainer", "XGBoost"]
