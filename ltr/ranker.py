"""``Ranker``: fit, predict, rank, score, evaluate, save and load, as scikit-learn has them."""

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ltr.console.compose import run_config
from ltr.console.folders import run_folder, write_overrides
from ltr.data.lists import Columns, Floats, Ints, Lists
from ltr.data.memory import MemoryLists
from ltr.errors import ConfigError, DataError
from ltr.experiment.labels import check_metrics
from ltr.experiment.run import run
from ltr.metrics import Convention
from ltr.ranker_model import (
    OVERRIDES,
    Trained,
    as_it_was,
    overrides_of_ranker,
    params_of,
    shown,
    trust_of,
)
from ltr.ranker_rows import in_rows, lists_of_rows, queries_of_train, read_labels, read_rows
from ltr.scorers.parts import as_list, named_metrics
from ltr.scorers.scorer import load_model
from ltr.scorers.trust import RELATIVE
from ltr.training.device import pick_device
from ltr.training.evaluation import PerQuery, means, metrics_of_scores, ranks_of
from ltr.training.interruption import Interrupted

_SPLITS = ("vali", "test")  # of eval_set, in order
_UNLABELLED = object()
_SPLIT_QUERIES = (
    "score: queries of the fit come with other rows; if cv= has split them, the score is too high: "
    "give cv=GroupKFold(5) and groups=qid; if they are other queries, give them other ids"
)


class Ranker(BaseEstimator):
    """A ranker of this project that is fitted on arrays and tables, as scikit-learn's estimators.

    It trains as ``train.py`` does, to the same numbers, and leaves no file unless ``save`` is
    called. Each row of ``X`` is an item; ``qid`` says which query it is of. The rows of a query may
    be apart.

    Args:
        model: a choice of ``model=``, such as ``"mlp"`` or ``"lightgbm"``; None: that of
            ``experiment=``, else ``"transformer"``.
        loss: a choice of ``loss=``; None: that of ``experiment=``, else ``"neuralndcg"``, and for
            boosted trees the library's own objective.
        epochs: of training, of trees rounds; None: as the config has it.
        categories: the columns of a table whose values are categories, besides those of a type of
            categories (pandas' category, Enum, an Arrow dictionary). Other texts are refused.
        vali_fraction: the part of the queries that ``fit`` cuts from train to choose the epoch,
            where it is given no ``eval_set``. ``results_["protocol"]["dataset"]["cut"]`` keeps it.
        one_list: whether rows without ``qid`` are all of one query. Fitted on such rows the epoch
            is chosen on train itself.
        random_state: the seed, a whole number or a ``RandomState`` that draws it; None: as the
            config has it, which is 1.
        verbose: 0: nothing is shown; 1: progress bars and, in a notebook, a table of the epochs;
            2: a line for each epoch outside a notebook too.
        config: any other key of ``configs/train.yaml``, as on the command line
            (``**{"optimizer.lr": 0.01}``, ``patience=5``) or nested (``optimizer={"lr": 0.01}``).

    Attributes:
        results_: what ``results.json`` of a run holds: metrics, convention, every choice.
        history_: a row for each epoch.
        n_features_in_, feature_names_in_: the features; names only of tables.

    A parameter is checked by ``fit``, which says the same of a wrong one as the command line does.

    >>> Ranker("mlp", "listnet", epochs=2, **{"optimizer.lr": 0.01})
    Ranker(epochs=2, loss='listnet', model='mlp', optimizer.lr=0.01)
    """

    __metadata_request__fit: ClassVar = {"qid": True, "position": True}
    __metadata_request__predict: ClassVar = {"qid": True, "position": True}
    __metadata_request__score: ClassVar = {"qid": True, "position": True}

    def __init__(
        self,
        model: str | None = None,
        loss: str | None = None,
        *,
        epochs: int | None = None,
        categories: Sequence[str] | None = None,
        vali_fraction: float = 0.2,
        one_list: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
        **config: Any,
    ) -> None:
        self.model = model
        self.loss = loss
        self.epochs = epochs
        self.categories = categories
        self.vali_fraction = vali_fraction
        self.one_list = one_list
        self.random_state = random_state
        self.verbose = verbose
        self._config = config

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters, those of ``config`` too."""
        return super().get_params(deep) | self._config

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``fit`` checks them."""
        named = self._get_param_names()
        for name, value in params.items():
            if name in named:
                setattr(self, name, value)
            else:
                self._config = self._config | {name: value}
        return self

    def fit(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        eval_set: Sequence[Sequence[Any]] | None = None,
        sample_weight: Any = None,
        position: Any = None,
    ) -> Self:
        """Train on ``X`` and select the epoch on vali.

        Args:
            X: ``[rows, features]``: NumPy, a sparse matrix, pandas, polars, Arrow. NaN and null are
                missing values. Of a table, texts are refused unless they are ``categories``, and
                the columns that are ``y``, ``qid`` or ``sample_weight`` are no features.
            y: ``[rows]``, graded relevance, 0 = not relevant.
            qid: the query of each row, ``[rows]``; None: the column ``qid`` of the table.
            eval_set: ``(X, y, qid)`` or ``(X, y, qid, position)`` of vali, and perhaps of test. The
                test metrics are then in ``results_``. None: vali is cut from train by query.
            sample_weight: > 0, how much each query counts: one for each row, equal within a query,
                or one for each query in the order of appearance.
            position: the rank at which each item was shown, ``[rows]``; ``model.position`` reads
                it. None: the items of a query were shown in the order of the rows.

        Raises:
            ValueError, TypeError: the input, or a parameter, in one line.
        """
        if eval_set is not None and not 1 <= len(eval_set) <= len(_SPLITS):
            raise DataError(
                f"eval_set has {len(eval_set)} entries: give [(X, y, qid)] of vali, or one of vali "
                "and one of test"
            )
        overrides = overrides_of_ranker(self.get_params(deep=False))
        cfg, choices = run_config(overrides)
        for key in RELATIVE:  # or they would be kept as seen from the temporary folder of the run
            if cfg[key] is not None:
                cfg[key] = str(Path(cfg[key]).absolute())
        ours = str(cfg.model["_target_"]).startswith("ltr.")  # another's may read it
        if position is not None and ours and cfg.model.get("position") is None:
            raise ConfigError(
                "position: the model does not read it: set model='transformer' and "
                "**{'model.position': 'fixed'} or 'learned', or leave it out"
            )
        begun = None
        if cfg.init_from is not None:  # whose categories have these codes
            begun = load_model(cfg.init_from, pick_device("cpu"), trust_of(cfg)).columns
        of_train = None
        if eval_set is None:
            of_train = partial(queries_of_train, fraction=self.vali_fraction, seed=cfg.seed)
        train = self._lists(
            X, qid, begun, y=y, reset=True, weights=sample_weight, position=position,
            of_train=of_train,
        )  # fmt: skip
        lists = {"train": train}
        for split, given in zip(_SPLITS, eval_set or (), strict=False):
            if not isinstance(given, (tuple, list)) or not 2 <= len(given) <= 4:
                raise DataError("eval_set: give (X, y, qid) or (X, y, qid, position) of each split")
            other, labels, ids, places = (*given, None, None)[:4]
            lists[split] = self._lists(other, ids, train.columns, y=labels, position=places)
        if eval_set is None and self.one_list and len(train) == 1:
            lists["vali"] = train
        elif of_train is not None:
            part = of_train(train.qids)
            drawn = np.array([qid in part for qid in train.qids])
            for split, which in (("train", drawn), ("vali", ~drawn)):
                lists[split] = train.subset(np.flatnonzero(which))
            cfg.dataset.cut = self.vali_fraction
        lists = {split: replace(one, rows=None).with_digest() for split, one in lists.items()}
        dataset = MemoryLists(name="memory", lists=lists, cut=cfg.dataset.cut)
        with tempfile.TemporaryDirectory(prefix="ltr-") as name, as_it_was(self.verbose):
            folder = Path(name)
            try:
                run(cfg, folder, choices, dataset, shown(self.verbose, cfg.epochs))
            except Interrupted as stop:
                raise KeyboardInterrupt from stop
            write_overrides(folder / OVERRIDES, overrides)
            whole = None if of_train is None else train
            return self._take(Trained(folder, cfg.device, trust_of(cfg)), whole)

    def predict(self, X: Any, qid: Any = None, position: Any = None) -> Floats:
        """The score of each row, higher first, ``[rows]`` in the order of ``X``.

        Args:
            X, qid, position: as for ``fit``; a table is read by the names of its columns, and may
                have others. A model that scores each item alone needs no ``qid``.

        Raises:
            ValueError: ``X`` lacks features, or ``qid`` is missing.
        """
        check_is_fitted(self)
        lists = self._lists(X, qid, self._columns, position=position, alone=True)
        return in_rows(self._trained.scores(lists, self.verbose), lists)

    def rank(self, X: Any, qid: Any = None, position: Any = None) -> Ints:
        """The rank of each row in its list, 1 = best, ``[rows]``; ties in the order of the rows."""
        check_is_fitted(self)
        lists = self._lists(X, qid, self._columns, position=position)
        scores = self._trained.scores(lists, self.verbose)
        return in_rows(ranks_of(scores, lists.offsets), lists)

    def score(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        sample_weight: Any = None,
        metrics_as: str | None = None,
        position: Any = None,
    ) -> float:
        """The mean of ``select_on`` over the lists, by their weights where there are any.

        Args:
            X, y, qid, sample_weight, position: as for ``fit``.
            metrics_as: the convention, such as ``"trec"``; None: that of the fit.
        """
        check_is_fitted(self)
        name = str(self._trained.config.select_on)
        lists, values, convention = self._measured(
            [name], metrics_as, X, qid, y=y, weights=sample_weight, position=position
        )
        sizes = zip(lists.qids, lists.lengths, strict=True)
        if any(self._sizes.get(qid, rows) != rows for qid, rows in sizes):
            warnings.warn(_SPLIT_QUERIES, UserWarning, stacklevel=2)
        if lists.weights is None:
            return means(values, convention)[name]
        counted = ~np.isnan(values[name])
        return float(np.average(values[name][counted], weights=lists.weights[counted]))

    def evaluate(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        metrics: Sequence[str] | str | None = None,
        metrics_as: str | None = None,
        position: Any = None,
    ) -> pd.DataFrame:
        """Every metric of each query, with its number of items and whether none is relevant.

        Args:
            X, y, qid, metrics_as, position: as for ``score``.
            metrics: such as ``["ndcg@10", "mrr"]``; None: those of the fit.

        Returns:
            A row for each query in the order of appearance; a list that the convention leaves out
            is NaN.
        """
        check_is_fitted(self)
        names = as_list(self._trained.config.metrics if metrics is None else metrics)
        lists, values, _ = self._measured(names, metrics_as, X, qid, y=y, position=position)
        counts = {"qid": lists.qids, "items": lists.lengths, "empty": lists.empty}
        return pd.DataFrame({**counts, **values})

    def _measured(
        self, names: Sequence[str], metrics_as: str | None, X: Any, qid: Any, **more: Any
    ) -> tuple[Lists, PerQuery, Convention]:
        """The lists of ``X``, every metric of each under a convention, and this."""
        convention, metrics = self._trained.convention(metrics_as), named_metrics(names)
        lists = self._lists(X, qid, self._columns, **more)
        check_metrics("X", lists, metrics, convention)
        scores = self._trained.scores(lists, self.verbose)
        return lists, metrics_of_scores(lists, scores, metrics, convention), convention

    def save(self, path: str | Path) -> None:
        """Write the run folder ``path``, as ``train.py`` leaves one; all commands take it.

        Raises:
            OutputError: something is there already, or it cannot be written.
        """
        check_is_fitted(self)
        self._trained.save(Path(path))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", trust: Sequence[str] = ()) -> Self:
        """The fitted ranker in a run folder, of ``save`` or of ``train.py``.

        Args:
            path: the folder.
            device: of the model.
            trust: your own modules whose models and metrics the folder may name.

        Raises:
            CheckpointError, ConfigError, DataError: it holds no model that can be read.
        """
        trained = Trained(run_folder(str(path)), device, trust)
        ranker = cls(**params_of(trained))._take(trained)
        ranker.n_features_in_ = trained.scorer.transform.width
        if ranker._columns is not None:
            ranker.feature_names_in_ = np.array(ranker._columns.names, dtype=object)
        return ranker

    def _take(self, trained: Trained, whole: Lists | None = None) -> Self:
        """Take a model, and the rows of each query of ``whole``, of which vali was cut off."""
        self._trained = trained
        self._sizes = {} if whole is None else dict(zip(whole.qids, whole.lengths, strict=True))
        self.results_, self.history_ = trained.results, trained.history
        return self

    @property
    def _columns(self) -> Columns | None:
        return self._trained.scorer.columns

    def _lists(
        self, X: Any, qid: Any, columns: Columns | None, *, y: Any = _UNLABELLED,
        reset: bool = False, weights: Any = None, position: Any = None, alone: bool = False,
        of_train: Any = None,
    ) -> Lists:  # fmt: skip
        """The lists of ``X``; with ``alone`` a pointwise model needs no query ids."""
        others = [one for one in (y, weights) if one is not _UNLABELLED]
        rows = read_rows(
            self, X, qid, columns, reset=reset, of_train=of_train,
            categories=as_list(self.categories), others=others,
        )  # fmt: skip
        labels = None if y is _UNLABELLED else read_labels(y, len(rows.features))
        if rows.qids is not None:
            qids = rows.qids
        elif alone and self._trained.pointwise:
            rows = rows._replace(numbers=np.arange(len(rows.features)))
            qids = rows.numbers.astype(str)
        elif self.one_list:
            qids = np.array(["0"])
        else:
            raise DataError(
                "qid is missing: give qid=, the query id of each row, or a table with a column "
                "qid; where all rows are of one query, set one_list=True; where scikit-learn calls "
                "score (GridSearchCV), it passes qid on after "
                "sklearn.set_config(enable_metadata_routing=True)"
            )
        return lists_of_rows(rows, qids, labels, weights=weights, position=position)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trained")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.input_tags.sparse = tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags
