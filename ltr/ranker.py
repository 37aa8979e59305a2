"""``Ranker``, which fits, predicts, ranks, evaluates, saves and loads, in scikit-learn's style."""

import logging
import tempfile
import warnings
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
from ltr.atomic import atomic_write, filling, make_folder, writing_folder
from ltr.cli.arguments import as_text
from ltr.cli.compose import run_config
from ltr.cli.folders import convention_keys, run_folder, write_overrides
from ltr.cli.keys import as_list, flat
from ltr.data.lists import Lists
from ltr.data.memory import MemoryLists
from ltr.errors import DataError, OutputError
from ltr.experiment.build import build
from ltr.experiment.copies import correct_copy
from ltr.experiment.data_checks import check_metrics
from ltr.experiment.run import run
from ltr.experiment.run_folder import RESULTS, RunFolder
from ltr.knobs import python_number
from ltr.metrics import Convention
from ltr.parts.components import build_convention, named_metrics
from ltr.parts.scorer import Scorer, load_model
from ltr.parts.trust import RELATIVE, trusted
from ltr.ranker_rows import given_qids, in_rows, lists_of_rows, queries_of_train
from ltr.training.caveats import warn_of_measurement
from ltr.training.device import pick_device
from ltr.training.evaluation import (
    PerQuery,
    means,
    metrics_of_scores,
    ranks_of,
    values_with_ties_averaged,
)
from ltr.training.hooks import Hook, OnEpoch, quiet
from ltr.training.interruption import Interrupted
from ltr.training.monitor import sentence

log = logging.getLogger(__name__)

# Parameters that are not keys in the config, or have a different name there.
_OWN = ("categories", "vali_fraction", "one_list", "random_state", "verbose")


class Ranker(BaseEstimator):
    """A scikit-learn estimator that trains like ``ltr train`` and gives the same numbers.

    Each row of ``X`` is an item, and ``qid`` names its query. The rows of a query need not be
    adjacent.

    Args:
        model, loss: the names that ``model=`` and ``loss=`` take on the command line; None: the
            default of the command line.
        epochs: the number of epochs of a network, or of rounds of boosted trees; None: the default
            in the config.
        categories: columns of a table that are categories, in addition to columns of a categorical
            type.
        vali_fraction: if ``fit`` gets no ``eval_set``, this fraction of the queries is set aside
            from the training lists to choose the epoch.
        one_list: whether all rows belong to one query if there is no ``qid``. If ``fit`` gets only
            one list, the epoch is chosen on this list itself.
        random_state: the seed, or a ``RandomState`` that draws the seed; None: the seed 1.
        verbose: 0: show nothing; 1: show progress bars; 2: also print a line for each epoch.
        config: any other key of ``configs/train.yaml``, written as on the command line
            (``**{"optimizer.lr": 0.01}``) or nested (``optimizer={"lr": 0.01}``).

    Attributes:
        results_: the content of the run's ``results.json``, such as metrics and all settings.
        history_: a table with one row for each epoch.
        n_features_in_, feature_names_in_: the number of features, and their names if ``X`` was a
            table.

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
        """Return all parameters, including those in ``config``."""
        return super().get_params(deep) | self._config

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``fit`` checks them."""
        own_parameters = {*self._get_param_names()} & params.keys()
        self._config = self._config | {key: params[key] for key in params.keys() - own_parameters}
        return super().set_params(**{key: params[key] for key in own_parameters})

    def fit(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        eval_set: Sequence[Sequence[Any]] | None = None,
        sample_weight: Any = None,
        position: Any = None,
        *,
        group: Any = None,
        eval_group: Sequence[Any] | None = None,
        eval_qid: Sequence[Any] | None = None,
    ) -> Self:
        """Train on ``X`` and select the best epoch on the validation lists.

        Args:
            X: ``[rows, features]``, as a NumPy array, sparse matrix, or table (pandas, polars,
                Arrow); NaN and null are missing values. If ``y``, ``qid`` or ``sample_weight`` is a
                series, the column of the table with the same name and values is not used as a
                feature; if the values differ, ``fit`` raises an error. A column without a name,
                such as ``Unnamed: 0``, is not used as a feature either.
            y: graded relevance of each row, ``[rows]``; 0 means not relevant.
            qid: the query of each row, ``[rows]``; None: the column ``qid`` of the table.
            eval_set: a list of one or two tuples ``(X, y)``, ``(X, y, qid)`` or ``(X, y, qid,
                position)``: the validation lists and, optionally, the test lists. None: some of the
                training queries become the validation lists.
            sample_weight: the weight of each row's query, ``[rows]``, > 0; it must be equal in all
                rows of a query.
            position: the rank at which each item was shown, ``[rows]``; models with
                ``model.position`` read it. None: the order of the rows.
            group: instead of ``qid``, the number of rows of each query, ``[queries]``, as in
                LightGBM and XGBoost; the rows of each query must be adjacent.
            eval_group, eval_qid: ``group`` or ``qid`` of each entry ``(X, y)`` of ``eval_set``.

        Raises:
            ValueError, TypeError: the input or a parameter is invalid.
        """
        entries = _entries(eval_set, eval_group, eval_qid)
        overrides = overrides_of(self.get_params(deep=False))
        cfg, choices = run_config(overrides)
        if position is not None and not _reads_positions(cfg.model):
            log.warning(
                "this model does not read position=, so position only decides the order of ties: "
                "choose model=transformer with model.position=fixed or learned, or leave position "
                "out"
            )
        for key in RELATIVE:  # otherwise it would be relative to the temporary run folder
            if cfg[key] is not None:
                cfg[key] = str(Path(cfg[key]).absolute())
        initial_columns = None  # columns of the model in init_from, whose category codes are reused
        if cfg.init_from is not None:
            initial_columns = load_model(cfg.init_from, trust=as_list(cfg.trust)).columns
        fraction = python_number(self.vali_fraction)
        of_train = partial(queries_of_train, fraction=fraction, seed=cfg.seed)
        train = self._lists(
            X, qid, group=group, columns=initial_columns, y=y, reset=True, weights=sample_weight,
            position=position, categories=as_list(self.categories),
            of_train=None if entries else of_train,
        )  # fmt: skip
        lists = {"train": train}
        for split, entry in zip(("vali", "test"), entries, strict=False):
            lists[split] = self._lists(columns=train.columns, **entry)
        if not entries and self.one_list and len(train) == 1:
            lists["vali"] = train
        elif not entries:
            train_qids = of_train(train.qids)
            is_train = np.array([qid in train_qids for qid in train.qids])
            for split, indices in (("train", is_train), ("vali", ~is_train)):
                lists[split] = train.subset(np.flatnonzero(indices))
            cfg.dataset.cut = fraction
        _show_remarks(*lists.values())
        lists = {
            split: replace(split_lists, rows=None).with_digest()
            for split, split_lists in lists.items()
        }
        dataset = MemoryLists(name="memory", lists=lists, cut=cfg.dataset.cut)
        trained = _Trained()
        hooks: list[Hook] = [trained]
        if self.verbose > 1:
            hooks.append(OnEpoch(lambda _, row: print(sentence(row, cfg.epochs))))
        experiment = build(cfg, choices, dataset)
        with (
            tempfile.TemporaryDirectory(prefix="ltr-") as name,
            torch.random.fork_rng(),
            quiet(not self.verbose),
        ):
            try:
                run(experiment, Path(name), hooks)
            except Interrupted as stop:
                raise KeyboardInterrupt from stop
            write_overrides(Path(name, ".hydra", "overrides.yaml"), overrides)
            return self._take(Path(name), trained.scorer, trained.config)

    def predict(
        self, X: Any, qid: Any = None, position: Any = None, *, group: Any = None
    ) -> Floats:
        """Return the scores, ``[rows]``, of the rows of ``X``; higher is better.

        The columns of a table are selected by name. ``qid`` and ``group`` (see ``fit``) may be left
        out if the model scores each item independently of the others. Raises ``ValueError``
        if ``X`` lacks features, or if ``qid`` is missing.
        """
        check_is_fitted(self)
        alone = getattr(self._scorer.model, "pointwise", False)
        without = {"without_qid": "each"} if alone else {}
        lists = self._lists(X, qid, group=group, position=position, **without)
        _show_remarks(lists)
        return in_rows(self._scores(lists), lists)

    def rank(self, X: Any, qid: Any = None, position: Any = None, *, group: Any = None) -> Ints:
        """Return the ranks, ``[rows]``, of the rows in their lists; 1 is the best.

        Rows with equal scores keep their order.
        """
        check_is_fitted(self)
        lists = self._lists(X, qid, group=group, position=position)
        _show_remarks(lists)
        return in_rows(ranks_of(self._scores(lists), lists.offsets), lists)

    def score(
        self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None, position: Any = None,
        *, group: Any = None,
    ) -> float:  # fmt: skip
        """Return the mean of the metric ``select_on`` over the lists, using their weights.

        Ties are averaged even if the convention of the fit does not do so. This is because
        scikit-learn chooses parameters by this value, and the choice must not depend on the order
        of the rows.

        In a cross-validation, use a splitter such as ``cv=GroupKFold(5)``: if the rows of a query
        are divided between two folds, the score is too high.
        """
        check_is_fitted(self)
        name = str(self._settings["select_on"])
        lists, values, convention = self._measured(
            [name], None, X, qid, averaged=True, group=group, y=y, weights=sample_weight,
            position=position,
        )  # fmt: skip
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
        convention: str | None = None,
        position: Any = None,
        *,
        group: Any = None,
        metrics_as: str | None = None,
    ) -> pd.DataFrame:
        """Return a table of metrics with one row per query, in order of first appearance.

        The columns are ``qid`` (with the type of the input), ``items`` (number of items), ``empty``
        (True if no item is relevant) and the metrics. A metric is NaN if the convention leaves the
        list out.

        Args:
            X, y, qid, position, group: as for ``fit``.
            metrics: the names of metrics, such as ``["ndcg@10", "mrr"]``; None: the metrics of the
                fit.
            convention: the name of a metric convention, such as ``"trec"``; None: the convention of
                the fit.
            metrics_as: the name that ``convention`` had in version 0.2; the next version will drop
                it.
        """
        check_is_fitted(self)
        if metrics_as is not None:
            message = "metrics_as: use convention instead; the next version will drop metrics_as"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            convention = metrics_as
        names = as_list(self._settings["metrics"] if metrics is None else metrics)
        arguments = {"group": group, "y": y, "position": position}
        lists, values, _ = self._measured(names, convention, X, qid, **arguments)
        qids = given_qids(lists, X, qid, group)
        return pd.DataFrame({"qid": qids, "items": lists.lengths, "empty": lists.empty, **values})

    def _measured(
        self,
        names: Sequence[str],
        convention_name: str | None,
        X: Any,
        qid: Any,
        averaged: bool = False,
        **more: Any,
    ) -> tuple[Lists, PerQuery, Convention]:
        """Return the lists of ``X``, the metrics of each list, and the convention of the metrics.

        If ``averaged``, the metrics are computed with ties averaged.
        """
        convention = build_convention(self._settings)
        metrics = named_metrics(names)
        if convention_name is not None:  # but keep the run's number of grades
            convention = replace(convention, **convention_keys(convention_name))
        lists = self._lists(X, qid, **more)
        _show_remarks(lists)
        check_metrics("X", lists, metrics, convention)
        scores = self._scores(lists)
        values = metrics_of_scores(lists, scores, metrics, convention)
        warn_of_measurement("X", lists, scores, metrics, convention, means(values, convention))
        if averaged:
            values = values_with_ties_averaged(lists, scores, metrics, convention)
        return lists, values, convention

    def save(self, path: str | Path) -> None:
        """Write a run folder, which every command that takes a run of ``ltr train`` can read.

        Raises:
            OutputError: ``path`` is not empty, or it cannot be written.
        """
        check_is_fitted(self)
        folder = Path(path)
        if folder.exists():
            make_folder("path", folder)
            if any(folder.iterdir()):
                raise OutputError(f"{path} is not empty: give the name of a new folder")
        # It may be impossible to replace an existing folder, such as a mounted disk.
        with filling(folder) if folder.exists() else writing_folder(folder) as target:
            for name, content in self._files.items():
                file = Path(target, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(file, content)
            correct_copy(target, self._home)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", trust: Sequence[str] = ()) -> Self:
        """Return the fitted ranker of a run folder that ``save`` or ``ltr train`` has written.

        Only the parameters ``model`` and ``loss`` of the ranker are restored. ``results_`` has the
        settings of the training run.

        Args:
            path: the run folder.
            device: the device on which scores are computed.
            trust: your own modules that define the model or the metrics of the run.

        Raises:
            CheckpointError, ConfigError, DataError: the folder has no model that can be read.
        """
        folder = run_folder(str(path))
        scorer = load_model(folder, pick_device(device), trust)
        ranker = cls()._take(folder, scorer, trusted(scorer.config, ["metrics"], trust))
        choices = ranker.results_.get("choices", {})
        ranker.model = choices.get("model")
        ranker.loss = choices.get("loss")
        ranker.n_features_in_ = scorer.transform.width
        if scorer.columns is not None:
            ranker.feature_names_in_ = np.array(scorer.columns.names, dtype=object)
        return ranker

    def _take(self, folder: Path, scorer: Scorer, settings: Mapping[str, Any]) -> Self:
        """Take over the model of a run and the files of its folder; return this ranker."""
        run_folder_ = RunFolder(folder)
        self._scorer = scorer
        self._settings = settings
        self._home = folder.absolute()  # its relative paths are relative to this
        self.results_ = run_folder_.results if run_folder_.finished else {}
        self.history_ = run_folder_.history if run_folder_.finished else pd.DataFrame()
        paths = [path for path in folder.rglob("*") if path.is_file()]
        paths.sort(key=lambda path: path.name == RESULTS)  # last, as it marks a complete run
        self._files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        return self

    def _lists(self, X: Any, qid: Any = None, **arguments: Any) -> Lists:
        if "columns" not in arguments:
            arguments["columns"] = self._scorer.columns
        arguments = {"without_qid": "one" if self.one_list else "refused"} | arguments
        return lists_of_rows(self, X, qid, **arguments)

    def _scores(self, lists: Lists) -> Floats:
        """Return the scores of all items, ``[items]``."""
        with quiet(not self.verbose):
            scores = self._scorer.scores(lists, items=self._settings["evaluation_items"])
        return scores.cpu().numpy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.input_tags.sparse = tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags


def _show_remarks(*parts: Lists) -> None:
    """Log the remarks of the lists as warnings, one for each subject."""
    remarks = {
        subject: text for lists in reversed(parts) for subject, text in lists.remarks.items()
    }
    for text in remarks.values():
        log.warning("X: %s", text)


def _reads_positions(model: Any) -> bool:
    """Return whether the model of a config may read ``position``, as a user's own model may."""
    return model.get("position") is not None or not str(model._target_).startswith("ltr.")


class _Trained(Hook):
    """Keeps a run's config and its scorer, which has the selected weights when the run ends."""

    def start(self, experiment: Any, lists: Mapping[str, Any], scorer: Any) -> None:
        self.config = experiment.record.config
        self.scorer = scorer


def _entries(eval_set: Any, eval_group: Any, eval_qid: Any) -> list[dict[str, Any]]:
    """Return the arguments of ``lists_of_rows`` for each entry of ``eval_set``."""
    entries = list(eval_set or ())
    names = ("X", "y", "qid", "position")
    is_sound = all(isinstance(entry, (tuple, list)) and 2 <= len(entry) <= 4 for entry in entries)
    described = [dict(zip(names, entry, strict=False)) for entry in entries if is_sound]
    for key, values in {"group": eval_group, "qid": eval_qid}.items():
        if values is not None:
            is_sound = (
                is_sound
                and len(values) == len(entries)
                and not any(key in entry for entry in described)
            )
            described = [
                entry | {key: value} for entry, value in zip(described, values, strict=False)
            ]
    if not is_sound or len(entries) > 2:
        raise DataError(
            "eval_set: expected one or two tuples (X, y), (X, y, qid) or (X, y, qid, position), "
            "first vali, then test; if the tuples have no qid, give one entry for each tuple in "
            "eval_group or eval_qid"
        )
    return described


def overrides_of(params: Mapping[str, Any]) -> list[str]:
    """Return the command-line arguments that correspond to the parameters of a ``Ranker``.

    >>> overrides_of(Ranker("mlp", epochs=5, optimizer={"lr": 0.01}, patience=None).get_params())
    ['epochs=5', 'model=mlp', 'optimizer.lr=0.01', 'patience=null', 'dataset=memory']
    """
    unset = [name for name in ("model", "loss", "epochs") if params[name] is None]
    values = flat({name: value for name, value in params.items() if name not in (*_OWN, *unset)})
    if (seed := params["random_state"]) is not None:
        is_integer = isinstance(seed, (int, np.integer))
        values["seed"] = seed if is_integer else check_random_state(seed).randint(2**31 - 1)
    # The config does not list the options of a tree library, so "++" adds them.
    texts = [
        f"{'++' * ('.options.' in key)}{key}={as_text(value)}" for key, value in values.items()
    ]
    return [*texts, "dataset=memory"]
