"""Compute metrics of a trained model, or of scores from any tool, under one or more conventions.

A convention settles the details that the definition of a metric leaves open, such as the value of
a list without a relevant item.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.arrays import Doubles, Reals
from ltr.cli.configs import files_of
from ltr.cli.folders import convention_keys
from ltr.cli.keys import as_list
from ltr.cli.options import group, option
from ltr.data.lists import Lists, check_split
from ltr.errors import ConfigError
from ltr.experiment.data_checks import check_metrics
from ltr.experiment.report import metric_table
from ltr.experiment.run_folder import write_queries
from ltr.inference.inputs import (
    ScoringOptions,
    check_output,
    is_table,
    open_scorer,
    read_file,
    use_threads,
)
from ltr.inference.scores_file import read_scored
from ltr.inference.trec import read_trec_run
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.parts.components import named_metrics
from ltr.parts.scorer import Scorer
from ltr.training.caveats import warn_of_measurement
from ltr.training.evaluation import means, metrics_of_scores

DEFAULT_METRICS = (
    "ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "mean_ndcg", "map", "mrr", "precision@10",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ScoringOptions):
    """Compute metrics of a trained model, or of the scores of any other tool, on whole lists.

      ltr evaluate checkpoint=outputs/RUN
      ltr evaluate outputs/RUN dataset=mq2008 dataset.fold=2 split=vali 'metrics=[ndcg@1,ndcg]'
      ltr evaluate checkpoint=outputs/RUN convention.empty=0 output=queries.csv
      ltr evaluate checkpoint=outputs/RUN convention=letor4,paper
      ltr evaluate checkpoint=outputs/RUN data=new_test.txt
      ltr evaluate scores=PREDICTIONS data=test.txt convention=letor4,lightgbm metrics=ndcg@10,map
      ltr evaluate scores=run.trec qrels=test.qrels convention=trec 'metrics=[ndcg,map]'

    Set either checkpoint, or scores and data, or scores and qrels. If neither dataset nor data is
    set, a run is measured on its own data. A convention settles the details that
    the definition of a metric leaves open. To print the metrics under several conventions side by
    side, type their names after convention=: paper, lightgbm, letor4, trec, sklearn. By default, a
    run is measured under its own convention, and a file of scores under all five.
    """

    checkpoint: str | None = option(
        None,
        help="a run folder, whose selected weights are used, or the best.pt or last.pt in it; "
        "needed unless you set scores",
    )
    scores: str | None = option(
        None,
        help="a file of scores: one score per line, or CSV with a column named score. If it also "
        "has the columns qid and row (counted from 1), which ltr predict writes, they are checked "
        "against the data. If qrels is set, the file is a TREC run",
    )
    data: str | None = option(
        None,
        help="the LETOR file that was scored; if checkpoint is set, the file on which the model is "
        "measured",
    )
    qrels: str | None = option(
        None,
        help="the file of judgments for a TREC run; its lines have the form `QID 0 ID LABEL`",
    )
    dataset: DictConfig | None = group(
        None, help="the data set on which the model is measured; null = the data set of the run"
    )
    suggested: Any = field(default_factory=dict)  # suggested settings of the data set, as levels
    regroup: bool = option(
        False, help="true = accept data in which the rows of a query are not adjacent"
    )
    split: str = option(
        "test",
        help="train | vali | test: the split of the data set on which the model is measured; set "
        "split=vali if the data set has no test split",
    )
    metrics: tuple[str, ...] | None = option(
        None,
        help="the metrics, such as [ndcg@1,ndcg@5,ndcg]. Names: dcg ndcg mean_ndcg ndcg_beta map "
        "mrr precision recall err; ltr train --help explains them. For your own metric, type "
        "hits@5 if configs/metric/hits.yaml describes it, or my_metrics.hits@5 if it is the "
        "function hits in the module my_metrics",
    )
    conventions: tuple[str, ...] = option(
        (),
        help="filled in from convention=NAME,NAME; do not set it. [] = the convention of the run; "
        "for a file of scores, all conventions",
    )
    convention: Any = option(
        {
            "empty": None,
            "gain": None,
            "discount": None,
            "ties": None,
            "short": None,
            "relevant": None,
            "map_over": None,
            "levels": None,
        },
        help="settings that replace those of the run or of convention=NAME, for example "
        "convention.empty=0; null = not replaced. levels is the number of grades, which the metric "
        "err uses. If levels is null, this number is taken from the run or from the chosen data "
        "set; if scores is set, it is the largest label plus 1",
    )
    output: str | None = option(
        None, help="a CSV file to which the metrics of each query are also written"
    )
    data_dir: str | None = option(
        None, help="the folder that holds the data sets; null = the folder used in training"
    )
    cache_dir: str = option(
        "data/cache",
        help="the folder in which parsed data files are kept; the one used in training is ignored",
    )


@dataclass(frozen=True)
class Measurement:
    """The lists, metrics and conventions of an evaluation."""

    title: str  # the model or the scores, and the data, for the first line of the report
    source: str  # the split or the file of the lists, for messages
    column: str  # the head of the table's column if there is a single convention
    lists: Lists
    metrics: Sequence[Metric]
    conventions: Mapping[str, Convention]  # by name


def evaluate(options: EvaluateOptions) -> str:
    """Evaluate the model or the scores that ``options`` name; return a table of metrics."""
    return evaluate_model(options) if options.scores is None else evaluate_scores(options)


def evaluate_model(options: EvaluateOptions) -> str:
    """Evaluate the model ``options.checkpoint``; return a table of metrics as text.

    The lists are those in the LETOR file ``options.data``, or those of ``options.split`` in the
    data set ``options.dataset``. If neither is set, the run's own data set is used.

    Raises:
        ConfigError, DataError, CheckpointError: an option, the checkpoint or a data file is
            invalid; the message says what to correct.
    """
    if options.checkpoint is None:
        raise ConfigError("set checkpoint=RUN, or set scores=FILE and data=FILE; see --help")
    check_split(options.split)
    if options.data is not None and is_table(Path(options.data)):
        raise ConfigError(
            f"data={options.data}: expected LETOR text, got a table: type dataset=table "
            f"dataset.split.test={options.data} dataset.query=COLUMN dataset.label=COLUMN instead "
            "of data=..."
        )
    _check_files(options)
    named = {name: convention_keys(name) for name in options.conventions}
    scorer = open_scorer(options.checkpoint, options)
    run_config = scorer.run_config(
        _parts_of_run(options),
        data_dir=options.data_dir,
        cache_dir=options.cache_dir,
        trust=options.trust,
    )
    settings: Any = OmegaConf.to_object(run_config.convention)
    if options.suggested.get("levels") is not None:  # from the chosen data set
        settings["levels"] = options.suggested["levels"]
    metrics = _metrics_of_model(options, run_config)
    conventions = chosen_conventions(named, options.convention, settings)
    name, lists = _lists_of_model(options, scorer, run_config)
    measurement = Measurement(
        title=f"{options.checkpoint} on {name}",
        source=options.data or options.split,
        column="data" if options.data is not None else options.split,
        lists=lists,
        metrics=metrics,
        conventions=conventions,
    )
    score = partial(scorer.scores, items=options.evaluation_items)
    return _report(measurement, score, options)


def _parts_of_run(options: EvaluateOptions) -> list[str]:
    """Return the parts of the run's config that the evaluation builds."""
    parts = []
    if options.dataset is None and options.data is None:
        parts.append("dataset")
    if options.metrics is None:
        parts.append("metrics")
    return parts


def _metrics_of_model(options: EvaluateOptions, run_config: DictConfig) -> tuple[Metric, ...]:
    """Return the metrics that ``options`` name; if they name none, return those of the run."""
    names = as_list(run_config.metrics if options.metrics is None else options.metrics)
    if not names:
        raise ConfigError("metrics=[]: name at least one metric, such as 'metrics=[ndcg@5]'")
    if options.metrics is None:
        return named_metrics(names, run_config.get("own_metrics") or {})
    return named_metrics(names)


def _lists_of_model(
    options: EvaluateOptions, scorer: Scorer, run_config: DictConfig
) -> tuple[str, Lists]:
    """Return the name of the data, and the lists on which the model is measured."""
    if options.data is not None:
        lists, _ = read_file(Path(options.data), options.regroup, scorer)
        return options.data, lists
    node = run_config.dataset
    if options.dataset is not None:
        node = _chosen_dataset(options.dataset, options, run_config.data_dir)
    dataset, lists = scorer.read(node, options.split)
    fold = "" if dataset.fold is None else f" fold {dataset.fold}"
    return f"{dataset.name}{fold}", lists


def _chosen_dataset(node: DictConfig, options: EvaluateOptions, data_dir: str) -> DictConfig:
    """Return the config node of the data set that the user chose; its interpolations work."""
    config = OmegaConf.create(
        {
            "dataset": OmegaConf.to_container(node),
            "data_dir": data_dir,
            "cache_dir": options.cache_dir,
            "suggested": options.suggested,
        }
    )
    return config.dataset


def evaluate_scores(options: EvaluateOptions) -> str:
    """Evaluate the scores in the file ``options.scores``; return a table of metrics as text.

    The file holds a score for each row of ``options.data``, or it is a TREC run, judged by the file
    ``options.qrels``. The table has a column for each of ``options.conventions``; by default, these
    are all conventions in ``configs/convention``.

    Raises:
        ConfigError, DataError: an option or a file is invalid; the message says what to correct.
    """
    if options.scores is None:
        raise ConfigError("set scores=FILE, and set data=FILE or qrels=FILE; see --help")
    both_or_none = (options.data is None) == (options.qrels is None)
    if both_or_none or options.checkpoint is not None:
        raise ConfigError(
            f"scores={options.scores}: set either data=FILE (the LETOR file that was scored) or "
            "qrels=FILE (the judgments for a TREC run), and leave out checkpoint"
        )
    _check_files(options)
    use_threads(options.threads)
    names = options.conventions or [*files_of("convention")]
    named = {name: convention_keys(name) for name in names}
    metrics = named_metrics(options.metrics or DEFAULT_METRICS)
    lists, scores = _read_scores(options.scores, options)
    levels = levels_for(float(lists.labels.max()))
    conventions = chosen_conventions(named, options.convention, {"levels": levels})
    data = options.data or f"{options.qrels} (file order: by id, descending)"
    measurement = Measurement(
        title=f"{options.scores} on {data}",
        source=str(options.data or options.qrels),
        column=next(iter(conventions)),
        lists=lists,
        metrics=metrics,
        conventions=conventions,
    )
    return _report(measurement, lambda _: scores, options)


def _read_scores(path: str, options: EvaluateOptions) -> tuple[Lists, Reals]:
    """Return the judged lists, and their scores in the file ``path``, ``[items]``."""
    if options.qrels is not None:
        return read_trec_run(Path(path), Path(options.qrels))
    return read_scored(Path(path), Path(str(options.data)), regroup=options.regroup)


def _check_files(options: EvaluateOptions) -> None:
    """Raise ``ConfigError`` if ``data``, ``qrels`` or ``output`` cannot be used as they are set."""
    if options.data is not None and options.dataset is not None:
        raise ConfigError(f"data={options.data}: set data= or dataset=, not both")
    if options.qrels is not None and options.scores is None:
        raise ConfigError(
            f"qrels={options.qrels}: set scores=FILE to a TREC run, and leave out checkpoint"
        )
    if options.output is not None:
        files = {"scores": options.scores, "data": options.data, "qrels": options.qrels}
        inputs = {key: path for key, path in files.items() if path is not None}
        check_output(Path(options.output), ".csv", **inputs)


def chosen_conventions(
    named: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> dict[str, Convention]:
    """Return the conventions by name.

    Args:
        named: the settings of each convention by its name; if empty, there is a single convention,
            named ``own``, without settings of its own.
        overrides: settings that replace those of every convention; None replaces nothing.
        defaults: values for the settings that neither ``named`` nor ``overrides`` sets.
    """
    set_here = {key: value for key, value in overrides.items() if value is not None}
    return {
        name: Convention(**{**defaults, **settings, **set_here})
        for name, settings in (named or {"own": {}}).items()
    }


def _report(
    measurement: Measurement, score: Callable[[Lists], Any], options: EvaluateOptions
) -> str:
    """Compute the metrics; return a table of the means, and the conventions in words.

    If ``options.output`` is set, the metrics of each query are written to that file.
    """
    lists = measurement.lists
    conventions = measurement.conventions
    for convention in conventions.values():
        check_metrics(measurement.source, lists, measurement.metrics, convention)
    scores = score(lists)
    values = {
        name: metrics_of_scores(
            lists, scores, measurement.metrics, convention, items=options.evaluation_items
        )
        for name, convention in conventions.items()
    }
    table = {name: means(values[name], conventions[name]) for name in conventions}
    _warn(measurement, scores, table)
    if options.output is not None:
        write_queries(Path(options.output), lists, _query_columns(values))
    if len(conventions) == 1:
        ((name, convention),) = conventions.items()
        table = {measurement.column: table[name]}
        lines = [convention.describe()]
    else:
        lines = [f"{name}: {convention.describe()}" for name, convention in conventions.items()]
    described = "\n".join(lines)
    return f"{measurement.title}, {len(lists):,} lists\n\n{metric_table(table)}\n\n{described}"


def _query_columns(values: Mapping[str, Mapping[str, Doubles]]) -> dict[str, Doubles]:
    """Return the columns of the output: one for each metric.

    If there are several conventions, there is a column for each convention and metric, for example
    ``letor4 ndcg@5``.
    """
    columns = dict[str, Doubles]()
    for name, metric_values in values.items():
        prefix = "" if len(values) == 1 else f"{name} "
        columns |= {f"{prefix}{metric}": per_list for metric, per_list in metric_values.items()}
    return columns


def _warn(measurement: Measurement, scores: Any, table: Mapping[str, Mapping[str, float]]) -> None:
    """Log warnings about one column of the table.

    This is the first column whose convention keeps ties in file order or, if there is none, the
    first column.
    """
    conventions = measurement.conventions
    in_file_order = [name for name in conventions if conventions[name].ties == "file"]
    name = next(iter([*in_file_order, *conventions]))
    source = measurement.source
    warn_of_measurement(
        source if len(conventions) == 1 else f"{source} ({name})",
        measurement.lists,
        scores,
        measurement.metrics,
        conventions[name],
        table[name],
    )
