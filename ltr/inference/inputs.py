"""Read the lists that a trained model is to score, from LETOR text or a table."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from ltr.cli.options import option
from ltr.data.assemble import assemble
from ltr.data.letor import ParseOptions, item_ids, read_letor
from ltr.data.lists import Columns, Lists
from ltr.data.table_sources import Source, table_form
from ltr.data.tables import ColumnRoles, table_blocks
from ltr.errors import ConfigError, DataError
from ltr.parts.scorer import Scorer, load_model
from ltr.training.device import pick_device

log = logging.getLogger(__name__)

_OUTPUT_COLUMNS = ("row", "score", "rank")  # columns that predict adds


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """The keys of a command that say how a trained model is loaded, and how it scores."""

    device: str = option("auto", help="auto: a GPU if there is one | cpu | cuda")
    threads: int | None = option(
        None, at_least=1, help="the number of CPU threads; null = PyTorch's default"
    )
    evaluation_items: int = option(
        32768,
        at_least=1,
        help="the maximum number of items in a batch, including padding; it affects memory, not "
        "results",
    )
    trust: tuple[str, ...] = option(
        (),
        help="your own modules that may be imported when the checkpoint is loaded, such as "
        "'trust=[my_models]'",
    )


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """The keys of a command that say how a file of items is read."""

    regroup: bool = option(
        False, help="for LETOR text: true = accept a query whose rows are not adjacent"
    )
    query: str | None = option(
        None, help="for tables: the column of the query ids; null = as in training"
    )
    id: tuple[str, ...] | None = option(
        None, help="for tables: the columns of the item ids; null = as in training"
    )
    label: str | None = None  # tables only: the column of the labels; None: as in training
    features: tuple[str, ...] | None = option(
        None,
        help="for a table, if the model was trained on LETOR text: the names of the columns with "
        "the model's features 1, 2, ..., such as [price,stars]",
    )
    header: bool | None = option(
        None,
        help="for CSV and TSV: false = the first line does not contain the names of the columns; "
        "null = as in training",
    )


class ScorerInput(NamedTuple):
    """The lists in a file, and the ids of their items."""

    lists: Lists
    ids: pd.DataFrame  # [items, id columns]
    queries: pd.Series | None  # [items], the query column of a table; None: LETOR text


def is_table(path: Path) -> bool:
    """Return whether ``path`` is a folder, or has the name of a table file."""
    return path.is_dir() or table_form(path) is not None


@contextmanager
def _with_command_keys() -> Iterator[None]:
    """Make errors in a ``with`` block name the keys of the command instead of the data set's."""
    try:
        yield
    except (ConfigError, DataError) as error:
        text = re.sub(r"dataset\.(?=query|id\b|header|regroup|label\b)", "", str(error))
        features = "(the number of features of the model)"
        raise type(error)(text.replace("(dataset.width)", features)) from None


def read_input(
    path: Path, options: InputOptions, scorer: Scorer, *, labelled: bool = False
) -> ScorerInput:
    """Read the items in ``path``, a table or LETOR text, for ``scorer``.

    Args:
        path: the file, or a folder with the files of a table.
        options: how the file is read.
        scorer: the model that will score the items.
        labelled: whether the labels are read; if False, all labels are 0.

    Returns:
        The lists, the id columns and the query column. LETOR text has one id column, ``id``, which
        is empty for a row without an id; if no row has an id, there is no id column.

    Raises:
        ConfigError, DataError: an option or the file is invalid; the message says what to correct.
    """
    if is_table(path):
        return read_table_lists(path, options, scorer, labelled=labelled)
    table_keys = {
        "query": options.query,
        "id": options.id,
        "header": options.header,
        "label": options.label,
        "features": options.features,
    }
    for key, value in table_keys.items():
        if value is not None:
            shown = list(value) if isinstance(value, tuple) else value
            raise ConfigError(f"{key}={shown}: {path} is LETOR text, not a table; leave {key} out")
    lists, ids = read_file(path, options.regroup, scorer, labelled=labelled, ids=True)
    return ScorerInput(lists, ids, None)


def read_table_lists(
    path: Path, options: InputOptions, scorer: Scorer, *, labelled: bool = False
) -> ScorerInput:
    """Read the table ``path`` for ``scorer``; arguments and errors are those of ``read_input``.

    The id columns and the query column have the table's types. In a text file, a column of whole
    numbers is read as integers if that changes no digit. Features are found by name. If the
    features of the model have no names, ``options.features`` must name the columns in the order
    used for training.
    """
    run_roles = _table_settings_of_run(scorer)
    query = run_roles.get("query") if options.query is None else options.query
    ids = run_roles.get("id") if options.id is None else options.id
    label = run_roles.get("label") if options.label is None else options.label
    header = run_roles.get("header") if options.header is None else options.header
    if query is None:
        raise ConfigError(
            f"{path}: expected the name of the column of query ids, got none: set query=COLUMN"
        )
    columns = _feature_columns(path, options.features, scorer)
    roles = ColumnRoles.from_config(
        {"query": query, "id": ids, "label": label, "features": columns.names}
    )
    _check_output_columns(roles)
    source = Source(path, header is not False)
    cells = list[pd.DataFrame]()
    copied = list(dict.fromkeys([roles.query, *roles.id]))
    with _with_command_keys():
        blocks = table_blocks(
            source,
            roles,
            columns,
            rules=ParseOptions(labels="real", labelled=labelled),
            on_block=lambda block: cells.append(block[copied]),
        )
        lists = assemble(blocks, columns=columns)
    _show_remarks(path, lists)
    frame = pd.concat(cells).iloc[lists.source_rows].reset_index(drop=True)
    if source.is_text:
        frame = frame.apply(_as_whole_numbers)
    id_names = [name for name in roles.id if name != roles.query]
    return ScorerInput(lists, frame[id_names], frame[roles.query])


def _table_settings_of_run(scorer: Scorer) -> dict[str, Any]:
    """Return the settings of the run's data set if it consists of tables, else an empty dict."""
    node: dict[str, Any] = scorer.config["dataset"]
    is_table_set = str(node.get("_target_", "")).endswith("TableFiles")
    return node if is_table_set else {}


def _feature_columns(path: Path, features: Sequence[str] | None, scorer: Scorer) -> Columns:
    """Return the columns of the model's features in the table ``path``."""
    if scorer.columns is None:
        width = scorer.transform.width
        if len(features or ()) != width:
            shown = None if features is None else list(features)
            raise ConfigError(
                f"features={shown}: the features of this model have no names; set features to the "
                f"names of the columns of {path} that hold these {width} features, in the order "
                "used for training"
            )
        return Columns(tuple(features or ()))
    if features is not None:
        raise ConfigError(
            "features: this model finds its features by their names; leave out features"
        )
    return scorer.columns


def _check_output_columns(roles: ColumnRoles) -> None:
    """Raise ``ConfigError`` if a copied column has the name of a column that predict adds."""
    for key, names in (("id", roles.id), ("query", (roles.query,))):
        for name in names:
            if name in _OUTPUT_COLUMNS:
                raise ConfigError(
                    f"{key}: the output would have two columns named {name!r}; rename the column "
                    "of the input"
                )


def _as_whole_numbers(column: pd.Series) -> pd.Series:
    """Return a column of strings as int64 if that changes no digit; otherwise, unchanged."""
    if not column.str.fullmatch("0|-?[1-9][0-9]{0,18}").all():
        return column
    try:
        return pd.Series(np.array([*map(int, column)], np.int64), name=column.name)
    except OverflowError:
        return column


def read_file(
    path: Path,
    regroup: bool,
    scorer: Scorer | None = None,
    *,
    labelled: bool = True,
    ids: bool = False,
) -> tuple[Lists, pd.DataFrame]:
    """Read the LETOR file ``path``; return its lists and a table with the ids of the items.

    Args:
        path: the file.
        regroup: whether a query whose rows are not adjacent is accepted; its rows are then put
            together.
        scorer: the scorer whose number of features the lists get; if None, they get the number of
            features in the file.
        labelled: whether the labels are read.
        ids: whether the ids in the comments are read; if False, the table has no columns.

    Raises:
        ConfigError: the model was trained on categories.
        DataError: the file is malformed.
    """
    if scorer is not None and scorer.columns is not None and scorer.columns.categories:
        raise ConfigError(
            f"{path}: expected a table, got LETOR text, which cannot hold the categories on which "
            "the model was trained: use a table"
        )
    width = None if scorer is None else scorer.transform.width
    row_ids = list[str]()

    def collect_ids(text: bytes) -> None:
        if ids:
            row_ids.extend(item_ids(text))

    with _with_command_keys():
        rules = ParseOptions(width=width, labels="real", labelled=labelled)
        lists = read_letor(path, rules, regroup=regroup, on_block=collect_ids)
    _show_remarks(path, lists)
    columns = {"id": [row_ids[row] for row in lists.source_rows]} if any(row_ids) else {}
    return lists, pd.DataFrame(columns, index=range(lists.items))


def _show_remarks(path: Path, lists: Lists) -> None:
    for remark in lists.remarks.values():
        log.warning("%s: %s", path, remark)


def check_output(output: Path, *endings: str, key: str = "output", **inputs: str) -> None:
    """Raise ``ConfigError`` unless ``output``, the value of ``key``, can be written.

    The name must end in one of ``endings``, the folder must exist, and the file must not be one of
    ``inputs``, which maps keys to the files that are read.
    """
    for name, path in inputs.items():
        if output.exists() and Path(path).exists() and output.samefile(path):
            raise ConfigError(f"{key}={output} would overwrite {name}={path}; choose another name")
    if not output.name.endswith(endings):
        raise ConfigError(f"{key}={output}: choose a name that ends in {' or '.join(endings)}")
    if not output.parent.is_dir():
        raise ConfigError(
            f"{key}={output}: the folder {output.parent} does not exist; create it first"
        )


def open_scorer(checkpoint: str, options: ScoringOptions) -> Scorer:
    """Set the number of threads, then load the scorer ``checkpoint`` as ``options`` say."""
    use_threads(options.threads)
    return load_model(checkpoint, pick_device(options.device), options.trust)


def use_threads(count: int | None) -> None:
    """Let PyTorch use ``count`` CPU threads; if ``count`` is None, change nothing."""
    if count is not None:
        torch.set_num_threads(count)
