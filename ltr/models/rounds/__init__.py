"""Models that are fitted by rounds: ``forward(features, mask, ranks=None) -> scores`` like any.

A ``RoundLearner``, for which an epoch is a round, fits a ``RoundModel``: boosted trees, with their
library's objective or any loss of ``ltr.losses``, and the systems of the literature that are no
network and no loss. ``AdaRank`` boosts single features on a metric, ``RankBoost`` thresholds on
pairs, ``PRank`` is a perceptron for grades; their state is plain numbers.
"""

from ltr.models.rounds.boosting import AdaRank, RankBoost
from ltr.models.rounds.catboost import CatBoost
from ltr.models.rounds.learner import RoundLearner
from ltr.models.rounds.lightgbm import LightGBM
from ltr.models.rounds.model import RoundModel
from ltr.models.rounds.objective import LossObjective
from ltr.models.rounds.prank import PRank
from ltr.models.rounds.trees import BoostedTrees
from ltr.models.rounds.xgboost import XGBoost

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
