"""``Ranker``: fit, predict, rank, score, evaluate, save and load, as scikit-learn has them."""

import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from ltr.atomic import atomic_write, make_folder
from ltr.console.arguments import as_text
from ltr.console.compose import run_config, values_of
from ltr.console.folders import run_folder, write_overrides
from ltr.console.keys import Kind, flat, keys
from ltr.data.lists import Floats, Ints, Lists
from ltr.data.memory import MemoryLists
from ltr.errors import ConfigError, DataError, OutputError
from ltr.experiment.labels import check_metrics as check_labels
from ltr.experiment.run import run
from ltr.experiment.run_folder import FILES, RESULTS, RunFolder
from ltr.metrics import Convention
from ltr.ranker_rows import in_rows, lists_of_rows, queries_of_train
from ltr.scorers.parts import as_list, make_convention, named_metrics, own_metrics
from ltr.scorers.scorer import load_model
from ltr.scorers.trust import RELATIVE, check_metrics, check_override, trusted
from ltr.training.checkpoint import ENSEMBLE
from ltr.training.device import pick_device
from ltr.training.evaluation import PerQuery, means, metrics_of_scores, ranks_of
from ltr.training.hooks import OnEpoch, quiet
from ltr.training.interruption import Interrupted
from ltr.training.monitor import sentence

# Keys of the config that say where lists come from or a run goes to.
_OF_COMMAND = ("dataset", "data_dir", "cache_dir", "output_dir", "sweep", "resume", "hydra")
# Parameters that are no keys of the config, or have another name there.
_OWN = ("categories", "vali_fraction", "one_list", "random_state", "verbose")
_OVERRIDES = ".hydra/overrides.yaml"
# results.json is the last: it says that all others are there.
_FILES = ("best.pt", "last.pt", ENSEMBLE, *FILES, _OVERRIDES, "events.out.tfevents.*", RESULTS)
_SPLIT_QUERIES = (
    "score: queries of the fit come with other rows; if cv= has split them, the score is too high: "
    "give cv=GroupKFold(5) and groups=qid; if they are other queries, give them other ids"
)


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
        verbose: 0: nothing is shown; 1: progress bars and, in a notebook, a table of the epochs;
            2: a line for each epoch outside a notebook too.
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
                The columns of a table that are ``y``, ``qid`` or ``sample_weight`` are no features.
            y: ``[rows]``, graded relevance, 0 = not relevant.
            qid: the query of each row, ``[rows]``; None: the column ``qid`` of the table.
            eval_set: ``(X, y, qid)`` or ``(X, y, qid, position)`` of vali, and perhaps of test.
                None: vali is cut from train by query.
            sample_weight: > 0, how much each query counts: one for each row, equal within a query,
                or one for each query in the order of appearance.
            position: the rank at which each item was shown, ``[rows]``, for ``model.position``;
                None: the order of the rows.

        Raises:
            ValueError, TypeError: the input, or a parameter, in one line.
        """
        entries = eval_set or ()
        if len(entries) > 2 or not all(
            isinstance(one, (tuple, list)) and 2 <= len(one) <= 4 for one in entries
        ):
            raise DataError(
                "eval_set: give [(X, y, qid)] or (X, y, qid, position), vali, then test"
            )
        overrides = overrides_of(self.get_params(deep=False))
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
        trust = _trust_of(cfg)
        begun = None  # whose categories have these codes
        if cfg.init_from is not None:
            begun = load_model(cfg.init_from, pick_device("cpu"), trust).columns
        of_train = partial(queries_of_train, fraction=self.vali_fraction, seed=cfg.seed)
        train = self._lists(
            X, qid, columns=begun, y=y, reset=True, weights=sample_weight, position=position,
            of_train=None if entries else of_train,
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
        with tempfile.TemporaryDirectory(prefix="ltr-") as name, _as_it_was(self.verbose):
            try:
                run(cfg, Path(name), choices, dataset, _shown(self.verbose, cfg.epochs))
            except Interrupted as stop:
                raise KeyboardInterrupt from stop
            write_overrides(Path(name, _OVERRIDES), overrides)
            return self._take(Trained(Path(name), cfg.device, trust), () if entries else train)

    def predict(self, X: Any, qid: Any = None, position: Any = None) -> Floats:
        """The score of each row, higher first, ``[rows]`` in the order of ``X``.

        A table is read by the names of its columns. A model that scores each item alone needs no
        ``qid``. ``ValueError``: ``X`` lacks features, or ``qid`` is missing.
        """
        check_is_fitted(self)
        alone = getattr(self._trained.scorer.model, "pointwise", False)
        without = {"without_qid": "each"} if alone else {}
        lists = self._lists(X, qid, position=position, **without)
        return in_rows(self._trained.scores(lists, self.verbose), lists)

    def rank(self, X: Any, qid: Any = None, position: Any = None) -> Ints:
        """The rank of each row in its list, 1 = best, ``[rows]``; ties in the order of the rows."""
        check_is_fitted(self)
        lists = self._lists(X, qid, position=position)
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

        ``metrics_as`` is the convention, such as ``"trec"``; None: that of the fit.
        """
        check_is_fitted(self)
        name = str(self._trained.config.select_on)
        given = {"y": y, "weights": sample_weight, "position": position}
        lists, values, convention = self._measured([name], metrics_as, X, qid, **given)
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

        ``metrics`` are such as ``["ndcg@10", "mrr"]``; None: those of the fit. Queries are in the
        order of appearance; a list that the convention leaves out is NaN.
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
        convention, metrics = make_convention(self._trained.config), named_metrics(names)
        if metrics_as is not None:  # with the number of grades of the run
            named = run_config([f"metrics_as={metrics_as}"])[0].convention
            convention = replace(convention, **{k: named[k] for k in named if k != "levels"})
        lists = self._lists(X, qid, **more)
        check_labels("X", lists, metrics, convention)
        scores = self._trained.scores(lists, self.verbose)
        return lists, metrics_of_scores(lists, scores, metrics, convention), convention

    def save(self, path: str | Path) -> None:
        """Write the run folder ``path``, as ``train.py`` leaves one; all commands take it.

        Raises:
            OutputError: something is there already, or it cannot be written.
        """
        check_is_fitted(self)
        make_folder("path", Path(path))
        if any(Path(path).iterdir()):
            raise OutputError(f"{path} is not empty: give the name of a new folder")
        self._trained.write(Path(path))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", trust: Sequence[str] = ()) -> Self:
        """The fitted ranker in a run folder, of ``save`` or of ``train.py``.

        ``trust`` names your own modules whose models and metrics the folder may name.

        Raises:
            CheckpointError, ConfigError, DataError: it holds no model that can be read.
        """
        trained = Trained(run_folder(str(path)), device, trust)
        ranker = cls(**params_of(trained))._take(trained)
        ranker.n_features_in_ = trained.scorer.transform.width
        if (columns := trained.scorer.columns) is not None:
            ranker.feature_names_in_ = np.array(columns.names, dtype=object)
        return ranker

    def _take(self, trained: "Trained", whole: Lists | tuple[()] = ()) -> Self:
        """Take a model, and the rows of each query of ``whole``, of which vali was cut off."""
        self._trained = trained
        self._sizes = dict(zip(whole.qids, whole.lengths, strict=True)) if whole else {}
        self.results_, self.history_ = trained.results, trained.history
        return self

    def _lists(self, X: Any, qid: Any, **how: Any) -> Lists:
        if "columns" not in how:
            how["columns"] = self._trained.scorer.columns
        how = {"without_qid": "one" if self.one_list else "refused"} | how
        return lists_of_rows(self, X, qid, categories=as_list(self.categories), **how)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trained")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.input_tags.sparse = tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags


class Trained:
    """A model of a run folder, whose files it holds; a copy and a pickle load them again."""

    def __init__(self, folder: Path, device: str, trust: Sequence[str] = ()) -> None:
        found = [path for name in _FILES for path in sorted(folder.glob(name))]
        self.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
        self.trust, run = tuple(trust), RunFolder(folder)
        self.scorer = load_model(folder, pick_device(device), trust)
        self.results: dict[str, Any] = run.results if run.finished else {}
        self.history = run.history if run.finished else pd.DataFrame()
        self.overrides = run.overrides

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "device": self.scorer.device.type, "trust": self.trust}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.files = state["files"]
        with tempfile.TemporaryDirectory(prefix="ltr-") as folder:
            self.write(Path(folder))
            device = state["device"] if torch.cuda.is_available() else "cpu"
            self.__init__(Path(folder), device, state["trust"])  # type: ignore[misc]

    def write(self, folder: Path) -> None:
        """Write them into ``folder``."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            atomic_write(folder / name, content)

    @property
    def config(self) -> Any:
        """The config of the run, whose metrics can be computed."""
        return trusted(self.scorer.config, ["metrics"], self.trust)

    def scores(self, lists: Lists, verbose: int) -> Floats:
        """The score of every item, ``[items]``."""
        config = self.scorer.config
        with _as_it_was(verbose):
            if config["threads"] is not None:
                torch.set_num_threads(config["threads"])
            return self.scorer.scores(lists, items=config["evaluation_items"]).cpu().numpy()


def _trust_of(cfg: Any) -> list[str]:
    """The modules of what the user trains with, for its model to be read again."""
    nodes = [cfg.model, *(cfg.get("own_metrics") or {}).values()]
    own = [*(str(node["_target_"]) for node in nodes), *own_metrics(cfg)]
    return [*as_list(cfg.trust), *{name.partition(".")[0] for name in own} - {"ltr"}]


@contextmanager
def _as_it_was(verbose: int) -> Iterator[None]:
    """Within, torch may draw and threads be set; afterwards both are as before."""
    threads = torch.get_num_threads()
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(gpus), quiet(not verbose):
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _shown(verbose: int, epochs: int) -> list[OnEpoch]:
    """The hook that shows epochs: in a notebook a table that grows, else lines from 2 on."""
    ipython = sys.modules.get("IPython") if verbose else None  # it is not imported for this
    if ipython and hasattr(ipython.get_ipython(), "kernel"):
        rows: list[Mapping[str, float]] = []
        handle = ipython.display.display(pd.DataFrame(), display_id=True)

        def update(epoch: int, row: Mapping[str, float]) -> None:
            rows.append(row)
            handle.update(pd.DataFrame(rows).set_index("epoch"))

        return [OnEpoch(update)]
    lines = OnEpoch(lambda epoch, row: print(sentence(row, epochs)))
    return [lines] if verbose > 1 else []


def overrides_of(params: Mapping[str, Any]) -> list[str]:
    """What the command line would be given for the parameters of a ``Ranker``.

    Raises:
        ConfigError, ValueError: one is wrong, or not for an estimator.

    >>> overrides_of(Ranker("mlp", epochs=5, optimizer={"lr": 0.01}, patience=None).get_params())
    ['dataset=memory', 'epochs=5', 'model=mlp', 'optimizer.lr=0.01', 'patience=null']
    """
    unset = [name for name in ("model", "loss", "epochs") if params[name] is None]
    given = flat({name: one for name, one in params.items() if name not in (*_OWN, *unset)})
    if not isinstance(verbose := params["verbose"], (int, np.integer)):
        raise ConfigError(f"verbose={verbose}: give 0, 1 or 2")
    if (seed := params["random_state"]) is not None:
        if "seed" in given:
            raise ConfigError("seed and random_state: give one of them")
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        given["seed"] = seed
    if wrong := [key for key in given if _group(key) in _OF_COMMAND]:
        raise ConfigError(f"{wrong[0]}: a Ranker takes its lists from fit; leave it out")
    plain = {key: getattr(value, "tolist", lambda v=value: v)() for key, value in given.items()}
    # options are the library's: no config has them all
    texts = [f"{'++' * ('.options.' in key)}{key}={as_text(plain[key])}" for key in plain]
    return ["dataset=memory", *texts]


def _group(key: str) -> str:
    return re.split(r"[./@]", key.lstrip("+~"))[0]


def params_of(trained: Trained) -> dict[str, Any]:
    """The parameters that fit the run again; ``ConfigError`` where it names untrusted code."""
    choices, columns = trained.results.get("choices", {}), trained.scorer.columns
    if "members" in choices:
        return {"model": "ensemble"}  # of runs: the command makes it, ``fit`` cannot
    given = values_of(trained.overrides)
    groups = () if "experiment" in given else ("model", "loss")  # else the experiment has them
    params: dict[str, Any] = {group: str(choices[group]) for group in groups if group in choices}
    for key, value in given.items():
        if (first := _group(key)) in {*keys(Kind.PLACE), "dataset", "hydra"}:
            continue
        if first in ("metrics", "select_on"):
            check_metrics(own_metrics({first: value}), trained.trust)
        node = {"_target_": value} if key.endswith("._target_") else value
        check_override(key, node, trained.trust)
        params["random_state" if key == "seed" else key] = value
    if columns is not None and columns.categories:
        params["categories"] = list(columns.categories)
    cut = trained.scorer.config["dataset"].get("cut")
    return params if cut is None else params | {"vali_fraction": cut}
