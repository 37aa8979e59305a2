"""Time this project beside its peers: ``python scripts/benchmark.py --help``."""

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("benchmark")
def main(cfg: DictConfig) -> None:
    """Measure what ``cfg`` asks for, print the tables and keep them."""
    from ltr.experiment.benchmark.run import benchmark

    benchmark(cfg)


if __name__ == "__main__":
    main()
