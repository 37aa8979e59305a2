"""What to compare, and how: the config of ``configs/compare.yaml``, checked."""

from dataclasses import dataclass

from omegaconf import DictConfig

from ltr.console.values import number, text, texts, whole
from ltr.errors import ConfigError


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        paths: run folders, folders that hold runs, or patterns of either.
        metric: a column of ``queries.csv``; None: the metric that the runs were selected on.
        margin: the largest difference that does not matter.
        alpha: of every test.
        baseline: name of the system that the others are compared with, or a part of it.
        published: a number to set the systems beside.
        seed: of all draws.
        samples: of the bootstrap and the randomisation test.
        write: the folder of tables and plot; None: only print.
    """

    paths: tuple[str, ...]
    metric: str | None
    margin: float
    alpha: float
    baseline: str | None
    published: float | None
    seed: int
    samples: int
    write: str | None


def compare_order(cfg: DictConfig) -> Order:
    """The order in a config.

    Raises:
        ConfigError: no run is given, or a value is wrong.
    """
    paths = texts(cfg, "runs")
    if not paths:
        raise ConfigError(
            "give run folders, or folders that hold runs, such as outputs/<sweep>; see --help"
        )
    return Order(
        paths=paths,
        metric=text(cfg, "metric"),
        margin=number(cfg, "margin"),
        alpha=number(cfg, "alpha"),
        baseline=text(cfg, "baseline"),
        published=None if cfg.published is None else number(cfg, "published"),
        seed=whole(cfg, "seed", least=0),
        samples=whole(cfg, "samples", least=0),
        write=text(cfg, "write"),
    )
