"""Metrics of a kept model: ``python scripts/evaluate.py --help``."""

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("evaluate")
def main(cfg: DictConfig) -> None:
    """Evaluate the kept model that ``cfg`` names and print its metrics."""
    from ltr.experiment.apply import evaluate_kept  # torch is imported only when there is work

    print(evaluate_kept(cfg))


if __name__ == "__main__":
    main()
