"""What a search leaves: every trial as a row, what mattered, the history as a plot."""

from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState
from tabulate import tabulate

from ltr.search.claims import finished, reason, worth
from ltr.search.plan import Plan
from ltr.search.space import as_text
from ltr.search.watch import WORDS, best_of
from ltr.whole import write_csv

_FEWEST = 5  # trials done, below which importances say nothing


def write_trials(path: Path, study: optuna.Study, plan: Plan) -> None:
    """Write a row per trial, those cut off included, atomically."""
    metric = str(plan.config.select_on)
    rows = []
    for trial in study.get_trials(deepcopy=False):
        failed = reason(trial)
        word = "failed" if failed else WORDS.get(trial.state, "cut off")
        took = None if word == "cut off" else trial.duration  # that would be until it was noticed
        rows.append(
            {
                "trial": trial.number,
                "state": word,
                f"vali {metric}": worth(trial),
                "seconds": None if took is None else round(took.total_seconds(), 1),
                **{key: trial.params.get(key) for key in plan.space},
                "reason": failed or trial.user_attrs.get("pruned", ""),
            }
        )
    write_csv(path, rows)


def importances(study: optuna.Study, plan: Plan) -> dict[str, float]:
    """The share of the variance of the value that each key explains (fANOVA), largest first.

    Of the trials that were trained to their end; empty where there are too few, or all are equal.
    Hutter, Hoos and Leyton-Brown, 2014.
    """
    names = list(plan.space)
    done = [
        trial
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if set(names) <= set(trial.params)
    ]
    if len(done) < _FEWEST or len({trial.value for trial in done}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator, params=names)


def summary(study: optuna.Study, plan: Plan) -> str:
    """The end of a search in words: counts, the best trial beside the first, importances."""
    trials = finished(study)
    count = {state: sum(trial.state == state for trial in trials) for state in TrialState}
    metric = f"{plan.config.select_on} on vali"
    lines = [
        f"{len(trials)} trials: {count[TrialState.COMPLETE]} done, "
        f"{count[TrialState.PRUNED]} pruned, {count[TrialState.FAIL]} failed"
    ]
    best = best_of(trials)
    if best is None:
        failed = [reason(trial) for trial in trials if reason(trial)]
        return "\n".join([*lines, "no trial was trained to its end", *map(str, failed[:1])])
    first = next((trial for trial in trials if trial.user_attrs.get("default")), None)
    lines.append(f"best: {metric} {best.value:.4f}, trial {best.number}")
    if first is not None and first.state == TrialState.COMPLETE and first.number != best.number:
        lines.append(f"the config's own values: {first.value:.4f}")
    weights = importances(study, plan)
    rows = [
        [key, _chosen(best, key, plan), as_text(plan.default(key)), str(distribution)]
        + ([f"{weights[key]:.2f}"] if weights else [])
        for key, distribution in plan.space.items()
    ]
    rows.sort(key=lambda row: -weights.get(row[0], 0))
    head = ["key", "best", "was", "space"] + (["importance"] if weights else [])
    return "\n".join([*lines, "", tabulate(rows, head, disable_numparse=True)])


def _chosen(best: FrozenTrial, key: str, plan: Plan) -> str:
    overrides = dict(item.partition("=")[::2] for item in best.user_attrs["overrides"])
    return overrides.get(key, as_text(plan.default(key)))
