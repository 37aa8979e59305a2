"""``Ranker``: fit, predict, rank, score, evaluate, save and load, as scikit-learn has them."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from ltr.arrays import Floats, Ints
from ltr.atomic import atomic_write, make_folder
from ltr.console.arguments import as_text
from ltr.console.compose import run_config
from ltr.console.folders import run_folder, write_overrides
from ltr.console.keys import as_list, flat
from ltr.data.lists import Lists
from ltr.data.memory import MemoryLists
from ltr.errors import DataError, OutputError
from ltr.experiment.labels import check_metrics
from ltr.experiment.run import run
from ltr.experiment.run_folder import RESULTS, RunFolder
from ltr.metrics import Convention
from ltr.ranker_rows import in_rows, lists_of_rows, queries_of_train
from ltr.scorers.parts import make_convention, named_metrics
from ltr.scorers.scorer import Scorer, load_model
from ltr.scorers.trust import RELATIVE, trusted
from ltr.training.device import pick_device
from ltr.training.evaluation import PerQuery, means, metrics_of_scores, ranks_of
from ltr.training.hooks import Hook, OnEpoch, quiet
from ltr.training.interruption import Interrupted
from ltr.training.monitor import sentence

# Parameters that are no keys of the config, or have another name there.
_OWN = ("categories", "vali_fraction", "one_list", "random_state", "verbose")


class Ranker(BaseEstimator):
    """An estimator of scikit-learn that trains as ``train.py`` does, to the same numbers.

    Each row of ``X`` is an item, ``qid`` its query; the rows of a query may be apart.

    Args:
        model, loss: a choice of ``model=`` and of ``loss=``; None: as the command line has it.
        epochs: of training, of trees rounds; None: as the config has it.
        categories: the columns of a table that are categories, besides those of such a type.
        vali_fraction: the part of the queries cut from train to choose the epoch, where ``fit`` is
            given no ``eval_set``.
        one_list: whether rows without ``qid`` are all of one query; then the epoch is chosen on
            train itself.
        random_state: the seed, or a ``RandomState`` that draws it; None: 1.
        verbose: 0: nothing is shown; 1: progress bars; 2: also a line for each epoch.
        config: any other key of ``configs/train.yaml``, as on the command line
            (``**{"optimizer.lr": 0.01}``) or nested (``optimizer={"lr": 0.01}``).

    Attributes:
        results_: what ``results.json`` of a run holds: metrics, convention, every choice.
        history_: a row for each epoch.
        n_features_in_, feature_names_in_: the features; names only of tables.

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
        own = {*self._get_param_names()} & params.keys()
        self._config = self._config | {key: params[key] for key in params.keys() - own}
        return super().set_params(**{key: params[key] for key in own})

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
            X: ``[rows, features]``: NumPy, sparse, pandas, polars, Arrow; NaN and null are missing.
                The columns of a table by whose names ``y``, ``qid`` or ``sample_weight`` are given
                are no features.
            y: ``[rows]``, graded relevance, 0 = not relevant.
            qid: the query of each row, ``[rows]``; None: the column ``qid`` of the table.
            eval_set: ``(X, y, qid)`` or ``(X, y, qid, position)`` of vali, and perhaps of test.
                None: vali is cut from train by query.
            sample_weight: ``[rows]``, > 0, how much a query counts, equal in all of its rows.
            position: the rank at which each item was shown, ``[rows]``, for ``model.position``;
                None: the order of the rows.

        Raises:
            ValueError, TypeError: the input, or a parameter, in one line.
        """
        entries = eval_set or ()
        if not all(isinstance(one, (tuple, list)) and 2 <= len(one) <= 4 for one in entries):
            raise DataError(
                "eval_set: give [(X, y, qid)] or (X, y, qid, position), vali, then test"
            )
        overrides = overrides_of(self.get_params(deep=False))
        cfg, choices = run_config(overrides)
        for key in RELATIVE:  # or they would be kept as seen from the temporary folder of the run
            if cfg[key] is not None:
                cfg[key] = str(Path(cfg[key]).absolute())
        begun = None  # whose categories have these codes
        if cfg.init_from is not None:
            begun = load_model(cfg.init_from, trust=as_list(cfg.trust)).columns
        of_train = partial(queries_of_train, fraction=self.vali_fraction, seed=cfg.seed)
        train = self._lists(
            X, qid, columns=begun, y=y, reset=True, weights=sample_weight, position=position,
            categories=as_list(self.categories), of_train=None if entries else of_train,
        )  # fmt: skip
        lists = {"train": train}
        for split, given in zip(("vali", "test"), entries, strict=False):
            other, labels, ids, places = (*given, None, None)[:4]
            lists[split] = self._lists(other, ids, columns=train.columns, y=labels, position=places)
        if not entries and self.one_list and len(train) == 1:
            lists["vali"] = train
        elif not entries:
            part = of_train(train.qids)
            drawn = np.array([qid in part for qid in train.qids])
            for split, which in (("train", drawn), ("vali", ~drawn)):
                lists[split] = train.subset(np.flatnonzero(which))
            cfg.dataset.cut = self.vali_fraction
        lists = {split: replace(one, rows=None).with_digest() for split, one in lists.items()}
        dataset = MemoryLists(name="memory", lists=lists, cut=cfg.dataset.cut)
        trained = _Trained()
        hooks = [trained, OnEpoch(lambda _, row: print(sentence(row, cfg.epochs)))]
        with (
            tempfile.TemporaryDirectory(prefix="ltr-") as name,
            torch.random.fork_rng(),
            quiet(not self.verbose),
        ):
            try:
                run(cfg, Path(name), choices, dataset, hooks if self.verbose > 1 else [trained])
            except Interrupted as stop:
                raise KeyboardInterrupt from stop
            write_overrides(Path(name, ".hydra", "overrides.yaml"), overrides)
            return self._take(Path(name), trained.scorer, trained.config)

    def predict(self, X: Any, qid: Any = None, position: Any = None) -> Floats:
        """The score of each row, higher first, ``[rows]`` in the order of ``X``.

        A table is read by the names of its columns. A model that scores each item alone needs no
        ``qid``. ``ValueError``: ``X`` lacks features, or ``qid`` is missing.
        """
        check_is_fitted(self)
        alone = getattr(self._scorer.model, "pointwise", False)
        without = {"without_qid": "each"} if alone else {}
        lists = self._lists(X, qid, position=position, **without)
        return in_rows(self._scores(lists), lists)

    def rank(self, X: Any, qid: Any = None, position: Any = None) -> Ints:
        """The rank of each row in its list, 1 = best, ``[rows]``; ties in the order of the rows."""
        check_is_fitted(self)
        lists = self._lists(X, qid, position=position)
        return in_rows(ranks_of(self._scores(lists), lists.offsets), lists)

    def score(
        self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None, position: Any = None
    ) -> float:
        """The mean of ``select_on`` over the lists, by their weights where there are any.

        A query whose rows ``cv=`` has cut in two scores too high: give ``cv=GroupKFold(5)``.
        """
        check_is_fitted(self)
        name = str(self._settings.select_on)
        lists, values, convention = self._measured(
            [name], None, X, qid, y=y, weights=sample_weight, position=position
        )
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

        ``metrics`` are such as ``["ndcg@10", "mrr"]`` and ``metrics_as`` is a convention, such as
        ``"trec"``; None: those of the fit. Queries are in the order of appearance; a list that the
        convention leaves out is NaN.
        """
        check_is_fitted(self)
        names = as_list(self._settings.metrics if metrics is None else metrics)
        lists, values, _ = self._measured(names, metrics_as, X, qid, y=y, position=position)
        return pd.DataFrame(
            {"qid": lists.qids, "items": lists.lengths, "empty": lists.empty, **values}
        )

    def _measured(
        self, names: Sequence[str], metrics_as: str | None, X: Any, qid: Any, **more: Any
    ) -> tuple[Lists, PerQuery, Convention]:
        """The lists of ``X``, every metric of each under a convention, and this."""
        convention, metrics = make_convention(self._settings), named_metrics(names)
        if metrics_as is not None:  # with the number of grades of the run
            named = run_config([f"metrics_as={metrics_as}"])[0].convention
            convention = replace(convention, **{k: named[k] for k in named if k != "levels"})
        lists = self._lists(X, qid, **more)
        check_metrics("X", lists, metrics, convention)
        return lists, metrics_of_scores(lists, self._scores(lists), metrics, convention), convention

    def save(self, path: str | Path) -> None:
        """Write the run folder ``path``, as ``train.py`` leaves one; all commands take it.

        Raises:
            OutputError: something is there already, or it cannot be written.
        """
        check_is_fitted(self)
        make_folder("path", Path(path))
        if any(Path(path).iterdir()):
            raise OutputError(f"{path} is not empty: give the name of a new folder")
        for name, content in self._files.items():
            file = Path(path, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(file, content)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", trust: Sequence[str] = ()) -> Self:
        """The fitted ranker in a run folder, of ``save`` or of ``train.py``.

        Of its parameters it has the model and the loss alone; ``results_`` says how it was trained.
        ``trust`` names your own modules whose models and metrics the folder may name.

        Raises:
            CheckpointError, ConfigError, DataError: it holds no model that can be read.
        """
        folder = run_folder(str(path))
        scorer = load_model(folder, pick_device(device), trust)
        ranker = cls()._take(folder, scorer, trusted(scorer.config, ["metrics"], trust))
        choices = ranker.results_.get("choices", {})
        ranker.model, ranker.loss = choices.get("model"), choices.get("loss")
        ranker.n_features_in_ = scorer.transform.width
        if scorer.columns is not None:
            ranker.feature_names_in_ = np.array(scorer.columns.names, dtype=object)
        return ranker

    def _take(self, folder: Path, scorer: Scorer, settings: Any) -> Self:
        """Take the model of a run, with the files of its folder."""
        kept = RunFolder(folder)
        self._scorer, self._settings = scorer, settings
        self.results_ = kept.results if kept.finished else {}
        self.history_ = kept.history if kept.finished else pd.DataFrame()
        paths = [path for path in folder.rglob("*") if path.is_file()]
        paths.sort(key=lambda path: path.name == RESULTS)  # the last: it says that all are there
        self._files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        return self

    def _lists(self, X: Any, qid: Any, **how: Any) -> Lists:
        if "columns" not in how:
            how["columns"] = self._scorer.columns
        how = {"without_qid": "one" if self.one_list else "refused"} | how
        return lists_of_rows(self, X, qid, **how)

    def _scores(self, lists: Lists) -> Floats:
        """The score of every item, ``[items]``."""
        with quiet(not self.verbose):
            scores = self._scorer.scores(lists, items=self._settings.evaluation_items)
        return scores.cpu().numpy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.input_tags.sparse = tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags


class _Trained(Hook):
    """Keeps the scorer of a run, which has the selected weights at its end, and its config."""

    def start(self, cfg: Any, parts: Any, lists: Mapping[str, Any], scorer: Any) -> None:
        self.config, self.scorer = cfg, scorer


def overrides_of(params: Mapping[str, Any]) -> list[str]:
    """What the command line would be given for the parameters of a ``Ranker``.

    >>> overrides_of(Ranker("mlp", epochs=5, optimizer={"lr": 0.01}, patience=None).get_params())
    ['epochs=5', 'model=mlp', 'optimizer.lr=0.01', 'patience=null', 'dataset=memory']
    """
    unset = [name for name in ("model", "loss", "epochs") if params[name] is None]
    given = flat({name: one for name, one in params.items() if name not in (*_OWN, *unset)})
    if (seed := params["random_state"]) is not None:
        whole = isinstance(seed, (int, np.integer))
        given["seed"] = seed if whole else check_random_state(seed).randint(2**31 - 1)
    plain = {key: getattr(value, "tolist", lambda v=value: v)() for key, value in given.items()}
    # options are the library's: no config has them all
    texts = [f"{'++' * ('.options.' in key)}{key}={as_text(plain[key])}" for key in plain]
    return [*texts, "dataset=memory"]
