"""Score new lists with a trained model."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
from omegaconf import DictConfig

from ltr.analysis.trec import write_qrels, write_run
from ltr.arrays import Reals
from ltr.atomic import atomic_write, write_frame
from ltr.console.keys import required
from ltr.data.lists import Columns, Lists
from ltr.errors import need
from ltr.knobs import check_choice
from ltr.scorers.inputs import check_output, open_scorer, read_input
from ltr.scorers.scorer import Scorer
from ltr.training.evaluation import ranks_of

log = logging.getLogger(__name__)


def predict_file(cfg: DictConfig) -> str:
    """Score every row of ``cfg.input`` with the model ``cfg.checkpoint`` and write ``cfg.output``.

    The output has a row for every row of the input, with the columns ``qid``, the ids (``id``, or
    the id columns of a table), ``row`` (the row of the input, from 1), ``score`` and ``rank`` (1 =
    best of its list; ties are in the order of the input). With ``cfg.order=input`` the rows have
    the order of the input. With ``ranked``, each list is sorted, best first, and the lists have the
    order of their first rows. An output that ends in ``.trec`` is a run of TREC. The labels of the
    input are written to ``cfg.qrels``, if it is set. The text returned says how many rows and lists
    were scored.
    """
    required(cfg, "checkpoint", "input", "output")
    output = Path(cfg.output)
    endings = ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".trec"
    check_output(output, *endings, input=cfg.input)
    if cfg.qrels is not None:
        check_output(Path(cfg.qrels), ".qrels", ".txt", key="qrels", input=cfg.input)
    if output.suffix == ".parquet":
        need("pyarrow", "parquet")
    check_choice("order", cfg.order, ("input", "ranked"))
    scorer = open_scorer(cfg)
    lists, ids = read_input(cfg, scorer)
    for column in unseen(lists, scorer):
        log.warning(
            "input=%s: train had no value of %s, so that all count as one, other: compare their "
            "spelling with train's", cfg.input, column,
        )  # fmt: skip
    if cfg.qrels is not None:
        write_qrels(Path(cfg.qrels), lists, ids)
    scores = scorer.scores(lists, items=cfg.evaluation_items).cpu().numpy()
    table = ranking(lists, ids, scores, cfg.order)
    if output.suffix == ".trec":
        write_run(output, lists, ids, scores)
    elif output.suffix == ".parquet":
        atomic_write(output, lambda file: table.to_parquet(file, index=False))
    else:
        write_frame(output, table)
    return f"{len(scores):,} rows of {len(lists):,} lists scored: {output}"


def unseen(lists: Lists, scorer: Scorer) -> list[str]:
    """Return the category columns of ``lists`` whose values were all unknown in training."""
    columns = scorer.columns or Columns(())
    known = zip(columns.names, columns.codes, lists.features.T, strict=False)
    return [n for n, count, x in known if count and (x == 0).any() and not (x > 0).any()]


def ranking(lists: Lists, ids: pd.DataFrame, scores: Reals, order: str) -> pd.DataFrame:
    """Return the items' query, ids, row, score and rank, in an ``order`` of ``predict_file``."""
    of_item, rows = np.repeat(np.arange(len(lists)), lists.lengths), lists.source_rows
    known = {"row": rows + 1, "score": scores, "rank": ranks_of(scores, lists.offsets)}
    table = pd.DataFrame({"qid": lists.qids[of_item], **ids, **known})
    keys = (rows,) if order == "input" else (table["rank"], of_item)
    return table.iloc[np.lexsort(keys)]
