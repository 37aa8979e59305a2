"""A kept model at work: metrics on any split, scores for new lists."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from ltr.data.batches import ItemTensors
from ltr.data.dataset import SPLITS
from ltr.data.letor import MemorySink, parse_letor
from ltr.data.letor_rows import Rules
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.build import make_dataset
from ltr.experiment.conventions import chosen_conventions
from ltr.experiment.kept import load_kept
from ltr.experiment.side_by_side import report
from ltr.metrics import parse_metric
from ltr.training.device import pick_device
from ltr.training.evaluation import evaluate, predict


def evaluate_kept(cfg: DictConfig) -> str:
    """Evaluate the model ``cfg.checkpoint`` on ``cfg.split``; return its table and conventions.

    The data set is ``cfg.dataset``, or the run's own where none was chosen.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    if cfg.split not in SPLITS:
        raise ConfigError(f"split={cfg.split}: choose one of {', '.join(SPLITS)}")
    if OmegaConf.is_missing(cfg, "checkpoint"):
        raise ConfigError("give checkpoint=..., or scores=... and data=...; see --help")
    device = _prepare(cfg)
    kept = load_kept(cfg.checkpoint, device, cfg.trust)
    own = kept.config
    names = own.metrics if cfg.metrics is None else cfg.metrics
    metrics = [parse_metric(str(name)) for name in names]
    settings: Any = OmegaConf.to_object(own.convention)
    if cfg.suggested.get("levels") is not None:  # the chosen data set's
        settings["levels"] = cfg.suggested.levels
    conventions = chosen_conventions(cfg, settings)

    for key in ("data_dir", "cache_dir"):
        OmegaConf.update(cfg, key, own[key] if cfg[key] is None else cfg[key])
        OmegaConf.update(own, key, cfg[key])
    dataset = make_dataset(own.dataset if cfg.get("dataset") is None else cfg.dataset)
    dataset.check()
    lists = dataset.split(cfg.split)
    data = ItemTensors(lists, kept.transform, device)
    values = {
        name: evaluate(
            kept.model,
            data,
            metrics,
            convention,
            items=cfg.evaluation_items,
            precision=own.precision,
        )
        for name, convention in conventions.items()
    }
    fold = f" fold {dataset.fold}" if dataset.fold is not None else ""
    title = f"{cfg.checkpoint} on {dataset.name}{fold}"
    return report(title, lists, values, conventions, alone=cfg.split, output=cfg.output)


def predict_kept(cfg: DictConfig) -> str:
    """Score every row of ``cfg.input`` with the model ``cfg.checkpoint`` and write ``cfg.output``.

    The output has a row for every row of the input, in its order: ``qid``, ``row`` (1-based),
    ``score`` and ``rank`` (1 = best of its list; ties keep the file's order).

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    _check_required(cfg, "checkpoint", "input", "output")
    output = Path(cfg.output)
    _check_output(output)
    device = _prepare(cfg)
    kept = load_kept(cfg.checkpoint, device, cfg.trust)
    lists, rows = _read_input(Path(cfg.input), kept.transform.width, cfg.regroup)
    data = ItemTensors(lists, kept.transform, device)
    scores = predict(kept.model, data, items=cfg.evaluation_items, precision=kept.config.precision)
    table = pd.DataFrame(
        {
            "qid": np.repeat(lists.qids, lists.lengths),
            "row": rows + 1,
            "score": scores,
        }
    )
    place = table.groupby(np.repeat(np.arange(len(lists)), lists.lengths))["score"]
    table["rank"] = place.rank(method="first", ascending=False).astype(int)
    table = table.sort_values("row", kind="stable")
    part = output.with_name(f".{output.name}.part")
    if output.suffix == ".parquet":
        table.to_parquet(part, index=False)
    else:
        table.to_csv(part, index=False)
    part.replace(output)
    return f"{lists.items:,} rows of {len(lists):,} lists scored: {output}"


def _read_input(path: Path, width: int, regroup: bool) -> tuple[Lists, NDArray[np.int64]]:
    """The lists of a file that may lack labels, and the 0-based row of the file of each item."""
    sink = MemorySink()
    rules = Rules(width=width, labels="real", labelled=False)
    try:
        parse_letor(path, sink, rules=rules, regroup=regroup)
    except DataError as error:  # its remedies name keys of a data set; here they are the command's
        text = str(error).replace("dataset.regroup", "regroup")
        raise DataError(text.replace("(dataset.width)", "(as the model was trained)")) from None
    return sink.lists, np.arange(sink.lists.items) if sink.order is None else sink.order


def _check_required(cfg: DictConfig, *keys: str) -> None:
    missing = [f"{key}=..." for key in keys if OmegaConf.is_missing(cfg, key)]
    if missing:
        raise ConfigError(f"give {' '.join(missing)}; see --help")


def _check_output(output: Path) -> None:
    if output.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"output={output}: choose a name that ends in .csv or .parquet")
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


def _prepare(cfg: DictConfig) -> torch.device:
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    return pick_device(cfg.device)
