"""The arguments of ``scripts/table.py``."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig

from ltr.console.folders import asked, label_of
from ltr.console.keys import flag, number, required, text, texts, whole
from ltr.errors import ConfigError, as_started
from ltr.experiment.sweep import offer_gpus
from ltr.tables.spec import split_space
from ltr.training.device import pick_device

MARGIN = 0.005  # half a point: differences smaller than this count as none


@dataclass(frozen=True)
class Workers:
    """How many jobs run at a time, with how many threads, and what a job is told of it."""

    count: int
    threads: int | None  # of the CPU; None: as PyTorch chooses
    extra: tuple[str, ...]


@dataclass(frozen=True)
class TableConfig:
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
    margin: float = MARGIN  # differences smaller than this count as none
    budget: int | None = None  # trials for each row and fold; None: settings as the table has them
    space: tuple[str, ...] = ()  # with a budget: what is searched, over the table's own

    def given(self, *keys: str) -> list[str]:
        """Those of ``keys`` that are not at their default, as they are typed."""
        values = {key: getattr(self, key) for key in keys}
        return [
            f"{key}={','.join(value) if key == 'rows' else value}"
            for key, value in values.items()
            if value != getattr(TableConfig, key)
        ]

    @property
    def of_table(self) -> list[str]:
        """What this table differs by from its file, as typed, but for overrides and places."""
        keys = ("rows", "seeds", "baseline", "margin", "budget")
        return [*self.given(*keys), *self.space]

    @property
    def of_search(self) -> list[str]:
        """The same of its searches: other rows and seeds share what is found."""
        return [*self.given("budget"), *self.space]

    @property
    def asked(self) -> list[str]:
        """The overrides that decide the results."""
        return [item for item in self.overrides if asked([item])]

    def command(self, words: Sequence[str]) -> str:
        """The command with ``words``, which are ``of_table`` or ``of_search``."""
        return f"{as_started('table')} {shlex.join([f'table={self.table}', *self.asked, *words])}"

    def name(self, data: str, words: Sequence[str]) -> str:
        """The name of the folder or file for ``words`` on ``data``: others, another name.

        >>> config = TableConfig("softrank_slides", ("dataset=mq2008", "epochs=1"), seeds=3)
        >>> config.name("mq2008", config.of_table)
        'softrank_slides_mq2008_seeds-3_epochs-1'
        """
        name = Path(self.table).name.removesuffix(".yaml")
        more = [*words, *(item for item in self.asked if item != f"dataset={data}")]
        return "_".join([name, data, *([label_of(more)] if more else [])])

    def workers_for(self, config: DictConfig) -> Workers:
        """Who does runs of ``config``; several GPUs of this machine are offered to them."""
        on_gpu, cores = pick_device(config.device).type == "cuda", os.cpu_count() or 1
        gpus = torch.cuda.device_count() if on_gpu else 0
        count = self.workers or (gpus if on_gpu else cores)
        if count > 1 or self.launcher:
            offer_gpus(gpus)
        threads = None if on_gpu else max(1, cores // count)
        told = threads and config.threads is None and not self.launcher
        return Workers(count, threads, (f"threads={threads}",) if told else ())


def table_config(cfg: DictConfig) -> TableConfig:
    """The arguments in a config; ``ConfigError`` if no table is named or a value is wrong."""
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
    margin = MARGIN if cfg.margin is None else number(cfg, "margin")
    if not 0 < margin < 1:
        raise ConfigError(f"margin={margin:g}: give a number between 0 and 1, such as {MARGIN}")
    return TableConfig(
        table=str(cfg.table),
        overrides=tuple(overrides),
        rows=texts(cfg, "rows"),
        seeds=whole(cfg, "seeds", least=1),
        output_dir=str(cfg.output_dir),
        workers=None if cfg.workers is None else whole(cfg, "workers", least=1),
        launcher=launcher,
        dry_run=flag(cfg, "dry_run"),
        baseline=text(cfg, "baseline"),
        margin=margin,
        budget=None if cfg.budget is None else whole(cfg, "budget", least=1),
        space=tuple(space),
    )
