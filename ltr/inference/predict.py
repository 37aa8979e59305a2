"""Score new lists with a trained model."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig

from ltr.atomic import atomic_write, write_frame
from ltr.console.keys import required
from ltr.data.lists import Columns
from ltr.errors import ConfigError
from ltr.scorers.inputs import Input, check_output, read_input, set_threads
from ltr.scorers.scorer import Scorer, load_model
from ltr.training.device import pick_device
from ltr.training.evaluation import ranks_of

log = logging.getLogger(__name__)

OUTPUTS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
ORDERS = ("input", "ranked")


def predict_file(cfg: DictConfig) -> str:
    """Score every row of ``cfg.input`` with the model ``cfg.checkpoint`` and write ``cfg.output``.

    The output has a row for every row of the input: ``qid``, the ids (``id``, or the columns of a
    table), ``row`` (1-based), ``score`` and ``rank`` (1 = best of its list; ties keep the file's
    order). ``cfg.order`` is ``input``, the rows as they stand there, or ``ranked``: list by list,
    each where its first row stands, best first.
    """
    required(cfg, "checkpoint", "input", "output")
    output = Path(cfg.output)
    check_output(output, *OUTPUTS, input=cfg.input)
    if cfg.order not in ORDERS:
        raise ConfigError(f"order={cfg.order}: choose {' or '.join(ORDERS)}")
    set_threads(cfg)
    scorer = load_model(cfg.checkpoint, pick_device(cfg.device), cfg.trust)
    given = read_input(cfg, scorer)
    for doubt in doubts(given, scorer):
        log.warning("input=%s: %s", cfg.input, doubt)
    scores = scorer.scores(given.lists, items=cfg.evaluation_items).cpu().numpy()
    table = ranking(given, scores, cfg.order)
    if output.suffix == ".parquet":
        atomic_write(output, lambda file: table.to_parquet(file, index=False))
    else:
        write_frame(output, table)
    return f"{len(scores):,} rows of {len(given.lists):,} lists scored: {output}"


def doubts(given: Input, scorer: Scorer) -> list[str]:
    """What looks like a mistake in an input that can be scored, a line each.

    Category columns none of whose values train had; rows that repeat another one of their query, in
    features and ids, or where there are no ids half of all rows.
    """
    lists, columns, found = given.lists, scorer.columns or Columns(()), []
    unseen = [
        name for name, codes in zip(columns.names, lists.features.T, strict=False)
        if name in columns.categories and (codes == 0).any() and not (codes > 0).any()
    ]  # fmt: skip
    if unseen:
        found.append(
            f"train had no value of {', '.join(unseen)}, so that all count as one, other: compare "
            "their spelling with train's"
        )
    ids = pd.DataFrame({} if given.ids is None else given.ids).astype(str)
    keys = ids.set_axis([f"id {i}" for i in range(ids.shape[1])], axis=1)
    keys["list"] = np.repeat(np.arange(len(lists)), lists.lengths)
    keys["features"] = [hash(row.tobytes()) for row in np.ascontiguousarray(lists.features)]
    repeated = int(keys.duplicated().sum())
    if repeated >= (1 if ids.shape[1] else max(1, lists.items / 2)):
        found.append(
            f"{repeated:,} of {lists.items:,} rows repeat another of their query, and are ranked "
            "as items of their own: give each once"
        )
    return found


def ranking(given: Input, scores: NDArray[np.floating], order: str) -> pd.DataFrame:
    """The rows of ``given`` with their scores, ``[items]``, and ranks, in one of ``ORDERS``."""
    lists = given.lists
    of_item = np.repeat(np.arange(len(lists)), lists.lengths)
    ids: Mapping[Any, Any] = {} if given.ids is None else {"id": given.ids}
    if isinstance(given.ids, pd.DataFrame):
        ids = dict(given.ids.items())
    known = {"row": given.rows + 1, "score": scores, "rank": ranks_of(scores, lists.offsets)}
    table = pd.DataFrame({"qid": lists.qids[of_item], **ids, **known})
    keys = (given.rows,) if order == "input" else (table["rank"], of_item)
    return table.iloc[np.lexsort(keys)]
