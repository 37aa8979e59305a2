"""Models that are fitted in rounds; networks are fitted by gradient descent instead.

They have the interface of all models, ``forward(features, mask, ranks=None) -> scores``. A
``RoundLearner`` fits a ``RoundModel``; one epoch is one round. There are boosted trees, which are
fitted to their library's objective or to a loss of ``ltr.losses``, and three methods from the
literature that are neither a network nor a loss. ``AdaRank`` boosts single features to improve a
metric, ``RankBoost`` boosts thresholds of features to order pairs of items, and ``PRank`` is a
perceptron for grades. The state of these three models consists of plain numbers.
"""

from ltr.boosting.adarank_rankboost import AdaRank, RankBoost
from ltr.boosting.catboost import CatBoost
from ltr.boosting.learner import RoundLearner
from ltr.boosting.lightgbm import LightGBM
from ltr.boosting.model import RoundModel
from ltr.boosting.objective import LossObjective
from ltr.boosting.prank import PRank
from ltr.boosting.trees import BoostedTrees
from ltr.boosting.xgboost import XGBoost

__all__ = [
    "AdaRank",
    "BoostedTrees",
    "CatBoost",
    "LightGBM",
    "LossObjective",
    "PRank",
    "RankBoost",
    "RoundLearner",
    "RoundModel",
    "XGBoost",
]
