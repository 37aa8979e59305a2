"""``Ranker``, the estimator of scikit-learn's kind: a run of ``train.py`` on lists in memory.

``inputs`` turns arrays and tables into lists, ``params`` turns parameters into overrides of the
config, ``trained`` holds the files of a run and its model.
"""

from ltr.estimator.ranker import Ranker

__all__ = ["Ranker"]
