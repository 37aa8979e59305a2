"""The commands, each configured by the file of its name in ``configs/``.

``ltr NAME``, ``python -m ltr NAME`` and ``python scripts/NAME.py`` (``train.py``) are the same.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from ltr.console.cli import command
from ltr.console.torchrun import processes, rank
from ltr.errors import ConfigError
from ltr.training.interruption import stoppable

if TYPE_CHECKING:
    from ltr.data.prepare import Report

_GOES_ON = "stopped; the same command goes on from here"
# --help and mistakes answer at once: torch, pandas and the like are imported by the work itself


@command("train")
def train(cfg: DictConfig) -> float:
    """Run the experiment that ``cfg`` describes; return ``select_on`` on vali, for sweepers."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from ltr.experiment.folder_list import kept_once_begun

    hydra = HydraConfig.get()
    if hydra.mode == RunMode.MULTIRUN or rank() > 0:
        return _trained(cfg)
    with kept_once_begun(Path(hydra.runtime.output_dir), Path(cfg.output_dir)):
        if cfg.resume is None and processes() == 1:  # several fail together, once joined
            _check_files(cfg.dataset)
        return _trained(cfg)


def _trained(cfg: DictConfig) -> float:
    from ltr.experiment.job import train_job

    return train_job(cfg)


def _check_files(node: DictConfig) -> None:
    """Raise ``DataError`` where files of a data set of this project are missing."""
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    if str(node.get("_target_")).startswith("ltr."):
        try:
            dataset = instantiate(node, _convert_="all")
        except InstantiationException:
            return  # said later, with all other mistakes
        dataset.check()


@command("runs")
def runs(cfg: DictConfig) -> None:
    """Print the runs in ``cfg.folder``."""
    from ltr.experiment.folder_list import list_runs

    print(list_runs(cfg))


@command("evaluate")
def evaluate(cfg: DictConfig) -> None:
    """Print the metrics of the kept model or the scores that ``cfg`` names."""
    from ltr.scoring.evaluate import evaluate_kept, evaluate_scores

    with stoppable():
        print(evaluate_kept(cfg) if cfg.scores is None else evaluate_scores(cfg))


@command("predict")
def predict(cfg: DictConfig) -> None:
    """Score every row of ``cfg.input`` and write ``cfg.output``."""
    from ltr.scoring.predict import predict_kept

    with stoppable():
        print(predict_kept(cfg))


@command("export")
def export(cfg: DictConfig) -> None:
    """Export the model that ``cfg`` names, and print how it compares."""
    from ltr.export.command import export_kept

    with stoppable():
        print(export_kept(cfg))


@command("ensemble")
def ensemble(cfg: DictConfig) -> None:
    """Make a run folder of the ensemble of the runs that ``cfg`` names, and print its metrics."""
    from ltr.ensembles.command import ensemble_of_runs

    with stoppable():
        print(ensemble_of_runs(cfg))


@command("prepare_data")
def prepare_data(cfg: DictConfig) -> None:
    """Prepare the data set that ``cfg`` names and print what it holds."""
    with stoppable():
        report = prepared(cfg)
    print(report.table)
    report.check()


def prepared(cfg: DictConfig) -> "Report":
    """Check and unpack the data set ``cfg.dataset``, fill its cache and count its contents.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    from omegaconf import OmegaConf

    from ltr.console.values import required
    from ltr.data.prepare import prepare, prepare_other
    from ltr.experiment.parts import make_dataset

    required(cfg, "dataset")
    given: Any = OmegaConf.to_container(cfg, resolve=True)
    target = str(given["dataset"].get("_target_"))
    if target != "ltr.data.table_files.TableFiles" and target.startswith("ltr."):
        places = {key: given[key] for key in ("data_dir", "cache_dir", "archive", "folds")}
        return prepare(given["dataset"], **places)
    if cfg.archive is not None or cfg.folds != "all":
        raise ConfigError("this data set has neither archive nor folds: leave both out")
    return prepare_other(make_dataset(cfg.dataset))


@command("table", stopped=_GOES_ON)
def table(cfg: DictConfig) -> bool:
    """Run what is missing of a table and write it; whether all that can be done here is done."""
    from ltr.tables.config import table_config
    from ltr.tables.table import make_table

    with stoppable():
        return make_table(table_config(cfg))


@command("compare")
def compare(cfg: DictConfig) -> None:
    """Print which of the runs are better."""
    from ltr.compare.compare import compare as comparison
    from ltr.compare.compare import compare_order

    with stoppable():
        print(comparison(compare_order(cfg)))


@command("selection")
def selection(cfg: DictConfig) -> None:
    """Print how values on vali correlate with test, over the settings of runs."""
    from ltr.compare.selection import selection as correlations

    with stoppable():
        print(correlations(cfg))


@command("search", stopped=_GOES_ON)
def search(cfg: DictConfig) -> bool:
    """Search for good settings on vali; whether all trials are finished."""
    from ltr.search.definition import define_search, need_optuna

    definition = define_search(cfg)
    need_optuna()
    from ltr.search.search import run_search

    with stoppable():
        return run_search(definition)


@command("importances")
def importances(cfg: DictConfig) -> None:
    """Print which features the trees of a run use."""
    from ltr.explain.importances import importances as features_of

    with stoppable():
        print(features_of(cfg))


@command("explain")
def explain(cfg: DictConfig) -> None:
    """Print why a kept model ranks a list as it does, and write the page of it."""
    from ltr.explain.command import explain as explained

    with stoppable():
        print(explained(cfg))


@command("list_losses")
def list_losses(cfg: DictConfig) -> None:
    """Print all losses, or one in full."""
    from ltr.checks.list_losses import all_losses, details
    from ltr.console.values import flag

    sys.path.insert(0, str(Path.cwd()))  # of a loss of one's own
    markdown = flag(cfg, "markdown")
    print(all_losses(markdown=markdown) if cfg.name is None else details(str(cfg.name)))


@command("check_loss")
def check_loss(cfg: DictConfig) -> bool:
    """Print which properties hold for a loss; whether none fails."""
    from ltr.checks import command as checks

    return _said(checks.check_loss, cfg)


@command("check_metric")
def check_metric(cfg: DictConfig) -> bool:
    """Print which properties hold for a metric; whether none fails."""
    from ltr.checks import command as checks

    return _said(checks.check_metric, cfg)


@command("check_model")
def check_model(cfg: DictConfig) -> bool:
    """Print which properties hold for a model; whether none fails."""
    from ltr.checks import command as checks

    with stoppable():
        return _said(checks.check_model, cfg)


def _said(checked: Callable[[DictConfig], tuple[str, bool]], cfg: DictConfig) -> bool:
    """Print the verdicts on a part, which may be a module of the current folder."""
    sys.path.insert(0, str(Path.cwd()))
    text, sound = checked(cfg)
    print(text)
    return sound
