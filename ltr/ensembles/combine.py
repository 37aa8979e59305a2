"""Make an ensemble of finished runs: a run folder that every other command takes."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml  # type: ignore[import-untyped]
from numpy.typing import NDArray

from ltr.atomic import atomic_write, make_folder, write_frame
from ltr.console.folders import write_overrides
from ltr.console.keys import Kind, keys, without
from ltr.data.batches import ItemTensors
from ltr.data.lists import KnowsColumns, Lists
from ltr.data.transforms import no_transform
from ltr.ensembles.weights import VALI, Weights, chosen_on_vali
from ltr.errors import ConfigError, DataError
from ltr.experiment.parts import as_list, make_convention, make_dataset, named_metrics
from ltr.experiment.provenance import commit, place_of, places_of, versions
from ltr.experiment.run_folder import NOTE, RunFolder, write_queries, write_results, write_scores
from ltr.experiment.scorer import Scorer, check_columns, ensemble_of, scorer_of
from ltr.experiment.trust import seen_from, trusted
from ltr.metrics import Convention, Metric
from ltr.training.checkpoint import ENSEMBLE, MEMBER, save_checkpoint, selected_checkpoint
from ltr.training.device import describe_device, pick_device
from ltr.training.evaluation import means, metrics_of_scores, predict
from ltr.training.monitor import Progress

_TARGET = "ltr.experiment.ensemble.Ensemble"


@dataclass(frozen=True)
class Order:
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


def make_ensemble(order: Order) -> dict[str, Any]:
    """Make the ensemble and write its run folder; return its ``results.json``.

    Its checkpoint holds those of its members whole, so that they may be deleted.

    Raises:
        ConfigError, DataError, CheckpointError: the runs do not go together, or cannot be read.
        TrainingError: a score is not finite.
    """
    started, runs = time.perf_counter(), order.runs
    check_alike(runs)
    select_on = order.select_on or _common(runs, "select_on", "select_on=METRIC")
    device = pick_device(order.device)
    read = [selected_checkpoint(run.folder, device) for run in runs]
    kept = [scorer_of(file, content, device, order.trust) for file, content in read]
    config = {**_config(kept, select_on), **order.places}
    own = trusted(config, ["dataset", "metrics"], order.trust)
    nodes = own.get("own_metrics") or {}
    metrics = named_metrics([*as_list(own.metrics), select_on], nodes)
    (chosen_by,) = named_metrics([select_on], nodes)
    convention = make_convention(own)
    lists = _lists(own, kept, runs[0])
    # raw, for each member has its own
    transform = replace(no_transform(lists["vali"], missing="keep"), codes=kept[0].transform.codes)
    data = {split: ItemTensors(part, transform, device) for split, part in lists.items()}
    weights = _weights(order, kept, data["vali"], chosen_by, convention)

    model = ensemble_of(kept, weights.values).to(device).eval()
    scores = {split: predict(model, part, items=order.items) for split, part in data.items()}
    values = {
        split: metrics_of_scores(data[split], scores[split], metrics, convention, items=order.items)
        for split in scores
    }
    table = {split: means(values[split], convention) for split in ("test", "vali")}
    here = place_of(device.type, torch.get_num_threads())
    places = list(dict.fromkeys([*(p for run in runs for p in places_of(run.results)), here]))
    first, folder, choices = runs[0].results, order.folder, _choices(order)
    seed = min(run.seed for run in runs)

    make_folder("output", folder)
    content = {
        "model": {},
        "config": seen_from({k: v for k, v in config.items() if k != "cache_dir"}, folder)
        | {"seed": seed},
        "choices": choices,
        "transform": transform.state(),
        "width": transform.width,
        "columns": None if kept[0].columns is None else kept[0].columns.state(),
        "computed_on": places,
        "data": {split: part["digest"] for split, part in first["data"].items()},
        "progress": asdict(Progress()),
        "members": [
            {name: content[name] for name in MEMBER if name in content}
            | {"config": seen_from(one.config, folder)}
            for one, (_, content) in zip(kept, read, strict=True)
        ],
        "weights": list(weights.values),
    }
    if order.identity is not None:
        atomic_write(folder / NOTE, order.identity + "\n")
    _write_record(order)
    save_checkpoint(folder / ENSEMBLE, content)
    write_frame(folder / "history.csv", pd.DataFrame(columns=["epoch"]))  # it has no epochs
    write_queries(folder / "queries.csv", lists["test"], values["test"])
    write_scores(folder / "scores.csv", lists["test"], scores["test"].cpu().numpy())
    results = {
        "choices": choices,
        **table,
        "convention": {**asdict(convention), "text": convention.describe()},
        "select": _select(runs),
        "select_on": select_on,
        "selected_epoch": None,
        "crossfit_weights": weights.crossfit,  # no run's crossfit: all of vali chose the epochs
        "seed": seed,
        "dataset": first["dataset"],
        "fold": first.get("fold"),
        "data": first["data"],
        "features": first["features"],
        "parameters": sum(run.results["parameters"] for run in runs),
        "members": [
            {
                "run": run.folder.name, "seed": run.seed, "weight": weight,
                "vali": run.results["vali"].get(select_on), "choices": run.results["choices"],
            }
            for run, weight in zip(runs, weights.values, strict=True)
        ],
        "wall_seconds": time.perf_counter() - started,
        "device": describe_device(device),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "computed_on": places,
        "versions": {**_of_members(runs), **versions()},
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
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
    first = runs[0]
    for other in runs[1:]:
        for what, of in alike.items():
            ours, theirs = of(first), of(other)
            if ours != theirs:
                shown = f" ({ours} and {theirs})" if isinstance(ours, (str, int)) else ""
                raise ConfigError(
                    f"{first.folder} and {other.folder} differ in {what}{shown}: an ensemble takes "
                    "runs on the same data set, fold, features and convention"
                )


def _common(runs: Sequence[RunFolder], key: str, remedy: str) -> str:
    found = sorted({str(run.results[key]) for run in runs})
    if len(found) > 1:
        raise ConfigError(f"the runs differ in {key} ({', '.join(found)}): give {remedy}")
    return found[0]


def _select(runs: Sequence[RunFolder]) -> str:
    """The epoch that the members are of; ``best`` where any was chosen by vali."""
    return "best" if any(run.results["select"] == "best" for run in runs) else "last"


def _config(kept: Sequence[Scorer], select_on: str) -> dict[str, Any]:
    """The first member's config with the ensemble as its model, and the metrics of all."""
    metrics = dict.fromkeys(name for one in kept for name in as_list(one.config["metrics"]))
    nodes = {k: node for one in kept for k, node in (one.config.get("own_metrics") or {}).items()}
    return {
        **kept[0].config,
        "model": {"_target_": _TARGET},
        "loss": None,
        "precision": "float32",  # outside the members
        "metrics": list(metrics),
        "own_metrics": nodes,
        "select_on": select_on,
    }


def _lists(own: Any, kept: Sequence[Scorer], run: RunFolder) -> dict[str, Lists]:
    """Vali and test, the lists that the runs had.

    Raises:
        DataError: they have changed, or a member knows other features.
    """
    dataset = make_dataset(own.dataset)
    if kept[0].columns is not None and isinstance(dataset, KnowsColumns):
        dataset = dataset.with_columns(kept[0].columns)
    lists = {split: dataset.split(split) for split in ("vali", "test")}
    for split, part in lists.items():
        if part.digest != run.results["data"][split]["digest"]:
            raise DataError(
                f"{split} has changed since {run.folder} was trained: restore the data, or train "
                "its members again"
            )
    for one in kept:
        check_columns(lists["vali"], one.columns)
    return lists


def _weights(
    order: Order,
    kept: Sequence[Scorer],
    vali: ItemTensors,
    metric: Metric,
    convention: Convention,
) -> Weights:
    if isinstance(order.weights, tuple):
        return Weights(order.weights)
    if order.weights != VALI:
        return Weights((1 / len(kept),) * len(kept))
    alone = (ensemble_of([one], [1.0]).to(vali.device) for one in kept)
    scores = torch.stack([predict(model, vali, items=order.items).double() for model in alone])

    def measure(counts: tuple[int, ...]) -> NDArray[np.float64]:
        mean = torch.tensor(counts, dtype=torch.float64, device=scores.device) @ scores
        return metrics_of_scores(vali, mean, [metric], convention, items=order.items)[str(metric)]

    return chosen_on_vali(measure, len(kept))


def _choices(order: Order) -> dict[str, str]:
    """What tells one ensemble from others in short, in the place of a run's choices."""
    named = Counter(described(run.results["choices"]) for run in order.runs)
    members = [f"{count} {name}" if count > 1 else name for name, count in named.items()]
    weights = order.weights
    shown = weights if isinstance(weights, str) else ",".join(f"{w:.4g}" for w in weights)
    return {
        **_shared([run.results["choices"] for run in order.runs]),
        "model": "ensemble",
        "members": " + ".join(members),
        "weights": shown,
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


def _protocol(order: Order, select_on: str) -> dict[str, Any]:
    """What the ensembles of one system share: their members' methods, the rule of the weights."""
    configs = [run.results["protocol"] for run in order.runs]
    of_training = set(keys(Kind.METHOD)) - {"dataset"}
    base = {key: value for key, value in configs[0].items() if key not in of_training}
    base |= _shared(configs)
    kinds = (Kind.REPEAT, Kind.PLACE, Kind.MEASUREMENT, Kind.PROPOSAL)
    members = {str(i): without(config, *kinds) for i, config in enumerate(configs, 1)}
    weights = order.weights if isinstance(order.weights, str) else list(order.weights)
    model = {"_target_": _TARGET, "weights": weights, "members": members}
    return {**base, "select_on": select_on, "model": model}


def _of_members(runs: Sequence[RunFolder]) -> dict[str, str]:
    """The versions of the libraries of trees among the members."""
    return {k: v for run in runs for k, v in run.results.get("versions", {}).items()}


def _write_record(order: Order) -> None:
    """Keep the command as a run of Hydra does."""
    weights = order.weights if isinstance(order.weights, str) else list(order.weights)
    record = {
        "runs": [str(run.folder) for run in order.runs],
        "weights": weights,
        "select_on": order.select_on,
    }
    write_overrides(order.folder / ".hydra" / "overrides.yaml", order.overrides)
    atomic_write(order.folder / ".hydra" / "config.yaml", yaml.safe_dump(record, sort_keys=False))
