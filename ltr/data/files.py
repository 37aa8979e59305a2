"""Data sets in files: the base class ``SplitFiles``, and ``LetorFiles`` for LETOR/LibSVM text."""

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from ltr.data.assemble import Block, assemble
from ltr.data.cache import StrPath, cached_lists, check_unchanged, file_digest
from ltr.data.letor import (
    CHUNK_BYTES,
    READER_VERSION,
    ParseOptions,
    item_ids,
    read_blocks,
    text_chunks,
)
from ltr.data.lists import SPLITS, Columns, Lists, check_split, split_queries
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError, DataError

log = logging.getLogger(__name__)
OTHER_SPLIT = "use split=vali (metrics on vali are too high: the epoch was chosen on vali)"


class SplitContent(NamedTuple):
    """The rows of a split before they are grouped into lists."""

    blocks: Iterable[Block]
    columns: Columns | None
    remarks: Mapping[str, str]


# The argument holds the query ids to keep; None: all.
ReadSplit = Callable[[Container[str] | None], SplitContent]


class SplitFiles:
    """Base class of data sets in files, which are read once and then mapped from the cache.

    Several splits may share a file.
    """

    _remedy = "add a file vali.txt to its folder"  # for a file with too few queries to divide

    def __init__(
        self,
        name: str,
        data_dir: StrPath,
        cache_dir: StrPath,
        rules: ParseOptions,
        paths: Mapping[str, str],
        cut: Sequence[str],
        fractions: Sequence[float],
        seed: int,
    ) -> None:
        """Describe the files; nothing is read yet.

        Args:
            name: the name of the data set in results.
            data_dir: the folder to which the paths are relative.
            cache_dir: the folder of the cached arrays.
            rules: which labels and features are valid.
            paths: the path of each split.
            cut: the splits that share one file; its queries are divided between them at random.
            fractions: the fraction of the queries in each of these splits.
            seed: the seed of that division.
        """
        self.name = name
        self.rules = rules
        self._paths = paths
        self._cut = cut
        self._fractions = fractions
        self._seed = seed
        self._shown_remarks = set[str]()  # subjects of the remarks that have been shown
        self.data_dir = Path(str(data_dir))  # a name such as 2024 is a number in YAML
        self.cache_dir = Path(str(cache_dir))

    def path(self, split: str) -> Path:
        """Return the path of a split's file or folder.

        Raises ``ConfigError`` if the split has no path.
        """
        if check_split(split) not in self._paths:
            remedy = f", or {OTHER_SPLIT}" if split == "test" else ""
            raise ConfigError(
                f"the data set has no {split} split: set dataset.split.{split}=PATH to a table in "
                f"{self.data_dir}{remedy}"
            )
        return self.data_dir / self._paths[split]

    def _digest(self, path: Path) -> str:
        """Return the digest of the content of ``path``."""
        return file_digest(path, self.cache_dir)

    def _qids(self, path: Path) -> Iterable[str]:
        """Return the query ids in ``path``, each at least once."""
        raise NotImplementedError

    @cached_property
    def _queries(self) -> dict[str, set[str]]:
        """The query ids of each split that shares the file of ``train``."""
        path = self.path("train")
        queries = split_queries(
            self._qids(path), self._fractions, self._seed, title=str(path), remedy=self._remedy
        )
        return dict(zip(self._cut, queries, strict=True))

    def _lists(
        self,
        split: str,
        key: str,
        content_digest: str,
        read: ReadSplit,
        *,
        digest: str,
        require_adjacent: bool = False,
        total: int | None = None,
    ) -> Lists:
        """Return the lists in the cache entry ``key``; build the entry first if it is missing.

        The remarks of the lists are shown as warnings, each only once.

        Args:
            split: the name of the split.
            key: the key of the cache entry.
            content_digest: the digest of the split's file or folder.
            read: reads the rows of the split.
            digest: the digest to store in ``Lists.digest``.
            require_adjacent: raise an error if there are other rows between the rows of a query.
            total: the number of blocks for the progress bar; None: unknown.
        """
        path = self.path(split)

        def build(file: Path) -> Lists:
            keep = self._queries[split] if split in self._cut else None
            content = read(keep)
            hidden = True if sys.stderr is None else None  # None: shown in a terminal only
            blocks = tqdm(content.blocks, str(path), total, unit=" blocks", disable=hidden)
            lists = assemble(
                blocks,
                file,
                keep=keep,
                require_adjacent=require_adjacent,
                digest=digest,
                columns=content.columns,
            )
            check_unchanged(path, content_digest, self._digest(path))
            return replace(lists, remarks={**content.remarks, **lists.remarks})

        lists = cached_lists(self.cache_dir, key, build)
        for subject, remark in lists.remarks.items():
            if subject not in self._shown_remarks:
                self._shown_remarks.add(subject)
                _warn_once(f"{path}: {remark}")
        return lists


@cache
def _warn_once(line: str) -> None:
    log.warning("%s", line)


class LetorFiles(SplitFiles):
    """The files ``train.txt``, ``vali.txt`` and, optionally, ``test.txt`` of a folder or a fold.

    The folds of a folder are its subfolders ``Fold1``, ``Fold2``, ... Each file is parsed once;
    later runs map the arrays from the cache. The key of a cache entry contains a hash of the file's
    content and the settings with which it is read.
    """

    def __init__(
        self,
        *,
        name: str,
        folder: str | None,
        data_dir: StrPath,
        cache_dir: StrPath,
        fold: int | None = None,
        folds: int = 0,
        width: int | None = None,
        labels: str = "grade",
        max_grade: int | None = None,
        regroup: bool = False,
        vali_share: float | None = None,
        seed: int = 1,
    ) -> None:
        """Describe the files; nothing is read yet.

        Raises ``ConfigError`` if a setting is out of range.

        Args:
            name: the name of the data set in results. If a public data set has this name, errors
                about missing files say how to download the data set.
            folder: the folder under ``data_dir`` that holds the files, or the subfolders ``Fold1``,
                ``Fold2``, ...
            data_dir: the folder of all data sets.
            cache_dir: the folder of the cached arrays.
            fold: the number of the fold, >= 1; None: the files are in ``folder`` itself.
            folds: the number of folds of the data set; 0: it has none, or the number is unknown.
            width: the number of features of every item; None: the largest feature index in train.
            labels: ``"grade"`` (whole numbers) or ``"real"``; see ``ltr.data.letor.ParseOptions``.
            max_grade: the largest label allowed; see ``ltr.data.letor.ParseOptions``.
            regroup: accept a query whose rows are not next to each other, and put them together.
            vali_share: the fraction of the queries of ``train.txt`` that become the validation
                lists if there is no ``vali.txt``; None: ``vali.txt`` is required.
            seed: the seed with which these queries are drawn.
        """
        if folder is None:
            raise ConfigError(
                f"dataset.folder is not set: set dataset.folder=NAME, the folder in {data_dir} "
                f"that holds the files of {name}"
            )
        is_fold = type(fold) is int and 1 <= fold <= (folds or fold)
        if not is_fold and (folds or fold is not None):
            limits = f"from 1 to {folds}" if folds else ">= 1"
            raise ConfigError(f"dataset.fold={fold}: give a whole number {limits}")
        files = Path(str(folder))
        if fold is not None:
            files /= f"Fold{fold}"
        paths = {split: f"{files}/{split}.txt" for split in SPLITS}
        cut: Sequence[str] = ()
        if vali_share is not None and not Path(str(data_dir), paths["vali"]).exists():
            cut = SPLITS[:2]
            paths["vali"] = paths["train"]
        rules = ParseOptions(width=width, labels=labels, max_grade=max_grade)
        share = vali_share or 0.0
        super().__init__(name, data_dir, cache_dir, rules, paths, cut, (1 - share, share), seed)
        self.fold = fold
        self.regroup = regroup
        self._width = width
        self.folder = self.data_dir / str(folder)

    @property
    def width(self) -> int:
        """Number of features; if the config does not give it, ``train`` is read to find it."""
        if self._width is None:
            self._width = self.split("train").width
        return self._width

    def _qids(self, path: Path) -> Iterable[str]:
        return (qid for block in read_blocks(path, self.rules) for qid in block.queries)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the data set: train and vali, and test if there is a ``test.txt``."""
        # A broken link counts too, so that ``check`` reports it.
        return SPLITS if os.path.lexists(self.path("test")) else SPLITS[:2]

    def check(self, *splits: str) -> None:
        """Raise ``DataError``, which names the missing files, if files of ``splits`` are missing.

        No data are read. Without an argument, all splits of the data set are checked.
        """
        missing = self._missing(splits or self.splits)
        if not missing:
            return
        folder = self.path("train").parent
        public = public_sets().get(self.name)
        folds = self._count_folds() if self.fold is None else 0
        remedy = "set dataset.folder, dataset.fold and data_dir to where the files are"
        if public:
            missing = self._missing(splits or SPLITS)
            remedy = public.how_to_get(self.data_dir)
        elif splits == ("test",) and self.path("train").is_file():
            remedy = f"the data set has no test split: put a test.txt there, or {OTHER_SPLIT}"
        elif folds:
            remedy = (
                f"the folder has folds: set dataset.fold=1, or dataset.folds={folds} in a command "
                "that trains on all folds"
            )
        raise DataError(f"{folder}: missing {', '.join(missing)}; {remedy}")

    def _count_folds(self) -> int:
        """Return the number of subfolders ``Fold1``, ``Fold2``, ... of the data set's folder."""
        if not os.path.isdir(self.folder):  # noqa: PTH112 (a name that is too long is no error)
            return 0
        return len([*self.folder.glob("Fold[0-9]")])

    def _missing(self, splits: Sequence[str]) -> list[str]:
        """Return the names of the missing files of ``splits``."""
        paths = dict.fromkeys(map(self.path, splits))  # splits may share a file
        return [path.name for path in paths if not os.path.isfile(path)]  # noqa: PTH113

    def split(self, split: str) -> Lists:
        """Return the lists of a split, which are parsed once and then mapped from the cache.

        Raises ``DataError`` if the file is missing or malformed, or the cache cannot be written.
        """
        self.check(split)
        path = self.path(split)
        rules = self.rules
        if split != "train":
            rules = replace(rules, width=self.width)
        content_digest = self._digest(path)
        digest = content_digest
        if split in self._cut:
            text = f"{content_digest} {split} vali_share={self._fractions[1]} seed={self._seed}"
            digest = hashlib.sha256(text.encode()).hexdigest()
        lists = self._lists(
            split,
            f"letor {digest} reader={READER_VERSION} {rules.cache_text} regroup={self.regroup}",
            content_digest,
            lambda keep: SplitContent(read_blocks(path, rules), None, {}),
            digest=digest,
            require_adjacent=not self.regroup,
            total=-(-path.stat().st_size // CHUNK_BYTES),
        )
        if split == "train":
            self._width = lists.width
        return lists

    def ids(self, split: str, rows: Sequence[int]) -> list[str]:
        """Return the ids in the comments of the given rows, which are numbered from 0.

        See ``item_ids``.
        """
        with self.path(split).open("rb") as file:
            all_ids = (item_id for text in text_chunks(file) for item_id in item_ids(text))
            ids = list(islice(all_ids, max(rows) + 1))
        return [ids[row] for row in rows]
