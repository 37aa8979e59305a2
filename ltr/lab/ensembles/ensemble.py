"""Make an ensemble of finished runs, as a run folder that most other commands accept."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from ltr.arrays import Doubles
from ltr.atomic import atomic_write, make_folder, write_csv
from ltr.cli.keys import of_method
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError
from ltr.experiment.measure import measure
from ltr.experiment.report import crossfit_entries, describe_model
from ltr.experiment.run_folder import RunFolder, versions
from ltr.lab.ensembles.weights import (
    EQUAL,
    VALI,
    SplitHalfScores,
    WeightedEnsemble,
    fixed_weights,
    tuned_weights,
)
from ltr.metrics.crossfit import HALVINGS
from ltr.metrics.ties import TiesAveraged
from ltr.parts.components import build_convention, build_metrics
from ltr.parts.ensemble import standardised_in_lists
from ltr.parts.scorer import Scorer, check_columns, ensemble_of, scorer_of
from ltr.parts.trust import relocate_paths
from ltr.training.checkpoint import (
    ENSEMBLE,
    HALVES,
    MEMBER,
    checkpoint_errors,
    load_checkpoint,
    read_half_choices,
    save_checkpoint,
    selected_checkpoint,
)
from ltr.training.device import pick_device
from ltr.training.evaluation import metrics_of_scores, predict
from ltr.training.monitor import Progress

_TARGET = "ltr.parts.ensemble.Ensemble"

Weights = (
    str | tuple[float, ...]
)  # "equal", "vali", or a number for each member; the numbers sum to 1


@dataclass(frozen=True)
class EnsembleMember:
    """A finished run with its selected model."""

    run: RunFolder
    checkpoint: Mapping[str, Any]  # the content of the file with the selected weights
    scorer: Scorer

    @property
    def results(self) -> dict[str, Any]:
        """The content of the run's ``results.json``."""
        return self.run.results


class WeightChoice(NamedTuple):
    """The ensemble with the chosen weights and, for comparison, the one with equal weights."""

    chosen: WeightedEnsemble
    equal: WeightedEnsemble


def make_ensemble(
    runs: Sequence[RunFolder],
    weights: Weights,
    folder: Path,
    *,
    device: str,
    items: int,
    data_dir: str | None,
    cache_dir: str,
    trust: Sequence[str] = (),
    identity: str | None = None,
) -> dict[str, Any]:
    """Make an ensemble and write its run folder.

    The checkpoint of the ensemble holds the weights of all members, so the folders of the members
    may be deleted. The first run decides which metrics are computed, and by which metric the
    weights are chosen on the validation lists.

    Args:
        runs: the members.
        weights: ``"equal"``, ``"vali"`` (tuned on the validation lists), or a number for each run;
            the numbers must sum to 1.
        folder: the run folder to write; it must not exist.
        device: ``auto``, ``cpu`` or ``cuda``.
        items: the maximum number of items in a batch, including padding.
        data_dir: the folder of the data set; if None, that of the first run.
        cache_dir: the folder of parsed data.
        trust: the user's own modules that may be imported when the runs are loaded.
        identity: a hash by which a table recognises the ensemble, if a table makes it.

    Returns:
        The content of the ensemble's ``results.json``.

    Raises:
        ConfigError, DataError, CheckpointError: the runs cannot be combined, or cannot be read.
        TrainingError: a score is not finite.
    """
    started = time.perf_counter()
    check_combinable(runs)
    members = load_members(runs, pick_device(device), trust)
    first = members[0]
    config = first.scorer.run_config(
        ["dataset", "metrics"], data_dir=data_dir, cache_dir=cache_dir, trust=trust
    )
    metrics = build_metrics(config)
    convention = build_convention(config)
    lists = _read_lists(members, config.dataset)
    scorer = _scorer_of_raw_features(first, lists["vali"], str(config.data_dir))
    data = {split: scorer.open(split_lists) for split, split_lists in lists.items()}
    select_on = first.results["select_on"]
    metric = TiesAveraged(next(metric for metric in metrics if str(metric) == select_on))

    def measure_vali(scores: Tensor) -> Doubles:
        values = metrics_of_scores(data["vali"], scores, [metric], convention, items=items)
        return values[str(metric)]

    choice = choose_weights(weights, members, data["vali"], measure_vali, items)
    model = ensemble_of([member.scorer for member in members], choice.chosen.weights)
    scorer = replace(scorer, model=model.to(scorer.device).eval())
    choices = _describe_choices(members, weights)
    checkpoint = ensemble_checkpoint(scorer, members, choice.chosen.weights, choices, folder)
    make_folder("output", folder)
    if identity is not None:
        atomic_write(RunFolder(folder).note, identity + "\n")
    save_checkpoint(folder / ENSEMBLE, checkpoint)
    write_csv(folder / "history.csv", [], ["epoch"])  # an ensemble has no epochs
    measured = measure(metrics, convention, items, scorer, data)
    results = describe_model(scorer, lists, measured, convention) | ensemble_results(
        members, choice, choices, weights, wall_seconds=time.perf_counter() - started
    )
    RunFolder(folder).write(results, lists, measured)
    return results


def load_members(
    runs: Sequence[RunFolder], device: torch.device, trust: Sequence[str]
) -> list[EnsembleMember]:
    """Load the selected model of each run.

    Raises:
        CheckpointError: a run has no readable checkpoint.
        ConfigError: the config of a run names code that is not trusted.
    """
    checkpoints = [selected_checkpoint(run.folder, device) for run in runs]
    return [
        EnsembleMember(run, checkpoint, scorer_of(file, checkpoint, device, trust))
        for run, (file, checkpoint) in zip(runs, checkpoints, strict=True)
    ]


def _read_lists(members: Sequence[EnsembleMember], dataset: DictConfig) -> dict[str, Lists]:
    """Read the validation lists, and the test lists if the runs were tested.

    Raises:
        DataError: the lists are not those of the runs, or their columns are not those of a member.
    """
    first = members[0]
    recorded = first.results["data"]
    splits = [split for split in ("vali", "test") if split in recorded]
    lists = {split: first.scorer.read(dataset, split)[1] for split in splits}
    for split, split_lists in lists.items():
        if split_lists.digest != recorded[split]["digest"]:
            raise DataError(
                f"the {split} lists have changed since {first.run.folder} was trained: restore the "
                "data, or train the members of the ensemble again"
            )
        for member in members:
            check_columns(split_lists, member.scorer.columns)
    return lists


def _scorer_of_raw_features(first: EnsembleMember, vali: Lists, data_dir: str) -> Scorer:
    """Return the scorer of the ensemble, but with the model of its first member.

    The features stay raw, because each member has its own transform.
    """
    config = {
        **first.scorer.config,
        "model": {"_target_": _TARGET},
        "loss": None,
        "precision": "float32",  # of the ensemble; each member has its own precision
        "data_dir": data_dir,
    }
    transform = no_transform(vali, missing="keep")
    transform = replace(transform, codes=first.scorer.transform.codes)
    digests = {split: entry["digest"] for split, entry in first.results["data"].items()}
    return replace(first.scorer, transform=transform, config=config, data=digests)


def choose_weights(
    weights: Weights,
    members: Sequence[EnsembleMember],
    vali: ItemTensors,
    measure_vali: Callable[[Tensor], Doubles],
    items: int,
) -> WeightChoice:
    """Return the ensemble with ``weights``, and the one with equal weights.

    Their ``crossfit`` is None if the epoch of a member was chosen on all validation lists, or if
    the members have different ``select_on``.

    Args:
        weights: ``equal``, ``vali``, or a number for each member.
        members: the loaded runs.
        vali: the validation lists.
        measure_vali: takes scores ``[items]``; returns the metric of each list, ``[lists]``.
        items: the maximum number of items in a batch, including padding.
    """
    scores = []
    has_crossfit = len({member.results["select_on"] for member in members}) == 1
    for member in members:
        member_scores = _half_scores(member, vali)
        if member_scores is None:
            has_crossfit = False
            member_scores = _selected_scores(member, vali, items)
        scores.append(member_scores)
    equal = fixed_weights(EQUAL, scores, measure_vali)
    if weights == VALI:
        chosen = tuned_weights(scores, measure_vali, vali.lengths)
    elif weights == EQUAL:
        chosen = equal
    else:
        chosen = fixed_weights(weights, scores, measure_vali)
    if not has_crossfit:
        return WeightChoice(chosen._replace(crossfit=None), equal._replace(crossfit=None))
    return WeightChoice(chosen, equal)


def _half_scores(member: EnsembleMember, vali: ItemTensors) -> SplitHalfScores | None:
    """Return a member's scores at its best epochs on halves of the validation lists.

    Return None if the run has no such scores; ensembles and runs of earlier versions have none.
    """
    file = member.run.folder / "last.pt"
    if not file.is_file():
        return None
    checkpoint = load_checkpoint(file)
    if HALVES not in checkpoint:
        return None
    with checkpoint_errors(file):
        epochs, scores = read_half_choices(checkpoint[HALVES])
        if any(len(epoch_scores) != len(vali.labels) for epoch_scores in scores.values()):
            raise ValueError("scores of other lists")
        standardised = {
            epoch: standardised_in_lists(epoch_scores, vali)
            for epoch, epoch_scores in scores.items()
        }
        return SplitHalfScores(epochs, standardised)


def _selected_scores(member: EnsembleMember, vali: ItemTensors, items: int) -> SplitHalfScores:
    """Return a member's scores with its selected weights, as if they were best on all halves."""
    model = ensemble_of([member.scorer], [1.0]).to(member.scorer.device)
    epochs = np.zeros((HALVINGS, 2), dtype=np.int64)
    return SplitHalfScores(epochs, {0: predict(model, vali, items=items).double()})


def ensemble_checkpoint(
    scorer: Scorer,
    members: Sequence[EnsembleMember],
    weights: Sequence[float],
    choices: Mapping[str, str],
    folder: Path,
) -> dict[str, Any]:
    """Return the content of the ensemble's checkpoint.

    Args:
        scorer: the ensemble.
        members: its members.
        weights: the weight of each member.
        choices: what ``results.json`` says about the model, the members and the weights.
        folder: the run folder, to which paths in the config are relative.
    """
    return scorer.state() | {
        "model": {},
        "config": relocate_paths(scorer.config, folder),
        "choices": dict(choices),
        "progress": asdict(Progress()),
        "members": [_member_entry(member, folder) for member in members],
        "weights": list(weights),
    }


def _member_entry(member: EnsembleMember, folder: Path) -> dict[str, Any]:
    """Return what the ensemble's checkpoint holds about a member."""
    entry = {name: member.checkpoint[name] for name in MEMBER if name in member.checkpoint}
    return entry | {"config": relocate_paths(member.scorer.config, folder)}


def ensemble_results(
    members: Sequence[EnsembleMember],
    choice: WeightChoice,
    choices: Mapping[str, str],
    weights: Weights,
    *,
    wall_seconds: float,
) -> dict[str, Any]:
    """Return the entries of the ensemble's ``results.json`` about its members.

    Args:
        members: the loaded runs.
        choice: the ensembles with chosen and with equal weights.
        choices: the model, the members and the weights, as strings.
        weights: ``equal``, ``vali``, or a number for each member.
        wall_seconds: the time that it took to make the ensemble.
    """
    shared = members[0].results
    select_on = shared["select_on"]
    selects = {member.results["select"] for member in members}
    library_versions: dict[str, str] = {}  # including the tree libraries of members
    for member in members:
        library_versions |= member.results["versions"]
    methods = [of_method(member.results["protocol"]) for member in members]
    return {
        "choices": dict(choices),
        "select": "best" if "best" in selects else "last",
        "select_on": select_on,
        "selected_epoch": None,
        **crossfit_entries(choice.chosen.crossfit),
        "crossfit_equal": None if choice.equal.crossfit is None else choice.equal.crossfit.value,
        **{key: shared[key] for key in ("seed", "dataset", "fold", "data", "features")},
        "members": [
            {
                "member": describe_run(member.results["choices"]),
                "seed": member.results["seed"],
                f"vali {select_on}": member.results["vali"].get(select_on),
                "weight": weight,
                "run": member.run.folder.name,
            }
            for member, weight in zip(members, choice.chosen.weights, strict=True)
        ],
        "parameters": sum(member.results["parameters"] for member in members),
        "wall_seconds": wall_seconds,
        "versions": library_versions | versions(),
        # what ensembles that differ only in seed or fold share: methods of members, weights rule
        "protocol": {
            **shared["protocol"],
            "loss": None,
            "model": {"_target_": _TARGET, "weights": _plain(weights), "members": methods},
        },
    }


def _plain(weights: Weights) -> str | list[float]:
    return weights if isinstance(weights, str) else list(weights)


def _describe_choices(members: Sequence[EnsembleMember], weights: Weights) -> dict[str, str]:
    """Return the model, the members and the weights of the ensemble, as strings."""
    counts = Counter(describe_run(member.results["choices"]) for member in members)
    names = [f"{count} {name}" if count > 1 else name for name, count in counts.items()]
    return {
        "model": "ensemble",
        "members": " + ".join(names),
        "weights": str(_plain(weights)),
    }


def check_combinable(runs: Sequence[RunFolder]) -> None:
    """Raise ``ConfigError`` if the scores of ``runs`` cannot be averaged and measured together."""
    if len(runs) < 2:
        raise ConfigError(
            f"an ensemble needs at least two runs, got {len(runs)}: name more runs, or a "
            "folder that contains several"
        )
    first = runs[0]
    expected = _common_settings(first)
    for run in runs[1:]:
        settings = _common_settings(run)
        differing = [name for name, value in settings.items() if value != expected[name]]
        if differing:
            raise ConfigError(
                f"{first.folder} and {run.folder} differ in {differing[0]}: an ensemble needs runs "
                "with the same data set, fold, features and convention"
            )


def _common_settings(run: RunFolder) -> dict[str, Any]:
    """Return what all members of an ensemble have in common."""
    return {
        "fold": run.repeat,
        "lists": {split: entry["digest"] for split, entry in run.results["data"].items()},
        "features": run.results["features"],
        "convention": run.convention[0],
    }


def describe_run(choices: Mapping[str, Any]) -> str:
    """Return a short description of a run from its ``choices``: model and loss.

    >>> describe_run({"model": "mlp", "loss": "listnet"}), describe_run({"model": "lightgbm"})
    ('mlp listnet', 'lightgbm')
    """
    names = (choices.get(group) for group in ("model", "loss", "members"))
    return " ".join(str(name) for name in names if name not in (None, "None"))
