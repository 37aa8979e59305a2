"""Metrics of a kept model, or of any tool's scores: ``python scripts/evaluate.py --help``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

import sys

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("evaluate")
def main(cfg: DictConfig) -> None:
    """Evaluate the kept model or the scores that ``cfg`` names and print the metrics."""
    # torch is imported only when there is work
    if cfg.scores is not None:
        from ltr.experiment.evaluate_scores import evaluate_scores

        work = evaluate_scores
    else:
        from ltr.experiment.apply import evaluate_kept

        work = evaluate_kept
    with stoppable():
        print(work(cfg))


def several(argument: str) -> str:
    """``metrics_as=a,b`` as ``metrics_as=[a,b]``: to Hydra the first is a sweep."""
    key, _, value = argument.partition("=")
    plain = key == "metrics_as" and "," in value and not value.startswith("[")
    return f"{key}=[{value}]" if plain else argument


if __name__ == "__main__":
    sys.argv[1:] = [several(argument) for argument in sys.argv[1:]]
    main()
