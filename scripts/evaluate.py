"""Metrics of a kept model, or of any tool's scores: ``python scripts/evaluate.py --help``."""

import sys

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("evaluate")
def main(cfg: DictConfig) -> None:
    """Evaluate the kept model or the scores that ``cfg`` names and print the metrics."""
    # torch is imported only when there is work
    if cfg.scores is not None:
        from ltr.experiment.evaluate_scores import evaluate_scores

        print(evaluate_scores(cfg))
    else:
        from ltr.experiment.apply import evaluate_kept

        print(evaluate_kept(cfg))


def several(argument: str) -> str:
    """``metrics_as=a,b`` as ``metrics_as=[a,b]``: to Hydra the first is a sweep."""
    key, _, value = argument.partition("=")
    plain = key == "metrics_as" and "," in value and not value.startswith("[")
    return f"{key}=[{value}]" if plain else argument


if __name__ == "__main__":
    sys.argv[1:] = [several(argument) for argument in sys.argv[1:]]
    main()
