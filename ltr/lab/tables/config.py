"""The options of ``ltr table``."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from ltr.cli.folders import label_of, recorded, result_overrides
from ltr.cli.keys import as_list
from ltr.cli.options import collected, option
from ltr.errors import ConfigError, as_started, has
from ltr.experiment.sweep import offer_gpus
from ltr.lab.tables.spec import key_of, split_space
from ltr.training.device import pick_device

_SEARCHED = ("budget", "found_settings")  # the keys that take settings from a search


@dataclass(frozen=True)
class Workers:
    """The processes that run the jobs of a table."""

    count: int = 1  # number of jobs at a time
    threads: int | None = None  # CPU threads per job; None: PyTorch's default
    launcher: Sequence[str] = ()  # overrides that choose a Hydra launcher; it replaces ``count``
    extra: Sequence[str] = ()  # overrides for each job that do not change its result


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """The keys that say how many runs are trained at a time, and in which folder."""

    workers: int | None = option(
        None,
        at_least=1,
        help="how many runs train at a time on this machine; null = one per GPU, or one per core "
        "if there is no GPU. To train more than one, install the optional dependencies `sweep` "
        "(docs/index.md#install); without them, null means 1 run at a time. To start runs with "
        "a Hydra launcher instead, type hydra/launcher=NAME hydra.launcher.KEY=VALUE",
    )
    launcher: tuple[str, ...] = collected("launcher")
    output_dir: str = option("outputs", help="the folder to which runs/ and tables/ are written")


@dataclass(frozen=True, kw_only=True)
class TableOptions(LaunchOptions):
    """Make a table of results, with published numbers next to your own. A file in configs/tables
    lists the settings of ltr train for each row. The command starts the missing runs.

      ltr table table=letor4_mq2008
      ltr table table=letor4_mq2008 rows=NeuralNDCG,ListNet seeds=3
      ltr table table=letor4_mq2008 dataset=synthetic epochs=1 dry_run=true
      ltr table table=letor4_mq2008 budget=20

    Any other key is passed to ltr train, for example data_dir=PATH dataset=synthetic epochs=1. It
    applies to all rows, except those that set the same key themselves. select=last tests the last
    epoch, and select=best tests the epoch that was best on the validation lists. Finished runs are
    not repeated, and interrupted ones are resumed. The files table.html, .md, .tex and .csv (and
    runs.csv, unless the table's file sets by_fold: true) are written to a folder in
    output_dir/tables.
    """

    table: str = option(help="the name of a file in configs/tables, or the path of a YAML file")
    rows: tuple[str, ...] = option(
        (), help="train and show only these rows, such as rows=NeuralNDCG,ListNet; [] = all"
    )
    baseline: str | None = option(
        None,
        help="the row with which the others are compared; null = the one in the table's file",
    )
    margin: float = option(0.005, help="differences smaller than this margin do not matter")
    budget: int | None = option(
        None,
        at_least=1,
        help="first search for the best settings of every row, with this many trials in each "
        "fold. The search in a fold uses only the train and validation lists of that fold; "
        "null = use the settings in the table's file",
    )
    found_settings: str | None = option(
        None,
        help="a file of settings that an earlier search (budget=N) saved; they are used instead of "
        "a new search. null = none",
    )
    seeds: int = option(
        1,
        at_least=1,
        help="the number of seeds; every row is trained in each fold with the seeds 1, 2, ..., up "
        "to this number",
    )
    dry_run: bool = option(
        False,
        help="true = train nothing; count the runs, and print the commands of the missing ones",
    )
    train: tuple[str, ...] = collected("others")  # the user's ``overrides`` and ``space``

    def __post_init__(self) -> None:
        """Check the values together."""
        if self.space and self.budget is None:
            raise ConfigError(
                f"{self.space[0]}: a search space needs a budget; add budget=N, such as budget=20"
            )
        if self.budget is not None and self.found_settings is not None:
            raise ConfigError(
                f"budget={self.budget} found_settings={self.found_settings}: expected one of these "
                "keys, got both; leave out budget to use the settings of the file"
            )
        if self.launcher and self.workers is not None:
            raise ConfigError(
                f"workers={self.workers}: {self.launcher[0]} sets the number of jobs itself; leave "
                "out one of the two"
            )
        for override in self.overrides:
            if key_of(override) in ("seed", "dataset.fold"):
                raise ConfigError(
                    f"{override}: a table sets the fold and seed of each run: leave this out; "
                    "seeds=N sets the number of seeds"
                )
        if not 0 < self.margin < 1:
            raise ConfigError(
                f"margin={self.margin:g}: expected a number between 0 and 1, such as 0.005"
            )

    @property
    def overrides(self) -> list[str]:
        """The user's overrides for ``ltr train``, which replace the table's settings."""
        return split_space(self.train)[0]

    @property
    def space(self) -> list[str]:
        """The user's overrides for the search space, which replace those of the table."""
        return split_space(self.train)[1]

    @property
    def absolute_output_dir(self) -> Path:
        """The absolute path of ``output_dir``."""
        return Path(self.output_dir).absolute()

    def non_defaults(self, *names: str) -> list[str]:
        """Return ``KEY=VALUE`` for each of the keys ``names`` that is not at its default."""
        defaults = {declared.name: declared.default for declared in fields(self)}
        values = {name: as_list(getattr(self, name)) for name in names}
        return [
            f"{name}={','.join(texts)}"
            for name, texts in values.items()
            if texts != as_list(defaults[name])
        ]

    @property
    def table_arguments(self) -> list[str]:
        """The arguments that change the content of the table, apart from ``overrides``."""
        return [*self.non_defaults("rows", "seeds", "baseline", "margin", *_SEARCHED), *self.space]

    @property
    def search_arguments(self) -> list[str]:
        """The arguments that change the searches; ``rows`` and ``seeds`` do not change them."""
        return [*self.non_defaults("budget"), *self.space]

    @property
    def searched(self) -> str | None:
        """The argument that replaces the table's settings with those of a search, or None."""
        return next(iter(self.non_defaults(*_SEARCHED)), None)

    @property
    def result_overrides(self) -> list[str]:
        """The overrides for ``ltr train`` that can change the results of a run."""
        return [override for override in self.overrides if result_overrides([override])]

    def command(self, arguments: Sequence[str]) -> str:
        """Return the command line that makes the table, for use in reports and files.

        It ends with ``arguments``: ``table_arguments`` or ``search_arguments``.
        """
        command = [f"table={self.table}", *recorded(self.overrides), *arguments]
        return f"{as_started('table')} {shlex.join(command)}"

    def path(self, folder: Path, data: str, arguments: Sequence[str]) -> Path:
        """Return the path of a file (without suffix) or of a folder in ``folder``.

        ``data`` is the name of the data set. Different arguments or data sets give different paths.

        >>> from ltr.cli.compose import typed
        >>> from ltr.cli.options import parse_options
        >>> words = ["table=softrank_slides", "dataset=mq2008", "epochs=1", "seeds=3"]
        >>> options = parse_options(TableOptions, typed("table", words))
        >>> options.path(Path("tables"), "mq2008", options.table_arguments).name
        'softrank_slides_mq2008_seeds-3_epochs-1'
        """
        name = Path(self.table).name.removesuffix(".yaml")
        overrides = [item for item in self.result_overrides if item != f"dataset={data}"]
        start = f"{folder}/{name}_{data}"
        label = label_of([*arguments, *overrides], f"{start}_")
        return Path(f"{start}_{label}" if label else start)

    def choose_workers(self, device: str, threads: int | None) -> Workers:
        """Choose how many jobs run at a time, and let them share this machine's GPUs.

        Args:
            device: the device of the jobs, as in their config.
            threads: the CPU threads of each job, as in its config; if None, the jobs share the
                cores equally.
        """
        on_gpu = pick_device(device).type == "cuda"
        cores = os.cpu_count() or 1
        gpus = torch.cuda.device_count() if on_gpu else 0
        default_count = 1
        if has("hydra_plugins.hydra_joblib_launcher"):
            default_count = gpus if on_gpu else cores
        count = self.workers or default_count
        if count > 1 or self.launcher:
            offer_gpus(gpus)
        worker_threads = None if on_gpu else max(1, cores // count)
        extra = []
        if worker_threads is not None and threads is None and not self.launcher:
            extra = [f"threads={worker_threads}"]
        return Workers(count, worker_threads, self.launcher, extra)
