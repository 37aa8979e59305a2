"""List the features that the trees, or the weights, of a run use, as a table and as a file."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.atomic import make_folder, write_frame
from ltr.console.folders import register_resolvers
from ltr.console.values import required, whole
from ltr.data.lists import Columns
from ltr.errors import CheckpointError, ConfigError, as_started
from ltr.experiment.scorer import load_model
from ltr.rounds import RoundModel
from ltr.trees import BoostedTrees


def importances(cfg: DictConfig) -> str:
    """The features of the largest gain in the model of the run ``cfg.run``, as a table.

    Raises:
        ConfigError, CheckpointError: one line that says what to mend.
    """
    required(cfg, "run")
    run, top = str(cfg.run), whole(cfg, "top", least=0)
    write = None if cfg.write is None else Path(cfg.write)
    if write is not None and not (cfg.write and (write.is_dir() or not write.exists())):
        raise ConfigError(f"write={cfg.write}: not a folder; give write=FOLDER")
    register_resolvers()  # the run's config needs them
    kept = load_model(run, torch.device("cpu"))
    model = kept.model
    if not isinstance(model, RoundModel):
        raise CheckpointError(
            f"{run}: a network and an ensemble have no importances of features: give a run of "
            "model=lightgbm, xgboost, catboost, stumps, rankboost, adarank or prank, or use "
            f"{as_started('explain')}, which takes every model"
        )
    if not model.fitted:
        raise CheckpointError(
            f"{run} has no {model.makes} (it was kept before the first round): resume it, or give "
            "another"
        )
    table = _all_features(model, kept.columns)
    if write is not None:
        make_folder("write", write)
        write_frame(write / "importances.csv", table)
    used = int((table.gain > 0).sum())
    shown = table.dropna(axis="columns").drop(columns="gain").head(top or len(table))
    if "name" in shown:
        marks = shown.pop("category").map({True: " (category)", False: ""})
        shown["name"] += marks
    lines = [
        f"{run}: {model.makes} of {_name(model)}, {used} of {model.width} features used",
        tabulate(shown.to_dict("list"), headers="keys", floatfmt=".4f", intfmt=","),
    ]
    if write is not None:
        lines.append(f"written: {write / 'importances.csv'}")
    return "\n".join(lines)


def _name(model: RoundModel) -> str:
    return f"{model.title} {model.version}" if isinstance(model, BoostedTrees) else model.title


def _all_features(model: RoundModel, columns: Columns | None) -> pd.DataFrame:
    """``feature`` (from 1), ``gain``, ``share`` of all gain, ``splits``; the largest gain first.

    ``splits`` is empty where the model does not say; of AdaRank they are its rounds. Where the
    features have names, ``name`` and ``category`` (whether it is one) follow the number.
    """
    gain, splits = model.importances()
    known = not np.isnan(splits).any()
    table = pd.DataFrame(
        {
            "feature": np.arange(1, model.width + 1),
            "gain": gain,
            "share": gain / max(gain.sum(), np.finfo(float).tiny),
            "splits": splits.astype(int) if known else splits,
        }
    )
    if columns is not None:
        table.insert(1, "name", columns.names)
        table.insert(2, "category", columns.codes > 0)
    return table.sort_values("gain", ascending=False, kind="stable")
