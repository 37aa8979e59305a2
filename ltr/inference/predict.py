"""Score new lists with a trained model."""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ltr.arrays import Reals
from ltr.atomic import atomic_write, write_frame
from ltr.cli.options import option
from ltr.data.lists import Columns, Lists
from ltr.data.tables import query_text
from ltr.errors import need
from ltr.inference.inputs import (
    InputOptions,
    ScoringOptions,
    check_output,
    open_scorer,
    read_input,
)
from ltr.inference.trec import write_qrels, write_trec_run
from ltr.knobs import check_choice
from ltr.parts.scorer import Scorer
from ltr.training.evaluation import ranks_of

log = logging.getLogger(__name__)

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".trec")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(InputOptions, ScoringOptions):
    """Score and rank the items of a file with a trained model.

      ltr predict checkpoint=outputs/RUN input=new_lists.txt output=scores.csv
      ltr predict checkpoint=outputs/RUN input=new.parquet output=scores.parquet order=ranked
      ltr predict checkpoint=outputs/RUN input=test.txt output=run.trec qrels=test.qrels

    To use the last run, type checkpoint=outputs/latest.
    """

    checkpoint: str = option(
        help="a run folder, whose selected weights are used, or the best.pt or last.pt in it"
    )
    input: str = option(
        help="a table (.parquet .csv .tsv .csv.gz .tsv.gz .feather .arrow, or a folder of such "
        "files), or LETOR text. LETOR text has a line for each item, `LABEL qid:QUERY "
        "1:VALUE 2:VALUE ... # docid = X`. The label may be missing. The comment, `# docid = X` "
        "or `# X`, contains the id of the item, and may be missing too"
    )
    output: str = option(
        help="the file to write; an existing file is overwritten. A table (.csv .tsv .csv.gz "
        ".tsv.gz .parquet) starts with the query column and the id columns of the input "
        "(qid and id for LETOR text), followed by row, score and rank. A .trec file is a TREC run, "
        "whose lines have the form `QID Q0 ID RANK SCORE TAG`"
    )
    qrels: str | None = option(
        None,
        help="a file, FILE.qrels or FILE.txt, to which the labels of the input are written as "
        "TREC qrels, whose lines have the form `QID 0 ID LABEL`",
    )
    order: str = option(
        "input",
        help="input: the rows are in the order of the input | ranked: query by query, with the "
        "best item first",
    )
    label: str | None = option(
        None, help="for tables, if qrels is set: the column of the labels; null = as in training"
    )


def predict_file(options: PredictOptions) -> str:
    """Score every row of ``options.input`` with the model, and write ``options.output``.

    The output has a row for every row of the input. Its columns are the query (``qid``, or the
    query column of a table), the ids (``id``, or the id columns of a table), ``row`` (the row
    number in the input, counted from 1), ``score`` and ``rank`` (1 = the best of its list; items
    with equal scores rank in the order of the input). Queries and ids are written as they are in
    the input.

    If ``options.order`` is ``input``, the rows are in the order of the input. If it is ``ranked``,
    the best item of each list is first, and the lists are in the order of their first rows. If the
    name of the output ends in ``.trec``, a TREC run is written.

    Returns:
        A message that says how many rows and lists were scored.

    Raises:
        ConfigError, DataError, CheckpointError, OutputError: an option, the checkpoint or a data
            file is invalid, or a file cannot be written; the message says what to correct.
    """
    output = Path(options.output)
    _check_outputs(options)
    scorer = open_scorer(options.checkpoint, options)
    labelled = options.qrels is not None
    lists, ids, queries = read_input(Path(options.input), options, scorer, labelled=labelled)
    _warn_of_unseen_values(options.input, unseen(lists, scorer))
    if options.qrels is not None:
        write_qrels(Path(options.qrels), lists, ids)
    scores = scorer.scores(lists, items=options.evaluation_items).cpu().numpy()
    if output.suffix == ".trec":
        write_trec_run(output, lists, ids, scores)
    else:
        _write_table(output, ranking(lists, ids, scores, options.order, queries))
    return f"{len(scores):,} rows of {len(lists):,} lists scored: {output}"


def _check_outputs(options: PredictOptions) -> None:
    """Raise ``ConfigError`` if an output cannot be written, or the order is unknown."""
    output = Path(options.output)
    check_output(output, *ENDINGS, input=options.input)
    if options.qrels is not None:
        check_output(Path(options.qrels), ".qrels", ".txt", key="qrels", input=options.input)
    if output.suffix == ".parquet":
        need("pyarrow", "parquet")
    check_choice("order", options.order, ("input", "ranked"))


def _warn_of_unseen_values(source: str, counts: dict[str, tuple[int, int]]) -> None:
    """Log a warning for each column in ``counts``, which ``unseen`` returned."""
    for column, (unseen_count, seen_count) in counts.items():
        remedy = "" if seen_count else "; compare their spelling with the training data"
        log.warning(
            "input=%s: %s of %s values of %s are not among those that the model knows from "
            "training, and are all treated as one unknown value%s",
            source,
            f"{unseen_count:,}",
            f"{unseen_count + seen_count:,}",
            column,
            remedy,
        )


def _write_table(output: Path, table: pd.DataFrame) -> None:
    """Write ``table`` in the format that the ending of ``output`` names."""
    if output.suffix == ".parquet":
        atomic_write(output, lambda file: table.to_parquet(file, index=False))
        return
    for name in [name for name in table if table[name].dtype.type is bytes]:
        table[name] = table[name].map(query_text)
    write_frame(output, table, guard=False)


def unseen(lists: Lists, scorer: Scorer) -> dict[str, tuple[int, int]]:
    """Return the category columns with values that the model does not know.

    The result maps the name of a column to the numbers of unknown and of known values. The model
    knows the most frequent values of the training lists (``dataset.category_values``).
    """
    columns = scorer.columns or Columns(())
    counts = dict[str, tuple[int, int]]()
    for name, codes, values in zip(columns.names, columns.codes, lists.features.T, strict=False):
        unseen_count = int((values == 0).sum())
        if codes and unseen_count:
            counts[name] = unseen_count, int((values > 0).sum())
    return counts


def ranking(
    lists: Lists, ids: pd.DataFrame, scores: Reals, order: str, queries: pd.Series | None = None
) -> pd.DataFrame:
    """Return a table of the items: query, ids, row, score and rank.

    Args:
        lists: the lists of the items.
        ids: the id columns, ``[items, columns]``.
        scores: ``[items]``, higher is better.
        order: the order of the rows, ``"input"`` or ``"ranked"``; see ``predict_file``.
        queries: the column of the queries, ``[items]``; if None, a column ``qid`` with the query
            ids as strings.
    """
    list_numbers = np.repeat(np.arange(len(lists)), lists.lengths)
    rows = lists.source_rows
    if queries is None:
        queries = pd.Series(lists.qids[list_numbers], name="qid")
    ranks = ranks_of(scores, lists.offsets)
    columns = {str(queries.name): queries, **ids, "row": rows + 1, "score": scores, "rank": ranks}
    table = pd.DataFrame(columns)
    sort_keys = (rows,) if order == "input" else (table["rank"], list_numbers)
    return table.iloc[np.lexsort(sort_keys)]
