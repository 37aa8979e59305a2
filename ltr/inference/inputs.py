"""Read the lists that a scorer is to score, from LETOR text or a table."""

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
    """The keys of a command that say how a trained model is loaded and scores."""

    device: str = option("auto", help="auto: a GPU if there is one | cpu | cuda")
    threads: int | None = option(
        None, at_least=1, help="PyTorch's threads on the CPU; null = PyTorch decides"
    )
    evaluation_items: int = option(
        32768,
        at_least=1,
        help="the largest number of items in a batch, with padding; it limits memory, not results",
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
        help="for CSV and TSV: false = the first line has no column names; null = as in training",
    )


class ScorerInput(NamedTuple):
    """The lists that a file holds, with the ids of their items."""

    lists: Lists
    ids: pd.DataFrame  # [items, id columns]
    queries: pd.Series | None  # [items], the query column of a table; None: LETOR text


def is_table(path: Path) -> bool:
    """Return whether ``path`` is a folder, or has the name of a table file."""
    return path.is_dir() or table_form(path) is not None


@contextmanager
def _with_command_keys() -> Iterator[None]:
    """Make the errors in a ``with`` block name the keys of the command, not those of a data set."""
    try:
        yield
    except (ConfigError, DataError) as error:
        text = re.sub(r"dataset\.(?=query|id\b|header|regroup|label\b)", "", str(error))
        raise type(error)(text.replace("(dataset.width)", "(as the model was trained)")) from None


def read_input(
    path: Path, options: InputOptions, scorer: Scorer, *, labelled: bool = False
) -> ScorerInput:
    """Read the items of ``path`` for ``scorer``, as a table if ``is_table``, else as LETOR text.

    Args:
        path: the file, or a folder with the files of a table.
        options: how the file is read.
        scorer: the model that will score the items.
        labelled: read the labels; if False, all labels are 0.

    Returns:
        The lists, the id columns and the query column. LETOR text gives one id column, ``id``,
        which is empty where a row has no id; if no row has an id, there is no column.

    Raises:
        ConfigError, DataError: the error is one line that says what to change.
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
    """Read the table ``path`` for ``scorer``; arguments and errors are as for ``read_input``.

    The id columns and the query column have the table's types. In a text file, a column of whole
    numbers is read as integers if that changes no digit. Features are found by name. For a model
    whose features have no names, ``options.features`` names the columns, in the order of training.
    """
    run_roles = _table_settings_of_run(scorer)
    query = run_roles.get("query") if options.query is None else options.query
    ids = run_roles.get("id") if options.id is None else options.id
    label = run_roles.get("label") if options.label is None else options.label
    header = run_roles.get("header") if options.header is None else options.header
    if query is None:
        raise ConfigError(f"expected query=COLUMN, the column of the query ids in {path}")
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
    """Return the settings of the run's data set if it was read from tables; else an empty dict."""
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
                f"features={shown}: the features of this model have no names; name the {width} "
                f"columns of {path} that hold them, in the order of training"
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
                    f"{key}: the output would have two columns {name!r}; rename the one in the "
                    "input"
                )


def _as_whole_numbers(column: pd.Series) -> pd.Series:
    """Return a column of strings as int64 if str(int) gives every string back; else unchanged."""
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
        regroup: accept a query whose rows are not next to each other, and put them together.
        scorer: the lists get as many features as the scorer was trained on; if None, as many as the
            file has.
        labelled: read the labels.
        ids: read the ids in the comments; if False, the table has no column.

    Raises:
        ConfigError: the model was trained on categories.
        DataError: the file is malformed.
    """
    if scorer is not None and scorer.columns is not None and scorer.columns.categories:
        raise ConfigError(
            f"{path}: the model was trained on a table with categories, which LETOR text cannot "
            "hold; use a table"
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

    It must end in one of ``endings``, its folder must exist, and it must not be one of ``inputs``,
    which maps keys to the files that are read.
    """
    for name, path in inputs.items():
        if output.exists() and Path(path).exists() and output.samefile(path):
            raise ConfigError(f"{key}={output} would overwrite {name}; choose another name")
    if not output.name.endswith(endings):
        raise ConfigError(f"{key}={output}: choose a name that ends in {' or '.join(endings)}")
    if not output.parent.is_dir():
        raise ConfigError(f"{key}={output}: there is no folder {output.parent}; create it first")


def open_scorer(checkpoint: str, options: ScoringOptions) -> Scorer:
    """Set the number of threads, then load the scorer ``checkpoint`` as ``options`` say."""
    use_threads(options.threads)
    return load_model(checkpoint, pick_device(options.device), options.trust)


def use_threads(count: int | None) -> None:
    """Let PyTorch use ``count`` threads on the CPU; if None, as many as it uses now."""
    if count is not None:
        torch.set_num_threads(count)
