"""Time this project beside its peers: ``python scripts/benchmark.py --help``."""

from ltr.training.interruption import end_when_stopped, stoppable

end_when_stopped()  # before what takes long to import

from omegaconf import DictConfig

from ltr.experiment.cli import command


@command("benchmark")
def main(cfg: DictConfig) -> None:
    """Measure what ``cfg`` asks for, print the tables and keep them."""
    from ltr.experiment.benchmark.run import benchmark

    with stoppable():
        benchmark(cfg)


if __name__ == "__main__":
    main()
