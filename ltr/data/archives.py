"""The official data sets: their pages, archives, files and counts.

Everything here is data; ``ltr.data.prepare`` acts on it. Widths, folders and folds are
the same as in ``configs/dataset/``. Unknown counts are left out, and not checked.
"""

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ltr.data.lists import SPLITS
from ltr.errors import ConfigError, as_started


@dataclass(frozen=True)
class Known:
    """Published counts of one or more splits of a fold, taken together; None: not known."""

    splits: tuple[str, ...]
    fold: int | None = None  # 1-based; None for a set without folds
    rows: int | None = None
    lists: int | None = None
    empty: int | None = None  # lists without a relevant item
    labels: tuple[int, ...] | None = None  # items of each grade, grade 0 first


@dataclass(frozen=True)
class PublishedSet:
    """A data set as it is published, and as ``LetorFiles`` reads it."""

    name: str  # as in dataset=NAME
    folder: str  # under the data folder, with Fold1 to Fold<folds> in it, or the files
    page: str = ""  # that publishes it
    archive: str = ""  # the file to download from there
    folds: int = 0  # 0: none
    width: int | None = None  # this and the next three as for ``LetorFiles``
    labels: str = "grade"
    max_grade: int | None = None
    regroup: bool = False
    size: int | None = None  # bytes of the archive; None: not known
    sha256: str = ""  # of the archive; "": not known
    splits: tuple[str, ...] = SPLITS  # that the archive holds, in each fold
    vali_share: float | None = None  # of the queries of train that become vali; None: none
    seed: int = 1  # of that cut
    files: Mapping[str, str] = field(default_factory=dict)  # path -> SHA-256 of the official file
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", str(self.folder))  # a name such as 2024 is a number

    def how_to_get(self, data_dir: str | Path) -> str:
        """One line: the archive and the command to run; for lists of one's own, their folder."""
        if not self.page:
            files = ", ".join(f"{split}.txt" for split in self.splits)
            return f"put {files} into {Path(data_dir) / self.folder}, or into Fold1, ... in it"
        return (
            f"download {self.archive} from {self.page} and run: {as_started('prepare_data')} "
            f"dataset={self.name} archive=PATH/{self.archive} data_dir={shlex.quote(str(data_dir))}"
        )


def _five_folds(
    *,
    rows: Sequence[int | None],
    lists: Sequence[int],
    empty: Sequence[int | None] = (None,) * 5,
    train_rows: Mapping[int, int] = MappingProxyType({}),
    all_rows: int | None = None,
    all_labels: tuple[int, ...] | None = None,
) -> tuple[Known, ...]:
    """Counts of every fold from those of the parts S1 to S5.

    Fold f trains on the parts f, f+1, f+2, validates on f+3 and tests on f+4, counted in a circle.
    """
    known: list[Known] = []
    for fold in range(1, 6):
        circle = [(fold - 1 + step) % 5 for step in range(5)]
        parts = {"train": circle[:3], "vali": circle[3:4], "test": circle[4:]}
        for split, numbers in parts.items():
            items, queries, without = (
                _total([part[i] for i in numbers]) for part in (rows, lists, empty)
            )
            if split == "train":
                items = train_rows.get(fold, items)
            known.append(Known((split,), fold, items, queries, without))
        whole = {"lists": sum(lists), "empty": _total(empty)}
        known.append(Known(SPLITS, fold, rows=all_rows, labels=all_labels, **whole))
    return tuple(known)


def _total(counts: Sequence[int | None]) -> int | None:
    """Their sum; None if one is not known."""
    return None if None in counts else sum(count or 0 for count in counts)


def _official_files() -> dict[str, dict[str, str]]:
    """Data set -> path of a file in its folder -> SHA-256 of the official content."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in Path(__file__).with_name("archive_ids.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, path, sha256 = line.split()
            found[name][path] = sha256
    return found


_FILES = _official_files()
_mslr = partial(
    PublishedSet,
    page="https://www.microsoft.com/en-us/research/project/mslr/",
    folds=5,
    width=136,
    max_grade=4,
)
_istella = partial(
    PublishedSet, page="https://istella.ai/datasets/letor-dataset/", width=220, max_grade=4
)
_letor4 = partial(
    PublishedSet,
    page="https://www.microsoft.com/en-us/research/project/"
    "letor-learning-rank-information-retrieval/letor-4-0/",
    folds=5,
    width=46,
    max_grade=2,
)
SETS = {
    published.name: replace(published, files=_FILES[published.name])
    for published in (
        _mslr(
            "web30k",
            "MSLR-WEB30K",
            archive="MSLR-WEB30K.zip",
            size=3849406307,
            sha256="08cb7977e1d5cbdeb57a9a2537a0923dbca6d46a76db9a6afc69e043c85341ae",
            known=_five_folds(
                rows=(None, None, None, 747218, 753611),
                lists=(6307, 6306, 6306, 6306, 6306),
                empty=(206, 195, 201, 191, 189),
                train_rows={1: 2270296},
                all_rows=3771125,
            ),
        ),
        _mslr(
            "web10k",
            "MSLR-WEB10K",
            archive="MSLR-WEB10K.zip",
            size=1234144912,
            sha256="2902142ea33f18c59414f654212de5063033b707d5c3939556124b1120d3a0ba",
            known=_five_folds(
                rows=(None, None, None, None, 241521), lists=(2000,) * 5, train_rows={1: 723412}
            ),
        ),
        _istella(
            "istella",
            "istella-letor",
            archive="istella-letor.tar.gz",
            size=1288401248,
            sha256="d45899d9a6a0e48afb250aac7ee3dc50e73e263687f15761d754515cd8284e0b",
            splits=("train", "test"),
            vali_share=0.25,
            known=(
                Known(("train", "vali"), lists=23219),
                Known(("test",), lists=9799),
                Known(SPLITS, rows=10454629, lists=33018, empty=50),
            ),
        ),
        _istella(
            "istella_s",
            "istella-s-letor",
            archive="istella-s-letor.tar.gz",
            size=472129615,
            sha256="41b21116a3650cc043dbe16f02ee39f4467f9405b37fdbcc9a6a05e230a38981",
            known=(Known(("train",), rows=2043304), Known(SPLITS, rows=3408630, lists=33018)),
        ),
        _letor4(
            "mq2007",
            "MQ2007",
            archive="MQ2007.rar",
            known=_five_folds(
                rows=(14013, 14290, 13855, 13813, 13652),
                lists=(339, 339, 339, 339, 336),
                all_rows=69623,
            ),
        ),
        _letor4(
            "mq2008",
            "MQ2008",
            archive="MQ2008.rar",
            known=_five_folds(
                rows=(2933, 3635, 3062, 2707, 2874),
                lists=(157, 157, 157, 157, 156),
                empty=(52, 45, 35, 37, 51),
                all_rows=15211,
                all_labels=(12279, 2001, 931),
            ),
        ),
    )
}


def published(name: str) -> PublishedSet:
    """The official set of this name.

    Raises:
        ConfigError: there is none.

    >>> published("web10k").how_to_get("data").partition(" and ")[2]
    'run: ltr prepare_data dataset=web10k archive=PATH/MSLR-WEB10K.zip data_dir=data'
    """
    if name not in SETS:
        raise ConfigError(f"dataset={name} is not downloaded; choose one of {', '.join(SETS)}")
    return SETS[name]
