"""Which table to make, and how: the config of ``configs/table.yaml``, checked."""

import shlex
from dataclasses import dataclass

from omegaconf import DictConfig

from ltr.console.sweep_names import asked, label_of
from ltr.console.values import flag, number, required, text, texts, whole
from ltr.errors import ConfigError

MARGIN = 0.005  # half a point: differences smaller than this count as none


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        table: name of the table.
        overrides: for ``train.py``, over the table's settings.
        rows: labels of the rows wanted; empty: all.
        seeds: how many, from 1 on.
        output_dir: the folder of ``runs/`` and ``tables/``.
        workers: runs at a time; None: one on a GPU, else one per core.
        launcher: overrides of Hydra's launcher, in place of ``workers``.
        dry_run: only say what would run, and for how long.
        baseline: the row that the others are compared with; None: the table's own.
        margin: differences smaller than this count as none; None: ``MARGIN``.
    """

    table: str
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: int = 1
    output_dir: str = "outputs"
    workers: int | None = None
    launcher: tuple[str, ...] = ()
    dry_run: bool = False
    baseline: str | None = None
    margin: float | None = None

    def command(self) -> str:
        """The command that makes this table, but for where it is kept and how many run at once."""
        return shlex.join(
            ["python", "scripts/table.py", f"table={self.table}", *self._asked(), *self._own()]
        )

    def name(self, data: str) -> str:
        """What the folder of the table of ``data`` is called: another order, another folder.

        >>> Order("softrank_slides").name("mq2008")
        'softrank_slides_mq2008'
        >>> Order("softrank_slides", ("dataset=mq2008", "epochs=1"), seeds=3).name("mq2008")
        'softrank_slides_mq2008_seeds-3_epochs-1'
        """
        more = [*self._own(), *(item for item in self._asked() if item != f"dataset={data}")]
        return "_".join([self.table, data, *([label_of(more)] if more else [])])

    def _asked(self) -> list[str]:
        return [item for item in self.overrides if asked([item])]

    def _own(self) -> list[str]:
        parts = [f"rows={','.join(self.rows)}"] if self.rows else []
        parts += [f"seeds={self.seeds}"] if self.seeds != 1 else []
        parts += [f"baseline={self.baseline}"] if self.baseline is not None else []
        parts += [f"margin={self.margin:g}"] if self.margin is not None else []
        return parts


def table_order(cfg: DictConfig) -> Order:
    """The order in a config.

    Raises:
        ConfigError: no table is named, or a value is wrong.
    """
    required(cfg, "table")
    overrides, launcher = texts(cfg, "train"), texts(cfg, "launcher")
    if launcher and cfg.workers is not None:
        raise ConfigError(f"workers={cfg.workers}: {launcher[0]} says how many; leave one out")
    for override in overrides:
        if override.lstrip("+").partition("=")[0] in ("seed", "dataset.fold"):
            raise ConfigError(f"{override}: a table runs its folds and seeds itself; set seeds=N")
    return Order(
        table=str(cfg.table),
        overrides=overrides,
        rows=texts(cfg, "rows"),
        seeds=whole(cfg, "seeds", least=1),
        output_dir=str(cfg.output_dir),
        workers=None if cfg.workers is None else whole(cfg, "workers", least=1),
        launcher=launcher,
        dry_run=flag(cfg, "dry_run"),
        baseline=text(cfg, "baseline"),
        margin=None if cfg.margin is None else _margin(cfg),
    )


def _margin(cfg: DictConfig) -> float:
    margin = number(cfg, "margin")
    if not 0 < margin < 1:
        raise ConfigError(f"margin={margin:g}: give a number between 0 and 1, such as 0.005")
    return margin
