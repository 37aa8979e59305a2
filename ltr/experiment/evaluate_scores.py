"""Metrics of scores that any tool made, under several conventions side by side."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.data.letor import MemorySink, parse_letor
from ltr.data.letor_rows import Rules
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.apply import check_not_input
from ltr.experiment.configs import CONFIGS
from ltr.experiment.conventions import chosen_conventions
from ltr.experiment.labels import check_metrics
from ltr.experiment.scores_file import read_scores
from ltr.experiment.side_by_side import report
from ltr.metrics import parse_metric
from ltr.metrics.checks import levels_for
from ltr.training.evaluation import metrics_of_scores

DEFAULT_METRICS = (
    "ndcg@1",
    "ndcg@3",
    "ndcg@5",
    "ndcg@10",
    "mean_ndcg",
    "map",
    "mrr",
    "precision@10",
)


def evaluate_scores(cfg: DictConfig) -> str:
    """Evaluate the scores ``cfg.scores`` of the rows of ``cfg.data``; return the table.

    A column for each convention of ``cfg.metrics_as``, all there are where it is not given; each is
    described under the table.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    if cfg.data is None or not OmegaConf.is_missing(cfg, "checkpoint") or cfg.get("dataset"):
        raise ConfigError(
            f"scores={cfg.scores}: give data=FILE, the LETOR file whose rows they score, and "
            "neither checkpoint nor dataset"
        )
    if cfg.output is not None:
        check_not_input(Path(cfg.output), scores=cfg.scores, data=cfg.data)
    metrics = [parse_metric(str(name)) for name in cfg.metrics or DEFAULT_METRICS]
    chosen_conventions(cfg, {})  # what is wrong with them shows before the files are read
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    lists, order = _read_data(Path(cfg.data), cfg.regroup)
    qids = np.empty(lists.items, dtype=object)
    qids[order] = np.repeat(lists.qids, lists.lengths)
    scores = read_scores(Path(cfg.scores), qids.tolist(), cfg.data)[order]
    if not cfg.get("metrics_as"):
        files = sorted((CONFIGS / "metrics_as").glob("*.yaml"))
        known = {path.stem: OmegaConf.load(path) for path in files}
        OmegaConf.update(cfg, "metrics_as", known, force_add=True)
    conventions = chosen_conventions(cfg, {"levels": levels_for(float(lists.labels.max()))})
    for convention in conventions.values():
        check_metrics(str(cfg.data), lists, metrics, convention, Path(cfg.data))
    values = {
        name: metrics_of_scores(lists, scores, metrics, convention, items=cfg.evaluation_items)
        for name, convention in conventions.items()
    }
    title = f"{cfg.scores} on {cfg.data}"
    (first, *_) = conventions
    return report(title, lists, values, conventions, alone=first, output=cfg.output)


def _read_data(path: Path, regroup: bool) -> tuple[Lists, NDArray[np.int64]]:
    """The lists of a file, and the 0-based row of the file of each item."""
    sink = MemorySink()
    try:
        parse_letor(path, sink, rules=Rules(labels="real"), regroup=regroup)
    except DataError as error:  # its remedies name keys of a data set; here it is the command's
        raise DataError(str(error).replace("dataset.regroup", "regroup")) from None
    return sink.lists, np.arange(sink.lists.items) if sink.order is None else sink.order
