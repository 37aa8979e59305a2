"""Read and check the arguments of ``ltr table``."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig

from ltr.console.configs import own_keys
from ltr.console.folders import asked, label_of, recorded
from ltr.console.keys import flag, number, required, texts, whole
from ltr.errors import ConfigError, as_started, has
from ltr.experiment.sweep import offer_gpus
from ltr.tables.spec import key_of, split_space
from ltr.training.device import pick_device


@dataclass(frozen=True)
class Workers:
    """The processes that run the jobs of a table."""

    count: int = 1  # number of jobs at a time
    threads: int | None = None  # CPU threads per job; None: PyTorch's default
    launcher: Sequence[str] = ()  # overrides that choose a Hydra launcher, instead of ``count``
    extra: Sequence[str] = ()  # overrides for each job, which do not change its result


@dataclass(frozen=True)
class TableConfig:
    """The checked arguments of ``ltr table``."""

    cfg: DictConfig
    overrides: list[str]  # for ``ltr train``; they replace the table's settings
    space: list[str]  # with a budget: what is searched; replaces the table's own

    def given(self, *keys: str) -> list[str]:
        """Return ``KEY=VALUE`` for each of ``keys`` that is not at its default."""
        usual = own_keys("table")
        changed = [key for key in keys if self.cfg[key] != usual[key]]
        return [f"{key}={','.join(texts(self.cfg, key))}" for key in changed]

    @property
    def of_table(self) -> list[str]:
        """The arguments that change the table, but not ``overrides`` or where and how it runs."""
        return [*self.given("rows", "seeds", "baseline", "margin", "budget"), *self.space]

    @property
    def of_search(self) -> list[str]:
        """The arguments that change the table's searches, which other rows and seeds share."""
        return [*self.given("budget"), *self.space]

    @property
    def asked(self) -> list[str]:
        """The overrides of ``ltr train`` that can change the results of a run."""
        return [item for item in self.overrides if asked([item])]

    def command(self, words: Sequence[str]) -> str:
        """Return the command line, ending in ``words`` (``of_table`` or ``of_search``)."""
        typed = [f"table={self.cfg.table}", *recorded(self.overrides), *words]
        return f"{as_started('table')} {shlex.join(typed)}"

    def path(self, folder: Path, data: str, words: Sequence[str]) -> Path:
        """Return the file (without suffix) or folder in ``folder`` for ``words``; different
        arguments give different names.

        >>> from ltr.console.compose import typed
        >>> given = ["table=softrank_slides", "dataset=mq2008", "epochs=1", "seeds=3"]
        >>> config = table_config(typed("table", given))
        >>> config.path(Path("tables"), "mq2008", config.of_table).name
        'softrank_slides_mq2008_seeds-3_epochs-1'
        """
        name = Path(self.cfg.table).name.removesuffix(".yaml")
        more = [*words, *(item for item in self.asked if item != f"dataset={data}")]
        start = f"{folder}/{name}_{data}"
        return Path("_".join([start, *filter(None, [label_of(more, f"{start}_")])]))

    def workers(self, config: DictConfig) -> Workers:
        """Choose the workers for jobs with ``config``, and let them share this machine's GPUs."""
        on_gpu, cores = pick_device(config.device).type == "cuda", os.cpu_count() or 1
        gpus = torch.cuda.device_count() if on_gpu else 0
        launcher = texts(self.cfg, "launcher")
        several = has("hydra_plugins.hydra_joblib_launcher")
        count = self.cfg.workers or (1 if not several else gpus if on_gpu else cores)
        if count > 1 or launcher:
            offer_gpus(gpus)
        threads = None if on_gpu else max(1, cores // count)
        told = threads and config.threads is None and not launcher
        return Workers(count, threads, launcher, [f"threads={threads}"] if told else [])


def table_config(cfg: DictConfig) -> TableConfig:
    """Check a config; raise ``ConfigError`` if no table is named or a value is wrong."""
    required(cfg, "table")
    overrides, space = split_space(texts(cfg, "train"))
    launcher = texts(cfg, "launcher")
    if space and cfg.budget is None:
        raise ConfigError(f"{space[0]}: only a budget is searched; give budget=N, such as 20")
    if launcher and cfg.workers is not None:
        raise ConfigError(f"workers={cfg.workers}: {launcher[0]} says how many; leave one out")
    for override in overrides:
        if key_of(override) in ("seed", "dataset.fold"):
            raise ConfigError(f"{override}: a table runs its folds and seeds itself; set seeds=N")
    if not 0 < number(cfg, "margin") < 1:
        raise ConfigError(f"margin={cfg.margin}: give a number between 0 and 1, such as 0.005")
    flag(cfg, "dry_run")
    for key in ("seeds", "workers", "budget"):
        if key == "seeds" or cfg[key] is not None:
            whole(cfg, key, least=1)
    return TableConfig(cfg, overrides, space)
