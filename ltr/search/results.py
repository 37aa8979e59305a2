"""What a search has found: lines while it runs, then a table, what mattered, and a plot."""

from pathlib import Path

import optuna
from matplotlib.ticker import MaxNLocator
from optuna.trial import FrozenTrial, TrialState
from tabulate import tabulate
from tqdm import tqdm

from ltr.analysis.style import BLUE, GREY, ORANGE, page, save_figure, style
from ltr.atomic import write_csv
from ltr.console.progress import Finished
from ltr.search.definition import Search
from ltr.search.space import as_text
from ltr.search.study import BEST_EPOCH, REACHED, finished, reason

_FEWEST = 5  # trials done, below which importances say nothing
_WORDS = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


class Watch:
    """Says what has finished since it last looked, whichever process did it."""

    def __init__(self, study: optuna.Study, trials: int, metric: str) -> None:
        """``trials`` in all; ``metric`` names the value."""
        self._study, self._metric = study, metric
        self._seen = {trial.number for trial in finished(study)}
        self._finished = Finished(trials, min(trials, len(self._seen)))
        self._bar = tqdm(
            total=trials, initial=self._finished.done, desc="trials", unit="trial", disable=None
        )

    def look(self) -> None:
        """Print what is new."""
        now = finished(self._study)
        for trial in now:
            if trial.number not in self._seen:
                self._seen.add(trial.number)
                took = trial.duration
                self._finished.add(
                    f"trial {trial.number}",
                    sentence(trial, self._metric),
                    None if took is None else took.total_seconds(),
                )
                self._bar.update()
        best = best_of(now)
        if best is not None:
            self._bar.set_postfix_str(f"best {best.value:.4f} (trial {best.number})")

    def close(self) -> None:
        """The bar goes."""
        self._bar.close()


def best_of(trials: list[FrozenTrial]) -> FrozenTrial | None:
    """The best trial that was trained to its end; the first of equal ones."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(done, key=lambda trial: (trial.value, -trial.number), default=None)


def worth(trial: FrozenTrial) -> float | None:
    """Its best epoch on vali: of a pruned trial, the mean over the trainings it had begun."""
    return trial.user_attrs.get(REACHED, trial.user_attrs.get(BEST_EPOCH, trial.value))


def sentence(trial: FrozenTrial, metric: str) -> str:
    """How a finished trial ended, and its settings; ``metric`` is the ``value_name``."""
    head, failed, pruned = "", reason(trial), trial.user_attrs.get("pruned")
    value = worth(trial) if pruned else trial.value
    if failed is not None:
        head = f"failed: {failed}"
    elif value is not None:
        name = metric.removeprefix("crossfit ") if pruned else metric
        head = f"{name} {value:.4f} on vali" + (f", pruned {pruned}" if pruned else "")
    overrides = trial.user_attrs.get("overrides") or ["the config's own values"]
    return f"{head}  {' '.join(overrides)}"


def write_trials(path: Path, study: optuna.Study, search: Search) -> None:
    """Write a row per trial, those cut off included, atomically."""
    rows, by_crossfit = [], search.select_value == "crossfit"
    for trial in study.get_trials(deepcopy=False):
        failed, done = reason(trial), trial.state == TrialState.COMPLETE
        word = "failed" if failed else _WORDS.get(trial.state, "cut off")
        took = None if word == "cut off" else trial.duration  # that would be until it was noticed
        rows.append(
            {
                "trial": trial.number,
                "state": word,
                f"vali {search.metric}": worth(trial),
                **({search.value_name: trial.value if done else None} if by_crossfit else {}),
                "seconds": None if took is None else round(took.total_seconds(), 1),
                **{key: trial.params.get(key) for key in search.space},
                "reason": failed or trial.user_attrs.get("pruned", ""),
            }
        )
    write_csv(path, rows)


def importances(study: optuna.Study, search: Search) -> dict[str, float]:
    """The share of the variance of the value that each key explains (fANOVA), largest first.

    Of the trials that were trained to their end; empty where there are too few, or all are equal.
    Hutter, Hoos and Leyton-Brown, 2014.
    """
    names = list(search.space)
    done = [
        trial
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if set(names) <= set(trial.params)
    ]
    if len(done) < _FEWEST or len({trial.value for trial in done}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator, params=names)


def summary(study: optuna.Study, search: Search) -> str:
    """The end of a search in words: counts, the best trial beside the first, importances."""
    trials = finished(study)
    count = {state: sum(trial.state == state for trial in trials) for state in TrialState}
    lines = [
        f"{len(trials)} trials: {count[TrialState.COMPLETE]} done, "
        f"{count[TrialState.PRUNED]} pruned, {count[TrialState.FAIL]} failed"
    ]
    best = best_of(trials)
    if best is None:
        failed = [reason(trial) for trial in trials if reason(trial)]
        return "\n".join([*lines, "no trial was trained to its end", *map(str, failed[:1])])
    first = own_values(trials)
    lines.append(f"best: {search.value_name} on vali {best.value:.4f}, trial {best.number}")
    if first is not None and first.number != best.number:
        lines.append(f"the config's own values: {first.value:.4f}")
    weights = importances(study, search)
    chosen = dict(item.partition("=")[::2] for item in best.user_attrs["overrides"])
    rows = []
    for key, distribution in search.space.items():
        was = as_text(search.default(key))
        weight = [f"{weights[key]:.2f}"] if weights else []
        rows.append([key, chosen.get(key, was), was, str(distribution), *weight])
    rows.sort(key=lambda row: -weights.get(row[0], 0))
    head = ["key", "best", "was", "space"] + (["importance"] if weights else [])
    return "\n".join([*lines, "", tabulate(rows, head, disable_numparse=True)])


def own_values(trials: list[FrozenTrial]) -> FrozenTrial | None:
    """The trial of the config's own values, where it was trained to its end."""
    own = (trial for trial in trials if trial.user_attrs.get("default"))
    return next((trial for trial in own if trial.state == TrialState.COMPLETE), None)


def draw_history(study: optuna.Study, folder: Path, title: str, metric: str) -> list[Path]:
    """Write ``history.png`` and ``history.svg``: every trial, and the best so far."""
    trials = finished(study)
    done = [(t.number, t.value) for t in trials if t.state == TrialState.COMPLETE]
    pruned = [
        (t.number, worth(t)) for t in trials if t.state == TrialState.PRUNED and t.value is not None
    ]
    failed = [t.number for t in trials if t.state == TrialState.FAIL]
    with style():
        figure = page(
            title,
            f"Each dot is a trial, at its {metric} on vali; a cross is one that was pruned, at "
            "what it had reached by then; the line is the best so far. "
            f"{len(failed)} trials failed" + (", marked at the bottom." if failed else "."),
            width=6.4,
            height=3.4,
        )
        axes = figure.subplots()
        if done:
            numbers, values = zip(*done, strict=True)
            best = [max(values[: i + 1]) for i in range(len(values))]
            end = max(trial.number for trial in trials)
            axes.step(
                [*numbers, end], [*best, best[-1]], where="post", color=BLUE, label="best so far"
            )
            axes.plot(numbers, values, "o", color=BLUE, markersize=4, label="trained to its end")
        if pruned:
            axes.plot(*zip(*pruned, strict=True), "x", color=GREY, markersize=5, label="pruned")
        if failed:
            axes.plot(
                failed,
                [0.02] * len(failed),
                "|",
                transform=axes.get_xaxis_transform(),
                color=ORANGE,
                markersize=9,
                label="failed",
            )
        axes.set(xlabel="trial", ylabel=f"{metric} on vali")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if trials:
            axes.legend()
        return save_figure(figure, folder, "history", dpi=150)
