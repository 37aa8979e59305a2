"""The arguments of ``scripts/ensemble.py``, and what it prints."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.console.values import text, texts
from ltr.ensembles.combine import Order, described, make_ensemble
from ltr.ensembles.weights import parse_weights
from ltr.errors import ConfigError
from ltr.experiment.report import metric_table
from ltr.experiment.run_folder import find_runs
from ltr.scoring.predict import set_threads


def ensemble_of_runs(cfg: DictConfig) -> str:
    """Make the ensemble that ``cfg`` describes; return its members, its metrics and its folder.

    Raises:
        ConfigError, DataError, CheckpointError: one line that says what to mend.
    """
    order = ensemble_order(cfg)
    results = make_ensemble(order)
    parts = [
        _members(results),
        metric_table({split: results[split] for split in ("vali", "test")}),
        str(results["convention"]["text"]),
    ]
    if results["crossfit_weights"] is not None:
        parts.append(
            f"weights chosen on one half of vali have {results['select_on']} "
            f"{results['crossfit_weights']:.4f} on the other, where vali shows "
            f"{results['vali'][results['select_on']]:.4f}"
        )
    return "\n\n".join([*parts, f"kept in {order.folder}"])


def ensemble_order(cfg: DictConfig) -> Order:
    """The order in a config; ``ConfigError``, ``DataError`` where a value is wrong."""
    paths = texts(cfg, "runs")
    if not paths:
        raise ConfigError("give run folders, or a folder that holds runs; see --help")
    set_threads(cfg)
    runs, unfinished = find_runs(paths)
    if unfinished:
        raise ConfigError(
            f"{unfinished[0]} is not finished: go on with it, or name the runs one by one"
        )
    if cfg.output is not None:
        folder = Path(cfg.output)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"output={folder} is there already: give the name of a new folder")
    else:
        now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        name = f"{now}_{runs[0].results['dataset']}-ensemble_{secrets.token_hex(2)}"
        folder = Path(cfg.output_dir) / name
    places = {key: str(cfg[key]) for key in ("data_dir", "cache_dir") if cfg[key] is not None}
    return Order(
        runs=tuple(runs),
        weights=parse_weights(texts(cfg, "weights"), len(runs)),
        folder=folder,
        overrides=tuple(HydraConfig.get().overrides.task) if HydraConfig.initialized() else (),
        select_on=text(cfg, "select_on"),
        device=cfg.device,
        items=cfg.evaluation_items,
        places=places,
        trust=texts(cfg, "trust"),
    )


def _members(results: Mapping[str, Any]) -> str:
    """A line for each member: what it is, its seed, its own metric on vali, weight and folder."""
    rows = [
        [described(m["choices"]), m["seed"], m["vali"], m["weight"], m["run"]]
        for m in results["members"]
    ]
    head = ["member", "seed", f"vali {results['select_on']}", "weight", "run"]
    return tabulate(rows, head, floatfmt=".4f", tablefmt="simple")
