"""List the most important features of a run with trees or feature weights."""

from pathlib import Path

import numpy as np
import pandas as pd
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.atomic import make_folder, write_frame
from ltr.console.folders import register_resolvers
from ltr.console.keys import required, whole
from ltr.errors import CheckpointError, as_started
from ltr.inference.explain.subject import members_of_run
from ltr.models.rounds import RoundModel
from ltr.scorers.ensemble import Ensemble
from ltr.scorers.scorer import load_model


def importances(cfg: DictConfig) -> str:
    """Return a table of the features with the largest gain in the model of the run ``cfg.run``.

    If ``cfg.write`` is a folder, all features are written to ``importances.csv`` in it, with the
    columns ``feature`` (from 1), ``name`` and ``category`` (if features have names),
    ``indicator`` (whether it is the indicator of missing values of that feature, if the transform
    adds some), ``gain``,
    ``share`` (of the sum of all gains) and ``splits`` (how often the feature was used: the number
    of splits, or of rounds for AdaRank and RankBoost; empty if the model does not count it).

    Raises:
        ConfigError, CheckpointError, OutputError: one line that says what to correct.
    """
    required(cfg, "run")
    top = whole(cfg, "top", least=0)
    register_resolvers()  # the run's config needs them
    scorer = load_model(str(cfg.run))
    model = scorer.model
    if isinstance(model, Ensemble):
        raise CheckpointError(
            f"{cfg.run}: an ensemble has no importances of features: give one of its members, "
            f"{members_of_run(str(cfg.run))}"
        )
    if not isinstance(model, RoundModel):
        raise CheckpointError(
            f"{cfg.run}: a network has no importances of features: give a run of trees, rankboost, "
            f"adarank or prank, or explain one list with {as_started('explain')} {cfg.run} qid=QID"
        )
    if not model.fitted:
        raise CheckpointError(
            f"{cfg.run} has no {model.makes}, as its weights are of epoch 0, the start: give a run "
            "of which a later epoch was chosen"
        )
    gain, splits = model.importances()
    indicated = scorer.transform.indicated
    features = np.concatenate([np.arange(scorer.transform.width), indicated])
    table = pd.DataFrame({"feature": features + 1})
    if scorer.columns is not None:
        table["name"] = np.array(scorer.columns.names, object)[features]
        table["category"] = scorer.columns.codes[features] > 0
    if len(indicated):
        table["indicator"] = np.arange(model.width) >= scorer.transform.width
    table["gain"], table["share"] = gain, gain / max(gain.sum(), np.finfo(float).tiny)
    table["splits"] = splits if np.isnan(splits).any() else splits.astype(int)
    table = table.sort_values("gain", ascending=False, kind="stable")
    shown = table.dropna(axis="columns").drop(columns="gain").head(top or len(table))
    if "name" in shown:
        shown["name"] += shown.pop("category").map({True: " (category)", False: ""})
    if "indicator" in shown:
        labelled = "name" if "name" in shown else "feature"
        suffix = shown.pop("indicator").map({True: " (is missing)", False: ""})
        shown[labelled] = shown[labelled].astype(str) + suffix
    used = f"{(gain > 0).sum()} of {model.width} features used"
    text = f"{cfg.run}: {model.makes} of {model.description}, {used}\n"
    text += tabulate(shown.to_dict("list"), headers="keys", floatfmt=".4f", intfmt=",")
    if cfg.write is not None:
        make_folder("write", folder := Path(cfg.write))
        write_frame(folder / "importances.csv", table, guard=False)
        text += f"\nwritten: {folder / 'importances.csv'}"
    return text
