"""Make an ensemble of finished runs: a run folder that every other command takes."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml  # type: ignore[import-untyped]
from hydra.core.hydra_config import HydraConfig
from numpy.typing import NDArray
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.folders import write_overrides
from ltr.console.keys import Kind, keys, text, texts, without
from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError
from ltr.experiment.provenance import place_of, places_of, versions
from ltr.experiment.report import computed_on, measure, metric_table, write_tested
from ltr.experiment.run_folder import NOTE, RunFolder, find_runs, write_results
from ltr.metrics import Convention, Metric
from ltr.scorers.ensemble import VALI, Weights, chosen_on_vali, parse_weights
from ltr.scorers.inputs import set_threads
from ltr.scorers.parts import as_list, make_convention, named_metrics
from ltr.scorers.scorer import Scorer, check_columns, ensemble_of, scorer_of
from ltr.scorers.trust import seen_from, trusted
from ltr.training.checkpoint import ENSEMBLE, MEMBER, save_checkpoint, selected_checkpoint
from ltr.training.device import pick_device
from ltr.training.evaluation import metrics_of_scores, predict
from ltr.training.monitor import Progress

_TARGET = "ltr.scorers.ensemble.Ensemble"


@dataclass(frozen=True)
class EnsembleConfig:
    """The members of an ensemble, and how it is made of them."""

    runs: tuple[RunFolder, ...]  # finished
    weights: str | tuple[float, ...]  # equal, vali, or one for each run
    folder: Path  # where it is kept
    overrides: tuple[str, ...] = ()  # the command, for the record
    select_on: str | None = None  # the metric that chooses weights; None: the runs' own
    identity: str | None = None  # by which it is found again, of a table
    device: str = "auto"
    items: int = 32768  # padded items of an evaluation batch
    places: Mapping[str, Any] = field(default_factory=dict)  # data_dir and cache_dir
    trust: tuple[str, ...] = ()

    @property
    def plain_weights(self) -> str | list[float]:
        """``weights`` as YAML and JSON hold them."""
        return self.weights if isinstance(self.weights, str) else list(self.weights)


def ensemble_of_runs(cfg: DictConfig) -> str:
    """Make the ensemble that ``cfg`` describes; return its members, its metrics and its folder."""
    order = ensemble_config(cfg)
    results = make_ensemble(order)
    select_on = results["select_on"]
    rows = [
        [described(m["choices"]), m["seed"], m["vali"], m["weight"], m["run"]]
        for m in results["members"]
    ]
    head = ["member", "seed", f"vali {select_on}", "weight", "run"]
    parts = [
        tabulate(rows, head, floatfmt=".4f", tablefmt="simple"),
        metric_table({split: results[split] for split in ("vali", "test")}),
        str(results["convention"]["text"]),
    ]
    if results["crossfit_weights"] is not None:
        parts.append(
            f"weights chosen on one half of vali have {select_on} "
            f"{results['crossfit_weights']:.4f} on the other, where vali shows "
            f"{results['vali'][select_on]:.4f}"
        )
    return "\n\n".join([*parts, f"kept in {order.folder}"])


def ensemble_config(cfg: DictConfig) -> EnsembleConfig:
    """Parse ``configs/ensemble.yaml``; ``ConfigError``, ``DataError`` where a value is wrong."""
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
    return EnsembleConfig(
        runs=tuple(runs),
        weights=parse_weights(texts(cfg, "weights"), len(runs)),
        folder=folder,
        overrides=tuple(HydraConfig.get().overrides.task) if HydraConfig.initialized() else (),
        select_on=text(cfg, "select_on"),
        device=cfg.device,
        items=cfg.evaluation_items,
        places={k: str(cfg[k]) for k in ("data_dir", "cache_dir") if cfg[k] is not None},
        trust=texts(cfg, "trust"),
    )


def make_ensemble(order: EnsembleConfig) -> dict[str, Any]:
    """Make the ensemble and write its run folder; return its ``results.json``.

    Its checkpoint holds those of its members whole, so that they may be deleted.

    Raises:
        ConfigError, DataError, CheckpointError: the runs do not go together, or cannot be read.
        TrainingError: a score is not finite.
    """
    started, runs, folder = time.perf_counter(), order.runs, order.folder
    check_alike(runs)
    choosing = {str(run.results["select_on"]) for run in runs}
    if order.select_on is None and len(choosing) > 1:
        listed = ", ".join(sorted(choosing))
        raise ConfigError(f"the runs differ in select_on ({listed}): give select_on=METRIC")
    select_on, device = order.select_on or choosing.pop(), pick_device(order.device)
    read = [selected_checkpoint(run.folder, device) for run in runs]
    members = [scorer_of(file, content, device, order.trust) for file, content in read]
    config = {**_config(members, select_on), **order.places}
    own = trusted(config, ["dataset", "metrics"], order.trust)
    nodes = own.get("own_metrics") or {}
    metrics = named_metrics([*as_list(own.metrics), select_on], nodes)
    (chosen_by,) = named_metrics([select_on], nodes)
    convention = make_convention(own)
    lists = {split: members[0].read(own.dataset, split)[1] for split in ("vali", "test")}
    for split, part in lists.items():
        if part.digest != runs[0].results["data"][split]["digest"]:
            raise DataError(
                f"{split} has changed since {runs[0].folder} was trained: restore the data, or "
                "train its members again"
            )
        for one in members:
            check_columns(part, one.columns)
    first = members[0]
    # raw, for each member has its own
    transform = replace(no_transform(lists["vali"], missing="keep"), codes=first.transform.codes)
    data = {split: ItemTensors(part, transform, device) for split, part in lists.items()}
    weights = _weights(order, members, data["vali"], chosen_by, convention)
    model = ensemble_of(members, weights.values).to(device).eval()
    digests = {split: part["digest"] for split, part in runs[0].results["data"].items()}
    scorer = Scorer(model, transform, first.columns, config, digests, device)
    scores, values, table = measure(scorer, data, metrics, convention, order.items)

    here = place_of(device.type, torch.get_num_threads())
    places = list(dict.fromkeys([*(p for run in runs for p in places_of(run.results)), here]))
    seed, choices = min(run.seed for run in runs), _choices(order)
    make_folder("output", folder)
    kept = {k: v for k, v in config.items() if k != "cache_dir"}
    content = scorer.state() | {
        "model": {},
        "config": seen_from(kept, folder) | {"seed": seed},
        "choices": choices,
        "computed_on": places,
        "progress": asdict(Progress()),
        "members": [
            {name: part[name] for name in MEMBER if name in part}
            | {"config": seen_from(one.config, folder)}
            for one, (_, part) in zip(members, read, strict=True)
        ],
        "weights": list(weights.values),
    }
    if order.identity is not None:
        atomic_write(folder / NOTE, order.identity + "\n")
    _write_record(order)
    save_checkpoint(folder / ENSEMBLE, content)
    write_frame(folder / "history.csv", pd.DataFrame(columns=["epoch"]))  # it has no epochs
    write_tested(folder, lists, values, scores)
    shared, epochs = runs[0].results, {run.results["select"] for run in runs}
    results = {
        "choices": choices,
        **{split: table[split] for split in ("test", "vali")},
        "convention": {**asdict(convention), "text": convention.describe()},
        "select": "best" if "best" in epochs else "last",
        "select_on": select_on,
        "selected_epoch": None,
        "crossfit_weights": weights.crossfit,  # no run's crossfit: all of vali chose the epochs
        "seed": seed,
        **{key: shared[key] for key in ("dataset", "fold", "data", "features")},
        "parameters": sum(run.results["parameters"] for run in runs),
        "members": [
            {
                "run": run.folder.name, "seed": run.seed, "weight": weight,
                "vali": run.results["vali"].get(select_on), "choices": run.results["choices"],
            }
            for run, weight in zip(runs, weights.values, strict=True)
        ],
        "wall_seconds": time.perf_counter() - started,
        **computed_on(device, places),
        # with the libraries of trees among the members
        "versions": {k: v for run in runs for k, v in run.results["versions"].items()} | versions(),
        "protocol": _protocol(order, select_on),
    }  # fmt: skip
    write_results(folder, results)
    return results


def check_alike(runs: Sequence[RunFolder]) -> None:
    """Raise ``ConfigError`` where the scores of ``runs`` cannot be averaged or measured as one."""
    if len(runs) < 2:
        raise ConfigError("an ensemble takes at least two runs: give more, or a folder of runs")
    alike: dict[str, Callable[[RunFolder], Any]] = {
        "data set": lambda run: run.results["dataset"],
        "fold": lambda run: run.repeat,
        "lists": lambda run: {k: part["digest"] for k, part in run.results["data"].items()},
        "number of features": lambda run: run.results["features"],
        "convention": lambda run: run.convention_keys,
    }
    for other in runs[1:]:
        for what, of in alike.items():
            ours, theirs = of(runs[0]), of(other)
            if ours != theirs:
                shown = f" ({ours} and {theirs})" if isinstance(ours, (str, int)) else ""
                raise ConfigError(
                    f"{runs[0].folder} and {other.folder} differ in {what}{shown}: an ensemble "
                    "takes runs on the same data set, fold, features and convention"
                )


def _config(members: Sequence[Scorer], select_on: str) -> dict[str, Any]:
    """The first member's config with the ensemble as its model, and the metrics of all."""
    metrics = dict.fromkeys(name for one in members for name in as_list(one.config["metrics"]))
    nodes = [one.config.get("own_metrics") or {} for one in members]
    return {
        **members[0].config,
        "model": {"_target_": _TARGET},
        "loss": None,
        "precision": "float32",  # outside the members
        "metrics": list(metrics),
        "own_metrics": {k: node for own in nodes for k, node in own.items()},
        "select_on": select_on,
    }


def _weights(
    order: EnsembleConfig,
    members: Sequence[Scorer],
    vali: ItemTensors,
    metric: Metric,
    convention: Convention,
) -> Weights:
    if isinstance(order.weights, tuple):
        return Weights(order.weights)
    if order.weights != VALI:
        return Weights((1 / len(members),) * len(members))
    alone = (ensemble_of([one], [1.0]).to(vali.device) for one in members)
    scores = torch.stack([predict(model, vali, items=order.items).double() for model in alone])

    def measure_of(counts: tuple[int, ...]) -> NDArray[np.float64]:
        mean = torch.tensor(counts, dtype=torch.float64, device=scores.device) @ scores
        return metrics_of_scores(vali, mean, [metric], convention, items=order.items)[str(metric)]

    return chosen_on_vali(measure_of, len(members))


def _choices(order: EnsembleConfig) -> dict[str, str]:
    """What tells one ensemble from others in short, in the place of a run's choices."""
    named = Counter(described(run.results["choices"]) for run in order.runs)
    members = [f"{count} {name}" if count > 1 else name for name, count in named.items()]
    weights = order.weights
    return {
        **_shared([run.results["choices"] for run in order.runs]),
        "model": "ensemble",
        "members": " + ".join(members),
        "weights": weights if isinstance(weights, str) else ",".join(f"{w:.4g}" for w in weights),
    }


def described(choices: Mapping[str, Any]) -> str:
    """A run by its ``choices``: model and loss.

    >>> described({"model": "mlp", "loss": "listnet"}), described({"model": "lightgbm"})
    ('mlp listnet', 'lightgbm')
    """
    given = (choices.get(group) for group in ("model", "loss", "members"))
    return " ".join(str(choice) for choice in given if choice not in (None, "None"))


def _shared(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that all have."""
    first, *others = mappings
    return {k: v for k, v in first.items() if all(k in one and one[k] == v for one in others)}


def _protocol(order: EnsembleConfig, select_on: str) -> dict[str, Any]:
    """What the ensembles of one system share: their members' methods, the rule of the weights."""
    configs = [run.results["protocol"] for run in order.runs]
    around = {*keys(*Kind), "dataset"}
    base = {key: value for key, value in configs[0].items() if key in around}
    kinds = (Kind.REPEAT, Kind.PLACE, Kind.MEASUREMENT, Kind.PROPOSAL)
    members = {str(i): without(config, *kinds) for i, config in enumerate(configs, 1)}
    model = {"_target_": _TARGET, "weights": order.plain_weights, "members": members}
    return {**base, **_shared(configs), "select_on": select_on, "model": model}


def _write_record(order: EnsembleConfig) -> None:
    """Keep the command as a run of Hydra does."""
    record = {
        "runs": [str(run.folder) for run in order.runs],
        "weights": order.plain_weights,
        "select_on": order.select_on,
    }
    write_overrides(order.folder / ".hydra" / "overrides.yaml", order.overrides)
    atomic_write(order.folder / ".hydra" / "config.yaml", yaml.safe_dump(record, sort_keys=False))
