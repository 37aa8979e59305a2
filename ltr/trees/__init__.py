"""Boosted trees as models: ``forward(features, mask, ranks=None) -> scores`` like any other.

A tree model is a ``BoostedTrees`` module around the booster of a library (the extra ``gbdt``). A
``RoundLearner`` fits it to an objective of the library or to any loss of ``ltr.losses``. Its state
is the booster in the library's own format, which holds no code, but which the libraries' C++
readers trust: docs/security.md.
"""

from ltr.trees.catboost import CatBoost
from ltr.trees.lightgbm import LightGBM
from ltr.trees.model import BoostedTrees
from ltr.trees.objective import LossObjective
from ltr.trees.xgboost import XGBoost

__all__ = ["BoostedTrees", "CatBoost", "LightGBM", "LossObjective", "XGBoost"]
