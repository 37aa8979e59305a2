"""List the most important features of a model with trees or with feature weights."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tabulate import tabulate

from ltr.atomic import make_folder, write_frame
from ltr.boosting import RoundModel
from ltr.cli.folders import register_resolvers
from ltr.cli.options import option
from ltr.errors import CheckpointError, as_started
from ltr.inference.explain.subject import members_of_run
from ltr.parts.ensemble import Ensemble
from ltr.parts.scorer import Scorer, load_model


@dataclass(frozen=True, kw_only=True)
class ImportancesOptions:
    """List the features that matter most to the model of a run. The model must be boosted trees,
    AdaRank, RankBoost or PRank.

      ltr importances outputs/RUN write=FOLDER

    Features are numbered from 1, as in a LETOR file, and are also named if the data set names its
    features. The importance of a feature is printed as its share of the total importance of all
    features. For LightGBM and XGBoost, the importance is the gain, which is how much the splits on
    the feature lowered the objective. For CatBoost, the importance is PredictionValuesChange. For
    AdaRank, RankBoost and PRank, it is the size of the feature's weight in the model. To get the
    model file of the tree library, type ltr export checkpoint=outputs/RUN to=native output=FOLDER
    (docs/how-to/export.md).
    """

    run: str = option(
        help="a run folder, or the best.pt or last.pt in it; the prefix run= is optional"
    )
    top: int = option(
        20,
        at_least=0,
        help="the number of features that are printed, with the most important first; 0 = all",
    )
    write: str | None = option(None, help="a folder for importances.csv, which lists all features")


def importances(options: ImportancesOptions) -> str:
    """Return a table of the features with the largest importance in the model of the run.

    If ``options.write`` is a folder, all features are written to ``importances.csv`` in that
    folder. The file has these columns:

    - ``feature``: the number of the feature, counted from 1.
    - ``name`` and ``category``, if features have names.
    - ``indicator``, if the transform adds indicators of missing values: whether the row is about
      the indicator for this feature.
    - ``gain``: the importance; ``share``: its share of the sum over all features.
    - ``splits``: how often the feature was used, which is the number of splits, or of rounds for
      AdaRank and RankBoost; empty if the model does not count this.

    Raises:
        ConfigError, CheckpointError, OutputError: an option or the checkpoint is invalid, or the
            file cannot be written; the message says what to correct.
    """
    register_resolvers()  # the run's config needs them
    scorer = load_model(options.run)
    model = _round_model(scorer, options.run)
    table = _importance_table(scorer, model)
    printed = _printed_columns(table).head(options.top or len(table))
    used = f"{(table['gain'] > 0).sum()} of {model.width} features used"
    text = f"{options.run}: {model.makes} of {model.description}, {used}\n"
    text += tabulate(printed.to_dict("list"), headers="keys", floatfmt=".4f", intfmt=",")
    if options.write is not None:
        folder = Path(options.write)
        make_folder("write", folder)
        write_frame(folder / "importances.csv", table, guard=False)
        text += f"\nwritten: {folder / 'importances.csv'}"
    return text


def _round_model(scorer: Scorer, run: str) -> RoundModel:
    """Return the scorer's model; raise ``CheckpointError`` if it has no feature importances."""
    model = scorer.model
    if isinstance(model, Ensemble):
        raise CheckpointError(
            f"{run}: an ensemble has no feature importances: name one of its members, "
            f"{members_of_run(run)}"
        )
    if not isinstance(model, RoundModel):
        raise CheckpointError(
            f"{run}: a network has no feature importances: name a run whose model is boosted "
            "trees, rankboost, adarank or prank, or explain one list with "
            f"{as_started('explain')} {run} qid=QID"
        )
    if not model.fitted:
        raise CheckpointError(
            f"{run} has no {model.makes}, because the selected epoch is 0 (before training): name "
            "a run whose selected epoch is later"
        )
    return model


def _importance_table(scorer: Scorer, model: RoundModel) -> pd.DataFrame:
    """Return a row for each feature of the model; the feature with the largest gain is first."""
    gain, splits = model.importances()
    indicated = scorer.transform.indicated
    features = np.concatenate([np.arange(scorer.transform.width), indicated])
    table = pd.DataFrame({"feature": features + 1})
    if scorer.columns is not None:
        table["name"] = np.array(scorer.columns.names, object)[features]
        table["category"] = scorer.columns.codes[features] > 0
    if len(indicated):
        table["indicator"] = np.arange(model.width) >= scorer.transform.width
    table["gain"] = gain
    table["share"] = gain / max(gain.sum(), np.finfo(float).tiny)
    table["splits"] = splits if np.isnan(splits).any() else splits.astype(int)
    return table.sort_values("gain", ascending=False, kind="stable")


def _printed_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns to print; the names of categories and indicators are marked."""
    printed = table.dropna(axis="columns").drop(columns="gain")
    if "name" in printed:
        printed["name"] += printed.pop("category").map({True: " (category)", False: ""})
    if "indicator" in printed:
        label = "name" if "name" in printed else "feature"
        suffix = printed.pop("indicator").map({True: " (is missing)", False: ""})
        printed[label] = printed[label].astype(str) + suffix
    return printed
