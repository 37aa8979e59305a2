"""``ltr.auto``: find a good ranker for a DataFrame in one call."""

import hashlib
import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import pandas as pd
import torch

from ltr.atomic import atomic_write, make_folder
from ltr.cli.arguments import as_text
from ltr.cli.compose import typed
from ltr.cli.keys import flat
from ltr.cli.options import parse_options
from ltr.errors import DataError, need
from ltr.lab.auto.command import AutoOptions, find_ranker
from ltr.ranker import Ranker
from ltr.training.interruption import Interrupted

_SHOWN = 10  # characters of a digest in the name of a file


@dataclass(frozen=True)
class AutoResult:
    """The ranker that ``ltr.auto`` chose, and the rows of the table that it tried.

    Attributes:
        ranker: the chosen ranker, fitted.
        row: the label of the chosen row, such as ``"weights by vali"``.
        table: a line for each row that was tried, with its metrics and the seconds it took. The
            lines are sorted by the cross-fitted metric on the validation lists, best first.
        folder: the run folder of the chosen ranker, for ``ltr predict``, ``ltr export`` and
            ``ltr evaluate``.
    """

    ranker: Ranker
    row: str
    table: pd.DataFrame
    folder: Path


def auto(
    data: Any,
    label: str,
    query: str,
    *,
    minutes: float = 30,
    table: str | Path = "recipes",
    rows: Sequence[str] = (),
    seeds: int = 1,
    categories: Sequence[str] = (),
    vali_fraction: float = 0.2,
    output: str | Path | None = None,
    output_dir: str | Path = "outputs",
    workers: int | None = None,
    **config: Any,
) -> AutoResult:
    """Train several kinds of rankers, build ensembles, and keep the best, as ``ltr auto`` does.

    If a call is stopped, the same call continues its work without training finished runs again.

    Args:
        data: a table with a row for each item (pandas, polars, Arrow), or the path of one (Parquet,
            CSV, TSV, Feather, Arrow). A table in memory is written to ``output_dir/data``.
        label: the column of the grades; 0 means not relevant.
        query: the column that names the query of each item.
        minutes: no further training starts after this many minutes.
        table: the table whose rows are the kinds of rankers to try: a name in ``configs/tables``,
            or the path of your own YAML file.
        rows: the rows of ``table`` to train, such as ``["recommended", "AdaRank"]``; if empty, all.
        seeds: the number of seeds; each row is trained with the seeds 1, 2, ..., up to this number.
        categories: columns to read as categories, in addition to those of a categorical type.
        vali_fraction: the fraction of the queries that are used for validation and for the choice,
            not for training.
        output: a new folder for the chosen ranker. If it is None, the folder is in ``output_dir``
            and is named after the date and time.
        output_dir: the folder for all runs and their table.
        workers: how many runs train at a time; None means one per GPU, or one per core if there is
            no GPU. More than one needs the optional dependencies ``sweep``.
        config: other keys of ``configs/train.yaml``, written as for ``Ranker``, for example
            ``select_on="ndcg@10"`` or ``**{"dataset.id": ["product"]}``. They apply to all models,
            except where the table of models itself sets the same key.

    Returns:
        The chosen ranker, and the table of the rows that were tried.

    Raises:
        ValueError: the data or a parameter is invalid, or no row was finished in time.
    """
    path, categorical = _table_file(data, Path(output_dir, "data"))
    options = {
        "minutes": minutes, "table": str(table), "rows": [*rows] or None, "seeds": seeds,
        "workers": workers, "output": None if output is None else str(output),
        "output_dir": str(output_dir),
    }  # fmt: skip
    settings = {
        "dataset": "table",
        "data_dir": str(path.absolute().parent),  # unlike the path, not part of a run's identity
        "dataset.path": path.name,
        "dataset.query": query,
        "dataset.label": label,
        "dataset.categories": [*dict.fromkeys([*categorical, *categories])],
        "dataset.fractions": [1 - vali_fraction, vali_fraction],
    }
    arguments = _as_arguments({**options, **settings, **flat(config)})
    with _global_state_kept():
        try:
            choice = find_ranker(parse_options(AutoOptions, typed("auto", arguments)))
        except Interrupted as stop:
            raise KeyboardInterrupt from stop
        ranker = Ranker.load(choice.folder)
    (row,) = choice.labels
    return AutoResult(ranker, row, choice.row_means(), choice.folder)


def _as_arguments(values: Mapping[str, Any]) -> list[str]:
    """Return ``values`` as arguments, in the form in which a user types them."""
    # "++" adds a key that the config does not list: those under options are a tree library's own
    return [f"{'++' * ('.options.' in key)}{key}={as_text(value)}" for key, value in values.items()]


def _table_file(data: Any, folder: Path) -> tuple[Path, list[str]]:
    """Return the path of a table's file, and the names of its columns of a categorical type.

    A table in memory is first written to ``folder``, under a name that is a hash of its content, so
    the same table gives the same file and the same runs.
    """
    if isinstance(data, str | Path):
        return Path(data), []
    pyarrow_parquet = need("pyarrow.parquet", "parquet")
    frame = _as_frame(data)
    categorical = [
        name for name, type_ in frame.schema.items() if type_ in (nw.Categorical, nw.Enum)
    ]
    content = io.BytesIO()
    try:
        pyarrow_parquet.write_table(frame.to_arrow(), content)
    except (ValueError, TypeError, NotImplementedError) as error:  # the classes of pyarrow's errors
        reason = " ".join(str(error).split())
        raise DataError(
            f"data: expected one type in each column ({reason}): convert or drop this column"
        ) from error
    digest = hashlib.sha256(content.getbuffer()).hexdigest()
    path = folder / f"{digest[:_SHOWN]}.parquet"
    if not path.is_file():
        make_folder("output_dir", folder)
        atomic_write(path, content.getvalue())
    return path, categorical


def _as_frame(data: Any) -> nw.DataFrame[Any]:
    """Return ``data`` as a frame in memory, without an index, whose column names are strings."""
    if isinstance(data, pd.DataFrame):
        data = data.reset_index(drop=True).rename(columns=str)
    native = nw.from_native(data, pass_through=True)
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if not isinstance(native, nw.DataFrame):
        raise DataError(
            f"data: expected a table (pandas, polars, Arrow) or the path of one, got "
            f"{type(data).__name__}"
        )
    return native


@contextmanager
def _global_state_kept() -> Iterator[None]:
    """Restore PyTorch's random state and the loggers at the end of a ``with`` block."""
    loggers = [logging.getLogger(), logging.getLogger("ltr.printed")]  # that Hydra sets up
    states = [(logger, [*logger.handlers], logger.level, logger.propagate) for logger in loggers]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            for logger, handlers, level, propagate in states:
                for handler in {*logger.handlers} - {*handlers}:
                    handler.close()
                logger.handlers[:] = handlers
                logger.setLevel(level)
                logger.propagate = propagate
