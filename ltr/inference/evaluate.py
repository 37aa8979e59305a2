"""Compute metrics of a trained model, or of scores from any tool, under one or more conventions:
rules that metrics leave open, such as the value of a list without a relevant item.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.analysis.scores_file import read_scored
from ltr.analysis.trec import read_run
from ltr.arrays import Reals
from ltr.console.configs import files_of
from ltr.console.keys import as_list, flag
from ltr.data.lists import Lists, check_split
from ltr.errors import ConfigError
from ltr.experiment.data_checks import check_metrics
from ltr.experiment.report import metric_table
from ltr.experiment.run_folder import write_queries
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.scorers.inputs import check_output, is_table, open_scorer, read_file, set_threads
from ltr.scorers.parts import named_metrics
from ltr.training.caveats import warn_of_measurement
from ltr.training.evaluation import means, metrics_of_scores

DEFAULT_METRICS = (
    "ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "mean_ndcg", "map", "mrr", "precision@10",
)  # fmt: skip


def evaluate(cfg: DictConfig) -> str:
    """Evaluate the model or the scores that ``cfg`` names; return a table of metrics as text."""
    return evaluate_model(cfg) if cfg.scores is None else evaluate_scores(cfg)


def evaluate_model(cfg: DictConfig) -> str:
    """Evaluate the model ``cfg.checkpoint``.

    The lists are those in the LETOR file ``cfg.data``, or those of ``cfg.split`` in the data set
    ``cfg.dataset``. If neither is given, the run's own data set is used.
    """
    if OmegaConf.is_missing(cfg, "checkpoint"):
        raise ConfigError("give checkpoint=..., or scores=... and data=...; see --help")
    check_split(cfg.split)
    chosen = cfg.get("dataset")
    if cfg.data is not None and is_table(Path(cfg.data)):
        raise ConfigError(
            f"data={cfg.data} is a table, not LETOR text: write dataset=table "
            f"dataset.split.test={cfg.data} dataset.query=COLUMN dataset.label=COLUMN"
        )
    _check_files(cfg)
    scorer = open_scorer(cfg)
    given = {"dataset": chosen or cfg.data, "metrics": cfg.metrics}
    own = scorer.own_config(cfg, [part for part, value in given.items() if value is None])
    names = as_list(own.metrics if cfg.metrics is None else cfg.metrics)
    if not names:
        raise ConfigError("metrics=[] asks for nothing: name some, such as 'metrics=[ndcg@5]'")
    metrics = named_metrics(names, own.get("own_metrics") or {} if cfg.metrics is None else None)
    settings: Any = OmegaConf.to_object(own.convention)
    if cfg.suggested.get("levels") is not None:  # from the chosen data set
        settings["levels"] = cfg.suggested.levels
    conventions = chosen_conventions(cfg, settings)
    if cfg.data is not None:
        name, split = cfg.data, "data"
        lists, _ = read_file(Path(cfg.data), flag(cfg, "regroup"), scorer)
    else:
        cfg.data_dir = own.data_dir
        dataset, lists = scorer.read(chosen or own.dataset, cfg.split)
        fold = f" fold {dataset.fold}" if dataset.fold is not None else ""
        name, split = f"{dataset.name}{fold}", cfg.split
    title, score = f"{cfg.checkpoint} on {name}", partial(scorer.scores, items=cfg.evaluation_items)
    return _report(cfg, title, lists, score, metrics, conventions, split)


def evaluate_scores(cfg: DictConfig) -> str:
    """Evaluate the file ``cfg.scores``: a score for each row of ``cfg.data``, or a run of TREC with
    the judgments ``cfg.qrels``.

    The table has a column for each convention in ``cfg.metrics_as``, by default for all in
    ``configs/metrics_as``.
    """
    if (cfg.data is None) == (cfg.qrels is None) or not OmegaConf.is_missing(cfg, "checkpoint"):
        raise ConfigError(
            f"scores={cfg.scores}: give data=FILE, the LETOR file whose rows they score, or "
            "qrels=FILE, the judgments of a run of TREC, and no checkpoint"
        )
    _check_files(cfg)
    set_threads(cfg)
    metrics = named_metrics(as_list(cfg.metrics) or DEFAULT_METRICS)
    scores: Reals
    if cfg.qrels is not None:
        lists, scores = read_run(Path(cfg.scores), Path(cfg.qrels))
    else:
        lists, scores = read_scored(Path(cfg.scores), Path(cfg.data), regroup=flag(cfg, "regroup"))
    if not cfg.get("metrics_as"):
        known = {name: OmegaConf.load(path) for name, path in files_of("metrics_as").items()}
        OmegaConf.update(cfg, "metrics_as", known, force_add=True)
    conventions = chosen_conventions(cfg, {"levels": levels_for(float(lists.labels.max()))})
    on = cfg.data or f"{cfg.qrels} (file order: by id, descending)"
    title, first = f"{cfg.scores} on {on}", next(iter(conventions))
    return _report(cfg, title, lists, lambda _: scores, metrics, conventions, first)


def _check_files(cfg: DictConfig) -> None:
    """Check that ``cfg.data`` and ``cfg.output`` are usable, before any file is read."""
    if cfg.data is not None and cfg.get("dataset") is not None:
        raise ConfigError(f"data={cfg.data}: pass data= or dataset=, not both")
    if cfg.qrels is not None and cfg.scores is None:
        raise ConfigError(f"qrels={cfg.qrels}: give scores=FILE, a run of TREC, and no checkpoint")
    if cfg.output is not None:
        inputs = {key: str(cfg[key]) for key in ("scores", "data", "qrels") if cfg[key] is not None}
        check_output(Path(cfg.output), ".csv", **inputs)


def chosen_conventions(cfg: DictConfig, own: Mapping[str, Any]) -> dict[str, Convention]:
    """Return name -> convention for the conventions in ``cfg.metrics_as``.

    Keys of ``cfg.convention`` that are not null replace those of every named convention, and
    ``own`` has values for keys that neither sets. Without ``metrics_as``, there is one convention,
    named ``own``, with these values.
    """
    given: Any = OmegaConf.to_object(cfg.convention)
    set_here = {key: value for key, value in given.items() if value is not None}
    named: Any = OmegaConf.to_object(cfg.metrics_as) if cfg.get("metrics_as") else {"own": {}}
    return {name: Convention(**{**own, **keys, **set_here}) for name, keys in named.items()}


def _report(
    cfg: DictConfig, title: str, lists: Lists, score: Callable[[Lists], Any],
    metrics: Sequence[Metric], conventions: Mapping[str, Convention], alone: str,
) -> str:  # fmt: skip
    """Compute the metrics; return a table of the means, and the conventions in words.

    If ``cfg.output`` is set, the values of every query are written to it. With several conventions,
    its columns have names such as ``letor4 ndcg@5``. With one, ``alone`` is the head of the table.
    """
    place = str(cfg.data or cfg.qrels or cfg.split)
    for convention in conventions.values():
        check_metrics(place, lists, metrics, convention)
    scores, single = score(lists), len(conventions) == 1
    table, words, columns = {}, [], dict[str, Any]()
    for name, convention in conventions.items():
        items = cfg.evaluation_items
        values = metrics_of_scores(lists, scores, metrics, convention, items=items)
        columns |= {k if single else f"{name} {k}": of_list for k, of_list in values.items()}
        table[alone if single else name] = means(values, convention)
        words.append(convention.describe() if single else f"{name}: {convention.describe()}")
    in_file_order = [name for name, one in conventions.items() if one.ties == "file"]
    name = next(iter([*in_file_order, *conventions]))
    printed = table[alone if single else name]
    where = place if single else f"{place} ({name})"
    warn_of_measurement(where, lists, scores, metrics, conventions[name], printed)
    if cfg.output is not None:
        write_queries(Path(cfg.output), lists, columns)
    described = "\n".join(words)
    return f"{title}, {len(lists):,} lists\n\n{metric_table(table)}\n\n{described}"
