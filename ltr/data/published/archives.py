"""The official data sets: where each is published, what its archive holds, what must be counted.

Everything here is data; ``ltr.data.published.prepare`` acts on it. Widths, folders and folds
are the same as in ``configs/dataset/``. Counts that are not known are left out, and not checked.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ltr.data.lists import SPLITS
from ltr.data.published.archive_files import ISTELLA, ISTELLA_S, MQ2007, MQ2008, WEB10K, WEB30K
from ltr.errors import ConfigError


@dataclass(frozen=True)
class Known:
    """What some splits of one fold must count, taken together; None: not known.

    Attributes:
        splits: The splits, one or more.
        fold: 1-based; None for a set without folds.
        rows: Number of items.
        lists: Number of lists.
        empty: Number of lists without a relevant item.
        labels: Number of items of each grade, grade 0 first.
    """

    splits: tuple[str, ...]
    fold: int | None = None
    rows: int | None = None
    lists: int | None = None
    empty: int | None = None
    labels: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PublishedSet:
    """A data set as it is published, and as ``LetorFiles`` reads it.

    Attributes:
        name: What ``dataset=`` calls it.
        folder: The folder under the data folder, with Fold1 to Fold<folds> in it, or the files.
        page: The address of the page that publishes it.
        archive: The file to download from there.
        folds: Number of folds; 0: none.
        width, labels, max_grade, regroup: As for ``LetorFiles``.
        size: Bytes of the archive; None: not known.
        sha256: Of the archive; "": not known.
        splits: The files that the archive holds in each fold, without ``.txt``.
        vali_share: Share of the queries of train that become vali; 0: the archive has a vali.
        files: Path inside ``folder`` -> the ids that its official content may have: 64 hexadecimal
            digits, SHA-256; 40, git's id of a file.
        known: What must be counted.
    """

    name: str
    folder: str
    page: str = ""
    archive: str = ""
    folds: int = 0
    width: int | None = None
    labels: str = "grade"
    max_grade: int | None = None
    regroup: bool = False
    size: int | None = None
    sha256: str = ""
    splits: tuple[str, ...] = SPLITS
    vali_share: float = 0.0
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", str(self.folder))  # a name such as 2024 is a number

    def how_to_get(self, data_dir: str | Path) -> str:
        """What to download and what to run next; for a set nobody publishes, what to put where."""
        if not self.page:
            files = ", ".join(f"{split}.txt" for split in self.splits)
            return f"put {files} into {Path(data_dir) / self.folder}, or into Fold1, ... in it"
        return (
            f"download {self.archive} from {self.page} and run: python scripts/prepare_data.py "
            f"dataset={self.name} archive=PATH/{self.archive} data_dir={shlex.quote(str(data_dir))}"
        )


def _five_folds(
    *,
    rows: Sequence[int | None],
    lists: Sequence[int],
    empty: Sequence[int | None] = (None,) * 5,
    train_rows: Mapping[int, int] | None = None,
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
            counted = _total([rows[i] for i in numbers])
            if split == "train" and train_rows is not None:
                counted = train_rows.get(fold, counted)
            known.append(
                Known(
                    (split,),
                    fold,
                    rows=counted,
                    lists=_total([lists[i] for i in numbers]),
                    empty=_total([empty[i] for i in numbers]),
                )
            )
        whole = {"lists": sum(lists), "empty": _total(empty)}
        known.append(Known(SPLITS, fold, rows=all_rows, labels=all_labels, **whole))
    return tuple(known)


def _total(counts: Sequence[int | None]) -> int | None:
    """Their sum; None if one is not known."""
    present = [count for count in counts if count is not None]
    return sum(present) if len(present) == len(counts) else None


_MSLR = "https://www.microsoft.com/en-us/research/project/mslr/"
_LETOR4 = (
    "https://www.microsoft.com/en-us/research/project/"
    "letor-learning-rank-information-retrieval/letor-4-0/"
)
_ISTELLA = "https://istella.ai/datasets/letor-dataset/"

SETS: dict[str, PublishedSet] = {
    known.name: known
    for known in (
        PublishedSet(
            name="web30k",
            folder="MSLR-WEB30K",
            page=_MSLR,
            archive="MSLR-WEB30K.zip",
            folds=5,
            width=136,
            max_grade=4,
            size=3849406307,
            sha256="08cb7977e1d5cbdeb57a9a2537a0923dbca6d46a76db9a6afc69e043c85341ae",
            files=WEB30K,
            known=_five_folds(
                rows=(None, None, None, 747218, 753611),
                lists=(6307, 6306, 6306, 6306, 6306),
                empty=(206, 195, 201, 191, 189),
                train_rows={1: 2270296},
                all_rows=3771125,
            ),
        ),
        PublishedSet(
            name="web10k",
            folder="MSLR-WEB10K",
            page=_MSLR,
            archive="MSLR-WEB10K.zip",
            folds=5,
            width=136,
            max_grade=4,
            size=1234144912,
            sha256="2902142ea33f18c59414f654212de5063033b707d5c3939556124b1120d3a0ba",
            files=WEB10K,
            known=_five_folds(
                rows=(None, None, None, None, 241521),
                lists=(2000,) * 5,
                train_rows={1: 723412},
            ),
        ),
        PublishedSet(
            name="istella",
            folder="istella-letor",
            page=_ISTELLA,
            archive="istella-letor.tar.gz",
            width=220,
            max_grade=4,
            size=1288401248,
            sha256="d45899d9a6a0e48afb250aac7ee3dc50e73e263687f15761d754515cd8284e0b",
            splits=("train", "test"),
            vali_share=0.25,
            files=ISTELLA,
            known=(
                Known(("train", "vali"), lists=23219),
                Known(("test",), lists=9799),
                Known(SPLITS, rows=10454629, lists=33018, empty=50),
            ),
        ),
        PublishedSet(
            name="istella_s",
            folder="istella-s-letor",
            page=_ISTELLA,
            archive="istella-s-letor.tar.gz",
            width=220,
            max_grade=4,
            size=472129615,
            sha256="41b21116a3650cc043dbe16f02ee39f4467f9405b37fdbcc9a6a05e230a38981",
            files=ISTELLA_S,
            known=(
                Known(("train",), rows=2043304),
                Known(SPLITS, rows=3408630, lists=33018),
            ),
        ),
        PublishedSet(
            name="mq2007",
            folder="MQ2007",
            page=_LETOR4,
            archive="MQ2007.rar",
            folds=5,
            width=46,
            max_grade=2,
            files=MQ2007,
            known=_five_folds(
                rows=(14013, 14290, 13855, 13813, 13652),
                lists=(339, 339, 339, 339, 336),
                all_rows=69623,
            ),
        ),
        PublishedSet(
            name="mq2008",
            folder="MQ2008",
            page=_LETOR4,
            archive="MQ2008.rar",
            folds=5,
            width=46,
            max_grade=2,
            files=MQ2008,
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
    """
    if name not in SETS:
        raise ConfigError(f"dataset={name} is not downloaded; choose one of {', '.join(SETS)}")
    return SETS[name]


def how_to_get(name: str, data_dir: str | Path) -> str:
    """One line: where a set is published, which archive to download, and what to run next.

    >>> how_to_get("web10k", "data").partition(" and ")[2]
    'run: python scripts/prepare_data.py dataset=web10k archive=PATH/MSLR-WEB10K.zip data_dir=data'
    """
    return published(name).how_to_get(data_dir)
