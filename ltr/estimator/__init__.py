"""``Ranker``, the estimator of scikit-learn's kind: a run of ``train.py`` on lists in memory.

``inputs`` turns arrays and tables into lists, ``params`` turns parameters into overrides of the
config, ``live`` shows a run in a notebook.
"""

from ltr.estimator.ranker import Ranker

__all__ = ["Ranker"]
