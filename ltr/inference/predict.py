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
from ltr.data.tables import query_text
from ltr.errors import need
from ltr.knobs import check_choice
from ltr.scorers.inputs import check_output, open_scorer, read_input
from ltr.scorers.scorer import Scorer
from ltr.training.evaluation import ranks_of

log = logging.getLogger(__name__)


def predict_file(cfg: DictConfig) -> str:
    """Score every row of ``cfg.input`` with the model ``cfg.checkpoint`` and write ``cfg.output``.

    The output has a row for every row of the input, with the query (``qid``, or the query column of
    a table), the ids (``id``, or the id columns of a table), ``row`` (the row of the input, from
    1), ``score`` and ``rank`` (1 = best of its list; ties are in the order of the input). Queries
    and ids are written as they are in the input. With ``cfg.order=input`` the rows have the order
    of the input. With ``ranked``, each list is sorted, best first, and the lists have the order of
    their first rows. An output that ends in ``.trec`` is a run of TREC. The labels of the
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
    lists, ids, queries = read_input(cfg, scorer)
    for column, (unknown, known) in unseen(lists, scorer).items():
        log.warning(
            "input=%s: %s of %s values of %s are not among those of train, and all count as one "
            "value, other%s", cfg.input, f"{unknown:,}", f"{unknown + known:,}", column,
            "" if known else ": compare their spelling with train's",
        )  # fmt: skip
    if cfg.qrels is not None:
        write_qrels(Path(cfg.qrels), lists, ids)
    scores = scorer.scores(lists, items=cfg.evaluation_items).cpu().numpy()
    table = ranking(lists, ids, scores, cfg.order, queries)
    if output.suffix == ".trec":
        write_run(output, lists, ids, scores)
    elif output.suffix == ".parquet":
        atomic_write(output, lambda file: table.to_parquet(file, index=False))
    else:
        for name in [name for name in table if table[name].dtype.type is bytes]:
            table[name] = table[name].map(query_text)
        write_frame(output, table, guard=False)
    return f"{len(scores):,} rows of {len(lists):,} lists scored: {output}"


def unseen(lists: Lists, scorer: Scorer) -> dict[str, tuple[int, int]]:
    """Map each category column with values that train lacks to the number of these, and of others.

    Of train, only the most frequent values count (``dataset.category_values``).
    """
    columns = scorer.columns or Columns(())
    counts = dict[str, tuple[int, int]]()
    for name, codes, values in zip(columns.names, columns.codes, lists.features.T, strict=False):
        if codes and (unknown := int((values == 0).sum())):
            counts[name] = unknown, int((values > 0).sum())
    return counts


def ranking(
    lists: Lists, ids: pd.DataFrame, scores: Reals, order: str, queries: pd.Series | None = None
) -> pd.DataFrame:
    """Return the items' query, ids, row, score and rank, in an ``order`` of ``predict_file``.

    ``queries`` is the column of the queries, ``[items]``; None: their ids as text, ``qid``.
    """
    of_item = np.repeat(np.arange(len(lists)), lists.lengths)
    rows = lists.source_rows
    if queries is None:
        queries = pd.Series(lists.qids[of_item], name="qid")
    known = {"row": rows + 1, "score": scores, "rank": ranks_of(scores, lists.offsets)}
    table = pd.DataFrame({str(queries.name): queries, **ids, **known})
    keys = (rows,) if order == "input" else (table["rank"], of_item)
    return table.iloc[np.lexsort(keys)]
