"""A kept model at work: metrics on any split, scores for new lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.console.values import required
from ltr.data.batches import ItemTensors
from ltr.data.letor import MemorySink, parse_letor
from ltr.data.letor_rows import Rules
from ltr.data.lists import SPLITS, Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.build import as_list, make_dataset
from ltr.experiment.conventions import chosen_conventions
from ltr.experiment.kept import KeptModel, load_kept
from ltr.experiment.labels import check_metrics
from ltr.experiment.results import metric_table, write_queries
from ltr.experiment.trust import trusted
from ltr.metrics import Convention, parse_metric
from ltr.training.device import pick_device
from ltr.training.evaluation import PerQuery, means, metrics_of_scores, predict
from ltr.whole import write_frame, write_whole


def evaluate_kept(cfg: DictConfig) -> str:
    """Evaluate the model ``cfg.checkpoint`` on ``cfg.split``; return its table and conventions.

    The data set is ``cfg.dataset``, or the run's own where none was chosen.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    if OmegaConf.is_missing(cfg, "checkpoint"):
        raise ConfigError("give checkpoint=..., or scores=... and data=...; see --help")
    if cfg.split not in SPLITS:
        raise ConfigError(f"split={cfg.split}: choose one of {', '.join(SPLITS)}")
    if cfg.output is not None:
        _check_output(Path(cfg.output), ".csv")
    device = _prepare(cfg)
    kept = load_kept(cfg.checkpoint, device, cfg.trust)
    own = _own_config(cfg, kept)
    names = as_list(own.metrics if cfg.metrics is None else cfg.metrics)
    if not names:
        raise ConfigError("metrics=[] asks for nothing: name some, such as metrics=[ndcg@5]")
    metrics = [parse_metric(name) for name in names]
    settings: Any = OmegaConf.to_object(own.convention)
    if cfg.suggested.get("levels") is not None:  # the chosen data set's
        settings["levels"] = cfg.suggested.levels
    conventions = chosen_conventions(cfg, settings)

    node = OmegaConf.merge(cfg, _places(cfg, kept)).dataset if _chosen(cfg) else own.dataset
    if "width" in node and node.width is None:
        OmegaConf.update(node, "width", kept.transform.width)
    dataset = make_dataset(node)
    lists = dataset.split(cfg.split)
    for convention in conventions.values():
        check_metrics(cfg.split, lists, metrics, convention, dataset)
    data = ItemTensors(lists, kept.transform, device)
    scores = predict(kept.model, data, items=cfg.evaluation_items, precision=own.precision)
    values = {
        name: metrics_of_scores(data, scores, metrics, convention, items=cfg.evaluation_items)
        for name, convention in conventions.items()
    }
    fold = f" fold {dataset.fold}" if dataset.fold is not None else ""
    title = f"{cfg.checkpoint} on {dataset.name}{fold}"
    return report(title, lists, values, conventions, alone=cfg.split, output=cfg.output)


def _chosen(cfg: DictConfig) -> bool:
    return cfg.get("dataset") is not None


def _places(cfg: DictConfig, kept: KeptModel) -> dict[str, str]:
    """Where data is read, as the command line or else the run has it; a cache is the user's own."""
    return {"data_dir": cfg.data_dir or kept.config["data_dir"], "cache_dir": cfg.cache_dir}


def _own_config(cfg: DictConfig, kept: KeptModel) -> DictConfig:
    """The run's config, its data set and its metrics looked at where they will be used."""
    given = {"dataset": _chosen(cfg), "metrics": cfg.metrics is not None}
    used = [part for part, chosen in given.items() if not chosen]
    return trusted(kept.config | _places(cfg, kept), used, cfg.trust)


def predict_kept(cfg: DictConfig) -> str:
    """Score every row of ``cfg.input`` with the model ``cfg.checkpoint`` and write ``cfg.output``.

    The output has a row for every row of the input, in its order: ``qid``, ``row`` (1-based),
    ``score`` and ``rank`` (1 = best of its list; ties keep the file's order).

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    required(cfg, "checkpoint", "input", "output")
    output = Path(cfg.output)
    _check_output(output, ".csv", ".parquet")
    check_not_input(output, input=cfg.input)
    device = _prepare(cfg)
    kept = load_kept(cfg.checkpoint, device, cfg.trust)
    lists, rows = read_file(
        Path(cfg.input), cfg.regroup, width=kept.transform.width, labelled=False
    )
    data = ItemTensors(lists, kept.transform, device)
    scores = predict(
        kept.model, data, items=cfg.evaluation_items, precision=kept.config["precision"]
    )
    table = pd.DataFrame(
        {
            "qid": np.repeat(lists.qids, lists.lengths),
            "row": rows + 1,
            "score": scores.cpu().numpy(),
        }
    )
    place = table.groupby(np.repeat(np.arange(len(lists)), lists.lengths))["score"]
    table["rank"] = place.rank(method="first", ascending=False).astype(int)
    table = table.sort_values("row", kind="stable")
    if output.suffix == ".parquet":
        write_whole(output, lambda file: table.to_parquet(file, index=False))
    else:
        write_frame(output, table)
    return f"{lists.items:,} rows of {len(lists):,} lists scored: {output}"


def read_file(
    path: Path, regroup: bool, *, width: int | None = None, labelled: bool = True
) -> tuple[Lists, NDArray[np.int64]]:
    """The lists of a LETOR file, and the 0-based row of the file of each item.

    Args:
        path: the file.
        regroup: whether the rows of a query may stand apart.
        width: the number of features, None as the file has it.
        labelled: whether every row must have a label.

    Raises:
        DataError: a line is malformed.
    """
    sink = MemorySink()
    rules = Rules(width=width, labels="real", labelled=labelled)
    try:
        parse_letor(path, sink, rules=rules, regroup=regroup)
    except DataError as error:  # its remedies name keys of a data set; here they are the command's
        text = str(error).replace("dataset.regroup", "regroup")
        raise DataError(text.replace("(dataset.width)", "(as the model was trained)")) from None
    return sink.lists, np.arange(sink.lists.items) if sink.order is None else sink.order


def report(
    title: str,
    lists: Lists,
    values: Mapping[str, PerQuery],
    conventions: Mapping[str, Convention],
    *,
    alone: str,
    output: str | None,
) -> str:
    """The table of the means, and the conventions in words.

    Args:
        title: what was evaluated.
        lists: the lists that ``values`` belong to.
        values: for each convention every metric of every list.
        conventions: by name, the same names.
        alone: the head of the column where there is one convention only.
        output: a CSV file for the metrics of every query, or None; a column is ``letor4 ndcg@5``
            where there are several conventions.
    """
    single = len(conventions) == 1
    if output is not None:
        columns = {
            name if single else f"{convention} {name}": of_list
            for convention, of_metric in values.items()
            for name, of_list in of_metric.items()
        }
        write_queries(Path(output), lists, columns)
    table = metric_table(
        {
            alone if single else name: means(values[name], convention)
            for name, convention in conventions.items()
        }
    )
    described = "\n".join(
        convention.describe() if single else f"{name}: {convention.describe()}"
        for name, convention in conventions.items()
    )
    return f"{title}, {len(lists):,} lists\n\n{table}\n\n{described}"


def check_not_input(output: Path, **inputs: str | Path) -> None:
    """Raise ``ConfigError`` where ``output`` is one of the files that are read."""
    for key, path in inputs.items():
        if output.exists() and Path(path).exists() and output.samefile(path):
            raise ConfigError(f"output={output} is {key}: it would be lost; give another name")


def _check_output(output: Path, *endings: str) -> None:
    if output.suffix not in endings:
        raise ConfigError(f"output={output}: choose a name that ends in {' or '.join(endings)}")
    if not output.parent.is_dir():
        raise ConfigError(
            f"output={output}: the folder {output.parent} is not there; create it first"
        )
    if output.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401  (pandas needs it)
        except ImportError as error:
            raise ConfigError(
                f"output={output}: Parquet needs pyarrow; pip install pyarrow, or write .csv"
            ) from error


def _prepare(cfg: DictConfig) -> torch.device:
    for key in ("threads", "evaluation_items"):
        value = cfg[key]
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise ConfigError(f"{key}={value}: give a whole number >= 1")
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    return pick_device(cfg.device)
