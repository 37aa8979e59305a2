"""Make an ensemble of finished runs, as a run folder that every other command accepts."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from torch import Tensor

from ltr.arrays import Doubles
from ltr.atomic import atomic_write, make_folder, write_csv
from ltr.console.keys import of_method, texts
from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError
from ltr.experiment.measure import measure
from ltr.experiment.report import crossfit_entries, describe_model
from ltr.experiment.run_folder import RunFolder, versions
from ltr.metrics.crossfit import HALVINGS
from ltr.metrics.ties import TiesAveraged
from ltr.scorers.ensemble import standardised_in_lists
from ltr.scorers.parts import make_convention, make_metrics
from ltr.scorers.scorer import Scorer, check_columns, ensemble_of, scorer_of
from ltr.scorers.trust import seen_from
from ltr.scorers.weights import (
    EQUAL,
    VALI,
    HalfScores,
    given_weights,
    weights_on_vali,
)
from ltr.training.checkpoint import (
    ENSEMBLE,
    HALVES,
    MEMBER,
    fitting,
    half_choices,
    load_checkpoint,
    save_checkpoint,
    selected_checkpoint,
)
from ltr.training.device import pick_device
from ltr.training.evaluation import metrics_of_scores, predict
from ltr.training.monitor import Progress

_TARGET = "ltr.scorers.ensemble.Ensemble"


def make_ensemble(
    runs: Sequence[RunFolder],
    weights: str | tuple[float, ...],
    folder: Path,
    cfg: DictConfig,
    identity: str | None = None,
) -> dict[str, Any]:
    """Make an ensemble and write its run folder; return the content of its ``results.json``.

    The checkpoint of the ensemble holds the weights of all members, so their folders may be
    deleted. The first run decides which metrics are computed, and by which metric the weights are
    chosen on the validation lists.

    Args:
        runs: the members.
        weights: ``"equal"``, ``"vali"`` (chosen on the validation lists), or one per run, with the
            sum 1.
        folder: the run folder to write; it must not exist.
        cfg: a config with ``device``, ``evaluation_items``, ``data_dir``, ``cache_dir``, ``trust``.
        identity: a hash by which a table finds the ensemble again.

    Raises:
        ConfigError, DataError, CheckpointError: the runs do not fit together, or cannot be read.
        TrainingError: a score is not finite.
    """
    started = time.perf_counter()
    check_alike(runs)
    device, items, trust = pick_device(cfg.device), cfg.evaluation_items, texts(cfg, "trust")
    read = [selected_checkpoint(run.folder, device) for run in runs]
    members = [scorer_of(file, content, device, trust) for file, content in read]
    first, shared = members[0], runs[0].results
    select_on = shared["select_on"]
    own = first.own_config(cfg, ["dataset", "metrics"])
    metrics, convention = make_metrics(own), make_convention(own)
    splits = [split for split in ("vali", "test") if split in shared["data"]]
    lists = {split: first.read(own.dataset, split)[1] for split in splits}
    for split, part in lists.items():
        if part.digest != shared["data"][split]["digest"]:
            raise DataError(
                f"{split} has changed since {runs[0].folder} was trained: restore the data, or "
                "train its members again"
            )
        for one in members:
            check_columns(part, one.columns)
    config = {
        **first.config,
        "model": {"_target_": _TARGET},
        "loss": None,
        "precision": "float32",  # that of the ensemble; each member has its own
        "data_dir": str(own.data_dir),
    }
    # The features stay raw, as each member has its own transform.
    transform = replace(no_transform(lists["vali"], missing="keep"), codes=first.transform.codes)
    digests = {split: part["digest"] for split, part in shared["data"].items()}
    scorer = Scorer(first.model, transform, first.columns, config, digests, device)
    data = {split: scorer.open(part) for split, part in lists.items()}
    by = TiesAveraged(next(metric for metric in metrics if str(metric) == select_on))

    def values_that_choose(scores: Tensor) -> Doubles:
        values = metrics_of_scores(data["vali"], scores, [by], convention, items=items)
        return values[str(by)]

    found = [
        _on_vali(run, one, data["vali"], items) for run, one in zip(runs, members, strict=True)
    ]
    on_vali = [scores for scores, _ in found]
    equal = given_weights(EQUAL, on_vali, values_that_choose)
    if weights == VALI:
        weighed = weights_on_vali(on_vali, values_that_choose, lists["vali"].lengths)
    else:
        weighed = equal if weights == EQUAL else given_weights(weights, on_vali, values_that_choose)
    same = len({run.results["select_on"] for run in runs}) == 1  # or else halves differ
    if not same or not all(by_half for _, by_half in found):  # epochs were chosen on all of vali
        equal, weighed = (one._replace(crossfit=None) for one in (equal, weighed))
    chosen = weighed.weights
    scorer = replace(scorer, model=ensemble_of(members, chosen).to(device).eval())

    plain = weights if isinstance(weights, str) else list(weights)
    names = [described(run.results["choices"]) for run in runs]
    counts = Counter(names).items()
    choices = {
        "model": "ensemble",
        "members": " + ".join(f"{n} {name}" if n > 1 else name for name, n in counts),
        "weights": str(plain),
    }
    content = scorer.state() | {
        "model": {},
        "config": seen_from(config, folder),
        "choices": choices,
        "progress": asdict(Progress()),
        "members": [
            {name: part[name] for name in MEMBER if name in part}
            | {"config": seen_from(one.config, folder)}
            for one, (_, part) in zip(members, read, strict=True)
        ],
        "weights": list(chosen),
    }
    make_folder("output", folder)
    if identity is not None:
        atomic_write(RunFolder(folder).note, identity + "\n")
    save_checkpoint(folder / ENSEMBLE, content)
    write_csv(folder / "history.csv", [], ["epoch"])  # it has no epochs
    methods = [of_method(run.results["protocol"]) for run in runs]
    measured = measure(metrics, convention, items, scorer, data)
    results = describe_model(scorer, lists, measured, convention) | {
        "choices": choices,
        "select": "best" if "best" in {run.results["select"] for run in runs} else "last",
        "select_on": select_on,
        "selected_epoch": None,
        **crossfit_entries(weighed.crossfit),
        "crossfit_equal": None if equal.crossfit is None else equal.crossfit.value,
        **{key: shared[key] for key in ("seed", "dataset", "fold", "data", "features")},
        "members": [
            {
                "member": name, "seed": run.results["seed"],
                f"vali {select_on}": run.results["vali"].get(select_on),
                "weight": weight, "run": run.folder.name,
            }
            for name, run, weight in zip(names, runs, chosen, strict=True)
        ],
        "parameters": sum(run.results["parameters"] for run in runs),
        "wall_seconds": time.perf_counter() - started,
        # including the libraries of members that are trees
        "versions": {k: v for run in runs for k, v in run.results["versions"].items()} | versions(),
        # what ensembles that differ only in seed or fold share: methods of members, weights rule
        "protocol": {
            **shared["protocol"], "loss": None,
            "model": {"_target_": _TARGET, "weights": plain, "members": methods},
        },
    }  # fmt: skip
    RunFolder(folder).write(results, lists, measured)
    return results


def _on_vali(
    run: RunFolder, member: Scorer, vali: ItemTensors, items: int
) -> tuple[HalfScores, bool]:
    """Return the scores of a member on the validation lists, and whether they are those of epochs
    that halves of the lists choose. If not, they are those of the selected weights: ensembles and
    runs of earlier versions keep no others.
    """
    last = run.folder / "last.pt"
    if last.is_file() and HALVES in (content := load_checkpoint(last)):
        with fitting(last):
            epochs, scores = half_choices(content[HALVES])
            if any(len(one) != len(vali.labels) for one in scores.values()):
                raise ValueError("scores of other lists")
            scores = {epoch: standardised_in_lists(one, vali) for epoch, one in scores.items()}
            return HalfScores(epochs, scores), True
    alone = ensemble_of([member], [1.0]).to(member.device)
    scores = {0: predict(alone, vali, items=items).double()}
    return HalfScores(np.zeros((HALVINGS, 2), dtype=np.int64), scores), False


def check_alike(runs: Sequence[RunFolder]) -> None:
    """Raise ``ConfigError`` if the scores of ``runs`` cannot be averaged and measured together."""
    if len(runs) < 2:
        raise ConfigError("an ensemble takes at least two runs: give more, or a folder of runs")

    def what(run: RunFolder) -> dict[str, Any]:
        return {
            "fold": run.repeat,
            "lists": {split: part["digest"] for split, part in run.results["data"].items()},
            "features": run.results["features"],
            "convention": run.convention[0],
        }

    first = what(runs[0])
    for other in runs[1:]:
        if unlike := [name for name, value in what(other).items() if value != first[name]]:
            raise ConfigError(
                f"{runs[0].folder} and {other.folder} differ in {unlike[0]}: an ensemble takes "
                "runs on the same data set, fold, features and convention"
            )


def described(choices: Mapping[str, Any]) -> str:
    """Return a short description of a run from its ``choices``: model and loss.

    >>> described({"model": "mlp", "loss": "listnet"}), described({"model": "lightgbm"})
    ('mlp listnet', 'lightgbm')
    """
    given = (choices.get(group) for group in ("model", "loss", "members"))
    return " ".join(str(choice) for choice in given if choice not in (None, "None"))
