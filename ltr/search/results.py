"""What a search has found: a table, what mattered, a plot, and the best settings as a file."""

import datetime
import shlex
from pathlib import Path
from typing import Any

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from matplotlib import pyplot
from omegaconf import OmegaConf
from optuna.trial import FrozenTrial, TrialState
from tabulate import tabulate

from ltr.analysis.style import save_figure, style
from ltr.atomic import atomic_write
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.keys import Kind, keys
from ltr.errors import ConfigError, as_started
from ltr.search.definition import Search
from ltr.search.space import as_text
from ltr.search.study import experimental, finished, overrides_of, reason, study_lock

_FEWEST = 5  # trials done, below which importances say nothing
_WORDS = {"COMPLETE": "done", "FAIL": "cut off"}
_COPY = "best.yaml"  # in the folder of the search: what it wrote last


def best_of(trials: list[FrozenTrial]) -> FrozenTrial | None:
    """The best trial that was trained to its end; the first of equal ones."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(done, key=lambda trial: trial.value or 0, default=None)


def own_values(trials: list[FrozenTrial]) -> FrozenTrial | None:
    """The trial of the config's own values, where it was trained to its end."""
    own = (trial for trial in trials if trial.user_attrs.get("default"))
    return next((trial for trial in own if trial.state == TrialState.COMPLETE), None)


def worth(trial: FrozenTrial) -> float | None:
    """Its best epoch on vali: of a pruned trial, the mean over the trainings it had begun."""
    return trial.user_attrs.get("best_epoch", trial.value)


def sentence(trial: FrozenTrial, search: Search) -> str:
    """How a finished trial ended, and its settings."""
    pruned = trial.user_attrs.get("pruned")
    if (failed := reason(trial)) is not None:
        head = f"failed: {failed}"
    elif pruned:
        head = f"{search.metric} {worth(trial):.4f} on vali, pruned {pruned}"
    else:
        head = f"{search.value_name} {trial.value:.4f} on vali"
    settings = " ".join(overrides_of(search, trial)) or "the config's own values"
    return f"{head}  {settings}"


def write_results(study: optuna.Study, search: Search) -> None:
    """Write ``trials.csv``, a row per trial, those cut off too, and ``history.png``, ``.svg``."""
    trials = study.get_trials(deepcopy=False)
    frame = study.trials_dataframe(("number", "state", "value", "duration", "params"))
    frame = frame.rename(columns=lambda name: name.removeprefix("params_"))
    frame.insert(2, f"vali {search.metric}", [worth(trial) for trial in trials])
    frame["state"] = [
        "failed" if reason(trial) else _WORDS.get(state, state.lower())
        for trial, state in zip(trials, frame.state, strict=True)
    ]
    cut_off = frame.state == "cut off"  # it would last until that was noticed
    frame["seconds"] = frame.pop("duration").dt.total_seconds().round(1).mask(cut_off)
    values = frame.pop("value").where(frame.state == "done")
    if search.select_value == "crossfit":
        frame.insert(3, search.value_name, values)
    frame["reason"] = [reason(trial) or trial.user_attrs.get("pruned", "") for trial in trials]
    frame = frame.rename(columns={"number": "trial"})
    atomic_write(search.folder / "trials.csv", frame.to_csv(index=False, lineterminator="\n"))
    if best_of(finished(study)):
        with style(), experimental():
            axes = optuna.visualization.matplotlib.plot_optimization_history(
                study, target_name=f"{search.value_name} on vali"
            )
            axes.set_title(f"{search.name}: {data_of(search)}", loc="left", fontsize=9)
            figure = axes.get_figure(root=True)
            assert figure is not None
            figure.set_size_inches(8, 4)
            figure.set_layout_engine("constrained")
            save_figure(figure, search.folder, "history", dpi=150)
            pyplot.close(figure)


def importances(study: optuna.Study, search: Search) -> dict[str, float]:
    """The share of the variance of the value that each key explains (fANOVA), largest first.

    Of the trials that were trained to their end; empty where there are too few, or all are equal.
    Hutter, Hoos and Leyton-Brown, 2014.
    """
    names = list(search.space)
    done = [trial for trial in finished(study) if set(names) <= set(trial.params)]
    values = [trial.value for trial in done if trial.state == TrialState.COMPLETE]
    if len(values) < _FEWEST or len(set(values)) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator, params=names)


def summary(study: optuna.Study, search: Search) -> str:
    """The end of a search in words: counts, the best trial beside the first, importances."""
    trials = finished(study)
    lines = [f"{len(trials)} trials: {_counts(trials)}"]
    best, first = best_of(trials), own_values(trials)
    if best is None:
        return "\n".join([*lines, "no trial was trained to its end", reason(trials[0]) or ""])
    lines.append(f"best: {search.value_name} on vali {best.value:.4f}, trial {best.number}")
    if first is not None and first.number != best.number:
        lines.append(f"the config's own values: {first.value:.4f}")
    weights = importances(study, search)
    chosen = dict(item.partition("=")[::2] for item in overrides_of(search, best))
    rows = [
        [
            key,
            chosen.get(key, as_text(search.default(key))),
            as_text(search.default(key)),
            str(space),
        ]
        + ([f"{weights[key]:.2f}"] if weights else [])
        for key, space in sorted(search.space.items(), key=lambda item: -weights.get(item[0], 0))
    ]
    head = ["key", "best", "was", "space", "importance"][: len(rows[0])]
    return "\n".join([*lines, "", tabulate(rows, head, disable_numparse=True)])


def _counts(trials: list[FrozenTrial]) -> str:
    states = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    counts = {word: sum(trial.state == state for trial in trials) for word, state in states.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def best_path(search: Search) -> Path:
    """Where the best configuration goes; ``ConfigError`` if train.py cannot find it there."""
    if search.write is None:
        return (own_configs() or CONFIGS) / "experiment" / f"{search.name}.yaml"
    path = Path(search.write)
    if path.suffix != ".yaml" or path.absolute().parent.name != "experiment":
        raise ConfigError(
            f"write={search.write}: give FOLDER/experiment/NAME.yaml; "
            f"{as_started('train')} --config-dir FOLDER experiment=NAME reads it"
        )
    return path


def check_free(path: Path, folder: Path) -> None:
    """Raise ``ConfigError`` where ``path`` holds what the search in ``folder`` did not write."""
    copy = folder / _COPY
    if path.exists() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
        raise ConfigError(
            f"{path} is there and is not what this search wrote: give write=FOLDER/experiment/"
            "NAME.yaml, or move it away"
        )


def write_best(path: Path, search: Search, study: optuna.Study) -> str:
    """Write the best settings to ``path``, with a copy beside the study; the command for it."""
    best = best_of(finished(study))
    assert best is not None
    command = f"{as_started('train')} experiment={path.stem}"
    if path.absolute().parent.parent not in (CONFIGS, Path("configs").absolute()):
        where = shlex.quote(str(path.parent.parent))
        command = f"{as_started('train')} --config-dir {where} experiment={path.stem}"
    with study_lock(search):
        check_free(path, search.folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        for place in (search.folder / _COPY, path):
            atomic_write(place, best_text(command, search, study, best))
    return command


def best_text(command: str, search: Search, study: optuna.Study, best: FrozenTrial) -> str:
    """The file: what was searched in comments, then groups and values."""
    searched = overrides_of(search, best)
    every = OverridesParser.create().parse_overrides([*search.overrides, *searched])
    given: dict[str, Any] = {one.key_or_group: one.value() for one in every}
    given = {key: value for key, value in given.items() if key not in keys(Kind.PLACE)}
    _, choices = search.trial(searched)
    base = given.pop("experiment", None)
    groups = ("dataset", "model", "loss", "optimizer", "schedule")
    named = {group: choices[group] for group in groups if group in choices}
    named |= {key: given.pop(key) for key in list(given) if key in choices}
    defaults: list[Any] = [] if base is None else [base]
    defaults += [{f"override /{group}": choice} for group, choice in named.items()]
    content = OmegaConf.create({"defaults": defaults})
    for key, value in given.items():
        OmegaConf.update(content, key, value)
    trials = finished(study)
    own, today = own_values(trials), datetime.date.today().isoformat()
    places = (*keys(Kind.PLACE), "dry_run", "storage")
    typed = [one for one in search.arguments if one.partition("=")[0] not in places]
    lines = [
        "# @package _global_",
        f"# {command}",
        f"# {search.value_name} {best.value:.4f} on vali of {data_of(search)}: trial {best.number}",
        f"# {_counts(trials)}; select_value={search.select_value}; {today}"
        + (f"; with the values it began from {own.value:.4f}" if own is not None else ""),
        f"# {as_started('search')} {shlex.join(typed)}",
    ]
    return "\n".join(lines) + "\n" + OmegaConf.to_yaml(content)


def data_of(search: Search) -> str:
    """The data set, folds and seeds that a value is of."""
    parts = [str(search.config.dataset.name)]
    own = search.config.dataset.get("fold")
    folds = dict.fromkeys(own if r.fold is None else r.fold for r in search.repeats)
    seeds = dict.fromkeys(r.seed for r in search.repeats)
    for word, several in (("fold", folds), ("seed", seeds)):
        if None not in several:
            parts.append(f"{word}{'s' * (len(several) > 1)} {' '.join(map(str, several))}")
    return ", ".join(parts) + (" (mean)" if len(search.repeats) > 1 else "")
