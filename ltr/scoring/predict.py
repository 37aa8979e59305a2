"""Score new lists with a trained model."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.atomic import atomic_write, write_frame
from ltr.console.values import flag, required, whole
from ltr.data.assemble import assemble
from ltr.data.letor import Rules, item_ids, read_blocks, together
from ltr.data.lists import Columns, Lists
from ltr.data.roles import ending
from ltr.errors import ConfigError, DataError
from ltr.scorers.scorer import Scorer, load_model
from ltr.training.device import pick_device
from ltr.training.evaluation import ranks_of

log = logging.getLogger(__name__)

OUTPUTS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
ORDERS = ("input", "ranked")
_OF_TABLES = ("query", "id", "features", "header", "names")
_OF_RUN = ("query", "id", "header", "names")  # what a run on tables says for its input too


@dataclass(frozen=True)
class Input:
    """The lists of a file.

    Attributes:
        lists: of the file.
        rows: the 0-based row of the file of each item, ``[items]``.
        ids: the id of each item, ``[items]``, empty where a row has none; of a table its columns of
            ids; None: there are none.
    """

    lists: Lists
    rows: NDArray[np.int64]
    ids: list[str] | pd.DataFrame | None = None


def predict_kept(cfg: DictConfig) -> str:
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
    lists, found = given.lists, []
    columns = scorer.columns or Columns(())
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
    ids: Mapping[str, Any] = {} if given.ids is None else {"id": given.ids}
    if isinstance(given.ids, pd.DataFrame):
        ids = {str(name): column for name, column in given.ids.items()}
    table = pd.DataFrame(
        {"qid": lists.qids[of_item], **ids, "row": given.rows + 1, "score": scores}
    )
    table["rank"] = ranks_of(scores, lists.offsets)
    keys = (given.rows,) if order == "input" else (table["rank"], of_item)
    return table.iloc[np.lexsort(keys)]


def is_table(path: Path) -> bool:
    """Whether ``path`` is a table by its name, or a folder of shards."""
    return path.is_dir() or ending(path) is not None


def read_input(cfg: DictConfig, scorer: Scorer) -> Input:
    """The lists of ``cfg.input``, a table by its name or else LETOR text, for ``scorer``."""
    path = Path(cfg.input)
    if is_table(path):
        return read_table(cfg, scorer)
    for key in (key for key in _OF_TABLES if cfg[key] is not None):
        raise ConfigError(f"{key}={cfg[key]}: {path} is LETOR text, not a table; leave {key} out")
    return read_text(cfg, "input", scorer, labelled=False)


def read_table(cfg: DictConfig, scorer: Scorer) -> Input:
    """The lists of the table ``cfg.input``, with the features that ``scorer`` was trained on.

    Features are found by name. A model whose features have no names takes ``cfg.features``, in the
    order in which it was trained. The roles that ``cfg`` does not name are those of the run.

    Raises:
        ConfigError, DataError: one line that says what to mend; the keys that it names are those of
            ``dataset`` where they are not the command's.
    """
    from ltr.data.roles import Roles
    from ltr.data.rows import lists_of
    from ltr.data.table_sources import Form, Source

    node: Any = scorer.config["dataset"]
    of_run = node if str(node.get("_target_", "")).endswith("TableFiles") else {}
    own: Any = OmegaConf.to_object(cfg)
    given = {key: of_run.get(key) if own[key] is None else own[key] for key in _OF_RUN}
    if given["query"] is None:
        raise ConfigError(f"give query=COLUMN, the column of the query ids in {cfg.input}")
    columns, named = scorer.columns, own["features"]
    if columns is None:
        if len(named or []) != scorer.transform.width:
            raise ConfigError(
                f"features={named}: the features of this model have no names; give its "
                f"{scorer.transform.width} columns of {cfg.input}, in the order of its training"
            )
        columns = Columns(tuple(map(str, named)))
    elif named is not None:
        raise ConfigError("features: this model finds its features by name; leave features=null")
    roles = Roles.of({**given, "features": columns.names})
    reserved = {"row", "score", "rank", "qid"} - {roles.query}
    if twice := [name for name in roles.id if name in reserved]:
        raise ConfigError(f"id: a column {twice[0]!r} would stand twice in the output; drop it")
    names = None if given["names"] is None else tuple(map(str, given["names"]))
    form = Form(given["header"] is not False, names)
    source = Source(Path(cfg.input), form)
    read = lists_of(source, roles, columns=columns, labelled=False)
    ids = read.ids.take(read.order).to_pandas(types_mapper=pd.ArrowDtype)
    return Input(read.lists, read.order, ids)


def read_text(cfg: DictConfig, key: str, scorer: Scorer, *, labelled: bool) -> Input:
    """The lists of the LETOR file ``cfg[key]`` for ``scorer``; with ids, if unlabelled."""
    if scorer.columns is not None and scorer.columns.categories:
        raise ConfigError(
            f"{key}={cfg[key]}: the model was trained on a table with categories, which LETOR text "
            "cannot hold; give a table"
        )
    path, width = Path(cfg[key]), scorer.transform.width
    return read_file(path, flag(cfg, "regroup"), width=width, labelled=labelled, ids=not labelled)


def read_file(
    path: Path,
    regroup: bool,
    *,
    width: int | None = None,
    labelled: bool = True,
    ids: bool = False,
) -> Input:
    """The lists of a LETOR file.

    Args:
        path: the file.
        regroup: whether the rows of a query may stand apart.
        width: the number of features, None as the file has it.
        labelled: whether every row must have a label.
        ids: whether to keep the ids in the comments.
    """
    found = list[str]()
    rules = Rules(width=width, labels="real", labelled=labelled)
    try:
        see = (lambda text: found.extend(item_ids(text))) if ids else len
        lists = assemble(read_blocks(path, rules, see), apart=together(regroup))
    except DataError as error:  # its remedies name keys of a data set; here they are the command's
        text = str(error).replace("dataset.regroup", "regroup")
        raise DataError(text.replace("(dataset.width)", "(as the model was trained)")) from None
    rows = np.arange(lists.items) if lists.rows is None else lists.rows
    return Input(lists, rows, [found[row] for row in rows] if any(found) else None)


def check_output(output: Path, *endings: str, **inputs: str) -> None:
    """See that ``output`` can be written before anything is computed.

    Args:
        output: the file.
        endings: what its name may end in.
        inputs: the files that are read, by key.

    Raises:
        ConfigError: it cannot be written, or is one of ``inputs``.
    """
    for key, path in inputs.items():
        if output.exists() and Path(path).exists() and output.samefile(path):
            raise ConfigError(f"output={output} is {key}: it would be lost; give another name")
    if not output.name.endswith(endings):
        raise ConfigError(f"output={output}: choose a name that ends in {' or '.join(endings)}")
    if not output.parent.is_dir():
        raise ConfigError(
            f"output={output}: the folder {output.parent} is not there; create it first"
        )


def set_threads(cfg: DictConfig) -> None:
    """Check ``cfg.evaluation_items``; check and set ``cfg.threads`` where it is not null."""
    whole(cfg, "evaluation_items", least=1)
    if cfg.threads is not None:
        torch.set_num_threads(whole(cfg, "threads", least=1))
