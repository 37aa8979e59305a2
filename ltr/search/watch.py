"""What is seen while a search runs: a line for each finished trial, and a bar over all."""

import sys

import optuna
from optuna.trial import FrozenTrial, TrialState
from tqdm import tqdm

from ltr.search.claims import finished, reason, worth

WORDS = {
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
        self._bar = tqdm(
            total=trials,
            initial=min(trials, len(self._seen)),
            desc="trials",
            unit="trial",
            disable=None,
        )

    def look(self) -> None:
        """Print what is new."""
        now = finished(self._study)
        for trial in now:
            if trial.number not in self._seen:
                self._seen.add(trial.number)
                tqdm.write(sentence(trial, self._metric), file=sys.stdout)
                sys.stdout.flush()
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


def sentence(trial: FrozenTrial, metric: str) -> str:
    """One line about a finished trial."""
    head = f"trial {trial.number:>3}  "
    failed = reason(trial)
    if failed is not None:
        head += f"failed: {failed}"
    elif (value := worth(trial)) is not None:
        pruned = trial.user_attrs.get("pruned")
        head += f"{metric} {value:.4f}" + (f", pruned {pruned}" if pruned else "")
    overrides = trial.user_attrs.get("overrides") or ["the config's own values"]
    return f"{head}  {' '.join(overrides)}"
