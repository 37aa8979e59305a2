"""Train, select, test and record one run: the function behind ``train.py`` that tests can call."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.console.keys import Kind, Resumed, flat, keys
from ltr.data.lists import Dataset, Lists, splits_of
from ltr.experiment.advice import after, before
from ltr.experiment.build import build
from ltr.experiment.fit import fit, parameters_of
from ltr.experiment.labels import resolve_labels
from ltr.experiment.parts import make_tracker
from ltr.experiment.provenance import commit, versions
from ltr.experiment.run_folder import write_queries, write_results, write_scores
from ltr.experiment.scorer import load_model
from ltr.experiment.warm_start import with_its_categories
from ltr.metrics.crossfit import Crossfit
from ltr.tracking import Tracking, tracked
from ltr.training.checkpoint import load_checkpoint
from ltr.training.device import describe_device, deterministic, on_threads
from ltr.training.evaluation import means, metrics_of_scores
from ltr.training.processes import agreed, first, size
from ltr.training.record import AfterEpoch, Row
from ltr.trees import BoostedTrees

log = logging.getLogger(__name__)
# What is printed too goes to the file of the log alone (configs/hydra/job_logging/ltr.yaml).
_log_file = logging.getLogger("ltr.printed")


def run(
    cfg: DictConfig,
    folder: Path,
    choices: Mapping[str, str],
    dataset: Dataset | None = None,
    after_epoch: AfterEpoch | None = None,
    *,
    printed: bool = False,
) -> dict[str, float]:
    """Train, select, test and record the experiment ``cfg`` in ``folder``.

    Args:
        cfg: composed from ``configs/train.yaml``.
        folder: the run folder; where ``cfg.resume`` is set, the run in it goes on.
        choices: the choice of each group (``{"loss": "neuralndcg", ...}``), for the record.
        dataset: instead of that of ``cfg``; without a test split nothing is tested.
        after_epoch: as for ``Record``.
        printed: the result goes to standard output; in a sweep it is progress, a line of the log.

    Returns:
        ``{"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}`` of the selected weights.

    Raises:
        ConfigError, DataError: before anything is trained.
        TrainingError, Interrupted: see ``Trainer.fit``.
    """
    tracker = make_tracker(cfg.get("tracking")) if first() else None
    wanted = cfg.deterministic is True and cfg.device != "cpu"
    with tracked(tracker, folder) as tracking, deterministic(wanted), on_threads():
        return _run(cfg, folder, choices, dataset, after_epoch, tracking, printed=printed)


def _run(
    cfg: DictConfig,
    folder: Path,
    choices: Mapping[str, str],
    dataset: Dataset | None,
    after_epoch: AfterEpoch | None,
    tracking: Tracking,
    *,
    printed: bool,
) -> dict[str, float]:
    started = time.perf_counter()
    experiment = build(cfg, dataset)
    experiment.dataset.check()
    if cfg.init_from is not None:
        file = cfg.init_from if cfg.resume is None else folder / "last.pt"
        begun = load_model(file, trust=cfg.trust)
        experiment = replace(experiment, dataset=with_its_categories(experiment.dataset, begun))
    settings, device = experiment.settings, experiment.device
    # all of them before training, so that a bad test file is not found hours later
    lists = {split: experiment.dataset.split(split) for split in splits_of(experiment.dataset)}
    cfg, experiment = resolve_labels(cfg, experiment, lists)
    tracking.begin(_params(cfg, choices))

    def told(epoch: int, row: Row) -> None:
        tracking.epoch(epoch, row)
        if after_epoch is not None:
            after_epoch(epoch, row)

    if cfg.resume is None:
        _advise(before(experiment, lists["train"]))
    fitted = fit(cfg, experiment, lists, folder, choices, told)
    scorer, data, done, worth, convention = (
        fitted.scorer, fitted.data, fitted.progress, fitted.crossfit, experiment.convention,
    )  # fmt: skip
    model = scorer.model

    _advise(after(experiment, done, worth))
    chosen = "best.pt" if settings.select == "best" else "last.pt"
    agreed(None)  # until the first process has written it
    model.load_state_dict(load_checkpoint(folder / chosen, device)["model"])
    if "test" in lists:
        data["test"] = scorer.open(lists["test"])
    items = settings.evaluation_items
    scores = {split: scorer.scores(data[split], items=items) for split in lists if split != "train"}
    values = {
        split: metrics_of_scores(
            data[split], scores[split], experiment.metrics, convention, items=items
        )
        for split in scores
    }
    table: dict[str, dict[str, float]] = {
        split: means(values[split], convention) for split in values
    }
    reported = {f"{split}_{name}": one for split in table for name, one in table[split].items()}
    if not first():
        return reported
    tested = done.best_epoch if settings.select == "best" else done.epoch
    if "test" in lists:
        write_queries(folder / "queries.csv", lists["test"], values["test"])
        write_scores(folder / "scores.csv", lists["test"], scores["test"].cpu().numpy())
    library = {model.library: model.version} if isinstance(model, BoostedTrees) else {}
    write_results(
        folder,
        {
            "choices": dict(choices),
            **{split: table[split] for split in ("test", "vali") if split in table},
            "untrained_vali": {
                name[5:]: value
                for name, value in done.history[0].items()
                if name.startswith("vali_")
            },
            "convention": {**asdict(convention), "text": convention.describe()},
            "select": settings.select,
            "select_on": settings.select_on,
            "selected_epoch": tested,
            "best_epoch": done.best_epoch,
            "crossfit": None if worth is None else worth.value,
            "crossfit_error": None if worth is None else worth.error,
            "epochs": done.epoch,
            "seed": settings.seed,
            "dataset": experiment.dataset.name,
            "fold": experiment.dataset.fold,
            "data": {split: _description(part) for split, part in lists.items()},
            "features": experiment.dataset.width,
            "parameters": parameters_of(model),
            "wall_seconds": done.wall_seconds,
            "device": describe_device(device),
            "device_type": device.type,
            "threads": torch.get_num_threads(),
            "processes": size(),
            "computed_on": list(fitted.computed_on),
            "versions": versions() | library,
            "commit": commit(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "protocol": OmegaConf.to_container(cfg, resolve=True),
        },
    )
    chosen_values = {"selected_vali" if split == "vali" else split: table[split] for split in table}
    tracking.finish(
        {f"{k}_{name}": v for k, part in chosen_values.items() for name, v in part.items()}
    )
    result = (
        f"{metric_table(table)}\n{_worth(worth, settings.select_on)}"
        f"{convention.describe()}; weights of epoch {tested} "
        f"(select={settings.select}); {time.perf_counter() - started:.0f} s\nkept in {folder}"
    )
    (_log_file if printed else log).info("\n%s", result)
    if printed:
        print(result)
    return reported


def _advise(lines: Iterator[str]) -> None:
    for line in lines:
        log.info("advice: %s", line)


def _worth(crossfit: Crossfit | None, metric: str) -> str:
    """A line that says what the choice of the best epoch is worth; empty: nothing was chosen."""
    if crossfit is None:
        return ""
    return (
        f"crossfit vali {metric} {crossfit.value:.4f} ± {crossfit.error:.4f}: the epoch chosen on "
        "one half of the lists, measured on the other\n"
    )


def _params(cfg: DictConfig, choices: Mapping[str, str]) -> dict[str, Any]:
    """The config of a run as trackers keep it: flat, with the choice of each group."""
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    of_user = (*keys(Resumed.OWN), *keys(Kind.PROPOSAL))
    return {**choices, **flat({key: one for key, one in plain.items() if key not in of_user})}


def metric_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """A table with a row per metric and a column per split or convention."""
    metrics = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(column.get(name) for column in columns.values())] for name in metrics]
    return tabulate(rows, ["metric", *columns], floatfmt=".4f", tablefmt="simple")


def _description(lists: Lists) -> dict[str, Any]:
    return {
        "digest": lists.digest,
        "lists": len(lists),
        "items": lists.items,
        "empty_lists": int(lists.empty.sum()),
        "missing_values": lists.missing,
    }
