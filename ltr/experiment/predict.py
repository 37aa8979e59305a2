"""Score new lists with a kept model."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig

from ltr.console.values import flag, required, whole
from ltr.data.batches import ItemTensors
from ltr.data.letor import MemorySink, parse_letor
from ltr.data.letor_rows import Rules
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.kept import check_columns, load_kept
from ltr.training.device import pick_device
from ltr.training.evaluation import predict
from ltr.whole import write_frame, write_whole


def predict_kept(cfg: DictConfig) -> str:
    """Score every row of ``cfg.input`` with the model ``cfg.checkpoint`` and write ``cfg.output``.

    The output has a row for every row of the input, in its order: ``qid``, ``row`` (1-based),
    ``score`` and ``rank`` (1 = best of its list; ties keep the file's order).

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    required(cfg, "checkpoint", "input", "output")
    output = Path(cfg.output)
    check_output(output, ".csv", ".parquet", input=cfg.input)
    set_threads(cfg)
    kept = load_kept(cfg.checkpoint, device := pick_device(cfg.device), cfg.trust)
    lists, rows = read_file(
        Path(cfg.input), flag(cfg, "regroup"), width=kept.transform.width, labelled=False
    )
    check_columns(lists, kept.columns)
    data = ItemTensors(lists, kept.transform, device)
    scores = predict(
        kept.model, data, items=cfg.evaluation_items, precision=kept.config["precision"]
    )
    table = pd.DataFrame(
        {
            "qid": np.repeat(lists.qids, lists.lengths),
            "row": rows + 1,
            "score": scores.cpu().numpy(),
        }
    )
    by_list = table.groupby(np.repeat(np.arange(len(lists)), lists.lengths))["score"]
    table["rank"] = by_list.rank(method="first", ascending=False).astype(int)
    table = table.sort_values("row", kind="stable")
    if output.suffix == ".parquet":
        write_whole(output, lambda file: table.to_parquet(file, index=False))
    else:
        write_frame(output, table)
    return f"{lists.items:,} rows of {len(lists):,} lists scored: {output}"


def read_file(
    path: Path, regroup: bool, *, width: int | None = None, labelled: bool = True
) -> tuple[Lists, NDArray[np.int64]]:
    """The lists of a LETOR file, and the 0-based row of the file of each item.

    Args:
        path: the file.
        regroup: whether the rows of a query may stand apart.
        width: the number of features, None as the file has it.
        labelled: whether every row must have a label.

    Raises:
        DataError: a line is malformed.
    """
    sink = MemorySink()
    rules = Rules(width=width, labels="real", labelled=labelled)
    try:
        parse_letor(path, sink, rules=rules, regroup=regroup)
    except DataError as error:  # its remedies name keys of a data set; here they are the command's
        text = str(error).replace("dataset.regroup", "regroup")
        raise DataError(text.replace("(dataset.width)", "(as the model was trained)")) from None
    return sink.lists, np.arange(sink.lists.items) if sink.order is None else sink.order


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
    if output.suffix not in endings:
        raise ConfigError(f"output={output}: choose a name that ends in {' or '.join(endings)}")
    if not output.parent.is_dir():
        raise ConfigError(
            f"output={output}: the folder {output.parent} is not there; create it first"
        )
    if output.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401  (pandas needs it)
        except ImportError as error:
            raise ConfigError(
                f"output={output}: Parquet needs pyarrow; pip install pyarrow, or write .csv"
            ) from error


def set_threads(cfg: DictConfig) -> None:
    """Check ``cfg.evaluation_items``; check and set ``cfg.threads`` where it is not null."""
    whole(cfg, "evaluation_items", least=1)
    if cfg.threads is not None:
        torch.set_num_threads(whole(cfg, "threads", least=1))
