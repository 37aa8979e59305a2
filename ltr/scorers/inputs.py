"""Read the lists that a scorer is to score, from LETOR text or a table."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig, OmegaConf

from ltr.console.keys import flag, whole
from ltr.data.assemble import assemble
from ltr.data.letor import Rules, item_ids, read_letor
from ltr.data.lists import Columns, Lists
from ltr.data.table_sources import Source, table_form
from ltr.data.tables import Roles, table_blocks
from ltr.errors import ConfigError, DataError
from ltr.scorers.scorer import Scorer, load_model
from ltr.training.device import pick_device

log = logging.getLogger(__name__)

_OF_RUN = ("query", "id", "header", "label")  # after training on a table, null: the run's value
_OF_TABLES = (*_OF_RUN, "features")


def is_table(path: Path) -> bool:
    """Return whether ``path`` is a folder, or has the name of a table file."""
    return path.is_dir() or table_form(path) is not None


@contextmanager
def _keys_of_the_command() -> Iterator[None]:
    """Context in which each error names the keys of the command, not of a data set."""
    try:
        yield
    except (ConfigError, DataError) as error:
        text = re.sub(r"dataset\.(?=query|id\b|header|regroup|label\b)", "", str(error))
        raise type(error)(text.replace("(dataset.width)", "(as the model was trained)")) from None


Input = tuple[Lists, pd.DataFrame, pd.Series | None]  # lists, columns of item ids, query column


def read_input(cfg: DictConfig, scorer: Scorer) -> Input:
    """Read ``cfg.input`` for ``scorer``, as a table if ``is_table``, else as LETOR text. Return the
    lists, with labels if ``cfg.qrels`` is set, a table with the id columns of the items, and the
    query column, ``[items]``. LETOR text gives one id column, ``id``, which is empty where a row
    has no id; if no row has an id, there is no column. Its query column is None.
    """
    path = Path(cfg.input)
    if is_table(path):
        return read_table(cfg, scorer)
    for key in (key for key in _OF_TABLES if cfg.get(key) is not None):
        raise ConfigError(f"{key}={cfg[key]}: {path} is LETOR text, not a table; leave {key} out")
    labelled = cfg.get("qrels") is not None
    lists, ids = read_file(path, flag(cfg, "regroup"), scorer, labelled=labelled, ids=True)
    return lists, ids, None


def read_table(cfg: DictConfig, scorer: Scorer) -> Input:
    """Read the table ``cfg.input`` for ``scorer``; return its lists, id columns and query column.
    These columns have the table's types; in a text file whole numbers are whole numbers if no digit
    would change.

    Features are found by name. For a model whose features have no names, ``cfg.features`` names the
    columns, in the order of training. If ``query``, ``id`` or ``header`` is null, the value of the
    training run is used. ``ConfigError``, ``DataError``: one line says what to change.
    """
    node: Any = scorer.config["dataset"]
    of_run = node if str(node.get("_target_", "")).endswith("TableFiles") else {}
    own: Any = OmegaConf.to_object(cfg)
    given = {key: of_run.get(key) if own.get(key) is None else own[key] for key in _OF_RUN}
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
    own_roles = {key: given[key] for key in ("query", "id", "label")}
    roles = Roles.of({**own_roles, "features": columns.names})
    for key, names in (("id", roles.id), ("query", [roles.query])):
        if twice := [name for name in names if name in ("row", "score", "rank")]:
            raise ConfigError(
                f"{key}: a column {twice[0]!r} would stand twice in the output; rename it"
            )
    source = Source(Path(cfg.input), given["header"] is not False)
    cells = list[pd.DataFrame]()
    with _keys_of_the_command():
        kept = list(dict.fromkeys([roles.query, *roles.id]))
        see = lambda block: cells.append(block[kept])  # noqa: E731
        rules = Rules(labels="real", labelled=own.get("qrels") is not None)
        blocks = table_blocks(source, roles, columns, rules=rules, see=see)
        lists = assemble(blocks, columns=columns)
    _show_remarks(cfg.input, lists)
    frame = pd.concat(cells).iloc[lists.source_rows].reset_index(drop=True)
    if source.is_text:
        frame = frame.apply(_as_whole_numbers)
    return lists, frame[[name for name in roles.id if name != roles.query]], frame[roles.query]


def _as_whole_numbers(column: pd.Series) -> pd.Series:
    """Return a column of texts as int64 if each is a whole number as it would be written again."""
    if not column.str.fullmatch("0|-?[1-9][0-9]{0,18}").all():
        return column
    try:
        return pd.Series(np.array([*map(int, column)], np.int64), name=column.name)
    except OverflowError:
        return column


def read_file(
    path: Path, regroup: bool, scorer: Scorer | None = None, *, labelled: bool = True,
    ids: bool = False,
) -> tuple[Lists, pd.DataFrame]:  # fmt: skip
    """Read the LETOR file ``path``; return its lists and a table with the ids of the items.

    Args:
        path: the file.
        regroup: accept a query whose rows are not next to each other, and put them together.
        scorer: the lists get as many features as the scorer was trained on; None: as many as the
            file has.
        labelled: read the labels.
        ids: read the ids in the comments; if False, the table has no column.
    """
    if scorer is not None and scorer.columns is not None and scorer.columns.categories:
        raise ConfigError(
            f"{path}: the model was trained on a table with categories, which LETOR text cannot "
            "hold; give a table"
        )
    width = None if scorer is None else scorer.transform.width
    found = list[str]()
    with _keys_of_the_command():
        see = (lambda text: found.extend(item_ids(text))) if ids else len
        rules = Rules(width=width, labels="real", labelled=labelled)
        lists = read_letor(path, rules, regroup=regroup, see=see)
    _show_remarks(path, lists)
    named = {"id": [found[row] for row in lists.source_rows]} if any(found) else {}
    return lists, pd.DataFrame(named, index=range(lists.items))


def _show_remarks(path: str | Path, lists: Lists) -> None:
    for remark in lists.remarks.values():
        log.warning("%s: %s", path, remark)


def check_output(output: Path, *endings: str, key: str = "output", **inputs: str) -> None:
    """Raise ``ConfigError`` unless ``output``, given as ``key``, can be written: it must end in one
    of ``endings``, its folder must exist, and it must not be one of ``inputs``, which maps keys to
    the files that are read.
    """
    for name, path in inputs.items():
        if output.exists() and Path(path).exists() and output.samefile(path):
            raise ConfigError(f"{key}={output} is {name}: it would be lost; give another name")
    if not output.name.endswith(endings):
        raise ConfigError(f"{key}={output}: choose a name that ends in {' or '.join(endings)}")
    if not output.parent.is_dir():
        raise ConfigError(f"{key}={output}: there is no folder {output.parent}; create it first")


def open_scorer(cfg: DictConfig) -> Scorer:
    """Set the number of threads, then load the scorer ``cfg.checkpoint`` on ``cfg.device``."""
    set_threads(cfg)
    return load_model(cfg.checkpoint, pick_device(cfg.device), cfg.trust)


def set_threads(cfg: DictConfig) -> None:
    """Check ``cfg.evaluation_items``; unless ``cfg.threads`` is null, check and apply it too."""
    whole(cfg, "evaluation_items", least=1)
    if cfg.threads is not None:
        torch.set_num_threads(whole(cfg, "threads", least=1))
