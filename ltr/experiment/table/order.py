"""What the user asks of ``scripts/table.py``, read from its ``KEY=VALUE`` arguments."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ltr.errors import ConfigError
from ltr.experiment.sweep_names import asked, label_of

_OWN = (
    "table", "rows", "seeds", "output_dir", "workers", "dry_run", "baseline", "margin",
)  # fmt: skip
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


def parse_order(arguments: Sequence[str]) -> Order:
    """The order in ``KEY=VALUE`` arguments; what is not a key of this command is for train.py.

    Raises:
        ConfigError: one is not of that form, or a value is wrong.

    >>> parse_order(["table=letor4_mq2008", "epochs=1", "seeds=3"]).overrides
    ('epochs=1',)
    >>> parse_order(["table=letor4_mq2008", "epochs=1", "workers=2"]).command()
    'python scripts/table.py table=letor4_mq2008 epochs=1'
    """
    own: dict[str, str] = {}
    overrides = []
    for argument in _launched(arguments):
        key, equals, value = argument.partition("=")
        if not equals:
            raise ConfigError(f"{argument}: write KEY=VALUE, such as table=letor4_mq2008")
        if key in _OWN:
            own[key] = value
        elif key in ("seed", "dataset.fold"):
            raise ConfigError(f"{argument}: a table runs its folds and seeds itself; set seeds=N")
        else:
            overrides.append(argument)
    if "table" not in own:
        raise ConfigError("give table=NAME; --help lists the tables")
    if own.get("dry_run", "false").lower() not in ("true", "false"):
        raise ConfigError(f"dry_run={own['dry_run']}: write true or false")
    return Order(
        table=own["table"],
        overrides=tuple(overrides),
        rows=tuple(label.strip() for label in own["rows"].split(",")) if "rows" in own else (),
        seeds=_count("seeds", own.get("seeds", "1")),
        output_dir=own.get("output_dir", "outputs"),
        workers=_count("workers", own["workers"]) if "workers" in own else None,
        dry_run=own.get("dry_run", "false").lower() == "true",
        baseline=own.get("baseline"),
        margin=_margin(own["margin"]) if "margin" in own else None,
    )


def _launched(arguments: Sequence[str]) -> list[str]:
    """``hydra/launcher=joblib`` as what it means here: so many runs at a time, on this machine."""
    launcher = [item for item in arguments if item.startswith("hydra/launcher=")]
    jobs = [item for item in arguments if item.startswith("hydra.launcher.n_jobs=")]
    others = [item for item in arguments if item not in launcher + jobs]
    for item in others:
        if item.startswith(("hydra.", "hydra/")):
            raise ConfigError(f"{item}: a table starts its runs itself; set workers=N")
    if not launcher:
        return others if not jobs else [*others, f"workers={jobs[-1].partition('=')[2]}"]
    name = launcher[-1].partition("=")[2]
    if name not in ("joblib", "basic"):
        raise ConfigError(
            f"{launcher[-1]}: a table starts its runs on this machine; set workers=N, or sweep "
            "with train.py -m"
        )
    if name == "basic":
        return [*others, "workers=1"]
    count = jobs[-1].partition("=")[2] if jobs else "-1"
    return others if count == "-1" else [*others, f"workers={count}"]


def _count(key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{key}={value}: give a whole number >= 1")
    return int(value)


def _margin(value: str) -> float:
    try:
        margin = float(value)
    except ValueError:
        margin = -1.0
    if not 0 < margin < 1:
        raise ConfigError(f"margin={value}: give a number between 0 and 1, such as 0.005")
    return margin
