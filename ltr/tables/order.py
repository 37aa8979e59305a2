"""Parse the arguments of ``scripts/table.py``."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from omegaconf import DictConfig

from ltr.console.compose import values_of
from ltr.console.folders import asked, label_of
from ltr.console.values import flag, number, required, text, texts, whole
from ltr.errors import ConfigError, as_started
from ltr.tables.spec import split_space

MARGIN = 0.005  # half a point: differences smaller than this count as none


@dataclass(frozen=True)
class Order:
    """The arguments of ``scripts/table.py``."""

    table: str  # its name, or its file
    overrides: tuple[str, ...] = ()  # for train.py, over the table's settings
    rows: tuple[str, ...] = ()  # labels of some of its rows; empty: all
    seeds: int = 1  # how many, from 1 on
    output_dir: str = "outputs"  # the folder of runs/ and tables/
    workers: int | None = None  # runs at a time; None: one on a GPU, else one per core
    launcher: tuple[str, ...] = ()  # overrides of Hydra's launcher, in place of workers
    dry_run: bool = False  # only say what would run
    baseline: str | None = None  # the row that the others are compared with; None: the table's own
    margin: float | None = None  # differences smaller than this count as none; None: MARGIN
    percent: bool = False  # print metrics times 100
    budget: int | None = None  # trials for each row and fold; None: settings as the table has them
    space: tuple[str, ...] = ()  # with a budget: what is searched, over the table's own

    def command(self) -> str:
        """The command that makes this table; places and the number of workers are left out."""
        return self._typed([*self._asked(), *self._own()])

    def found_command(self) -> str:
        """The command that finds the settings of all rows."""
        return self._typed([*self._asked(), *self._budget()])

    def _typed(self, words: Sequence[str]) -> str:
        return f"{as_started('table')} {shlex.join([f'table={self.table}', *words])}"

    def name(self, data: str) -> str:
        """The name of the folder for the table of ``data``: another order, another folder.

        >>> Order("softrank_slides").name("mq2008")
        'softrank_slides_mq2008'
        >>> Order("softrank_slides", ("dataset=mq2008", "epochs=1"), seeds=3).name("mq2008")
        'softrank_slides_mq2008_seeds-3_epochs-1'
        """
        return self._named(data, self._own())

    def found_name(self, data: str) -> str:
        """The name of the file of found settings: other rows and seeds, the same file.

        >>> Order("softrank_slides", rows=("SoftRank",), seeds=3, budget=20).found_name("mq2008")
        'softrank_slides_mq2008_budget-20'
        """
        return self._named(data, self._budget())

    def _named(self, data: str, own: Sequence[str]) -> str:
        name = Path(self.table).name.removesuffix(".yaml")
        more = [*own, *(item for item in self._asked() if item != f"dataset={data}")]
        return "_".join([name, data, *([label_of(more)] if more else [])])

    def _budget(self) -> list[str]:
        return [*([] if self.budget is None else [f"budget={self.budget}"]), *self.space]

    def _asked(self) -> list[str]:
        return [item for item in self.overrides if asked([item])]

    def _own(self) -> list[str]:
        parts = [f"rows={','.join(self.rows)}"] if self.rows else []
        parts += [f"seeds={self.seeds}"] if self.seeds != 1 else []
        parts += [f"baseline={self.baseline}"] if self.baseline is not None else []
        parts += [f"margin={self.margin:g}"] if self.margin is not None else []
        parts += ["percent=true"] if self.percent else []
        return parts + self._budget()


def refuse(order: Order, keys: Sequence[str], why: str) -> None:
    """Raise ``ConfigError`` that says ``why`` where one of ``keys`` is given.

    >>> refuse(Order("mine"), ["percent", "margin"], "mine prints counts")
    """
    for field in fields(order):
        if field.name in keys and getattr(order, field.name) != field.default:
            raise ConfigError(f"{field.name}: {why}; leave it out")


def at_a_time(launcher: Sequence[str]) -> int | None:
    """How many runs a launcher does at a time; None where it does not say.

    >>> at_a_time(["hydra/launcher=joblib", "hydra.launcher.n_jobs=3"])
    3
    """
    number = values_of(launcher).get("hydra.launcher.n_jobs")
    return number if isinstance(number, int) and number > 0 else None


def table_order(cfg: DictConfig) -> Order:
    """The order in a config; ``ConfigError`` if no table is named or a value is wrong."""
    required(cfg, "table")
    overrides, space = split_space(texts(cfg, "train"))
    launcher = texts(cfg, "launcher")
    if space and cfg.budget is None:
        raise ConfigError(f"{space[0]}: only a budget is searched; give budget=N, such as 20")
    if launcher and cfg.workers is not None:
        raise ConfigError(f"workers={cfg.workers}: {launcher[0]} says how many; leave one out")
    for override in overrides:
        if override.lstrip("+").partition("=")[0] in ("seed", "dataset.fold"):
            raise ConfigError(f"{override}: a table runs its folds and seeds itself; set seeds=N")
    margin = None if cfg.margin is None else number(cfg, "margin")
    if margin is not None and not 0 < margin < 1:
        raise ConfigError(f"margin={margin:g}: give a number between 0 and 1, such as {MARGIN}")
    return Order(
        table=str(cfg.table),
        overrides=overrides,
        rows=texts(cfg, "rows"),
        seeds=whole(cfg, "seeds", least=1),
        output_dir=str(cfg.output_dir),
        workers=at_a_time(launcher) if cfg.workers is None else whole(cfg, "workers", least=1),
        launcher=launcher,
        dry_run=flag(cfg, "dry_run"),
        baseline=text(cfg, "baseline"),
        margin=margin,
        percent=flag(cfg, "percent"),
        budget=None if cfg.budget is None else whole(cfg, "budget", least=1),
        space=space,
    )
