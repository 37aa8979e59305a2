"""Models that are fitted by rounds: ``forward(features, mask, ranks=None) -> scores`` like any.

A ``RoundLearner``, for which an epoch is a round, fits a ``RoundModel``: boosted trees
(``ltr.trees``), and the systems of the literature that are no network and no loss. ``AdaRank``
boosts single features on a metric, ``RankBoost`` thresholds on pairs, ``PRank`` is a perceptron
for grades. Their state is plain numbers.
"""

from ltr.rounds.adarank import AdaRank
from ltr.rounds.fit import RoundLearner
from ltr.rounds.model import RoundModel
from ltr.rounds.prank import PRank
from ltr.rounds.rankboost import RankBoost

__all__ = ["AdaRank", "PRank", "RankBoost", "RoundLearner", "RoundModel"]
