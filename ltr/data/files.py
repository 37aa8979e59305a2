"""Data sets in files: ``SplitFiles``, what all share, and ``LetorFiles``, LETOR/LibSVM text."""

import hashlib
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ltr.data.assemble import Block, assemble
from ltr.data.cache import Place, cached_lists, check_unchanged, file_digest
from ltr.data.letor import CHUNK_BYTES, READER_VERSION, Rules, item_ids, read_blocks
from ltr.data.lists import SPLITS, Columns, Lists, check_split, split_queries
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError, DataError

Reading = Callable[[Container[str] | None], tuple[Iterable[Block], Columns | None]]


class SplitFiles:
    """Splits in files, some perhaps cut from one by query; each is read once, then mapped."""

    _remedy = "put a vali.txt beside it"  # where a file is too small to be cut

    def __init__(
        self, name: str, data_dir: Place, cache_dir: Place, rules: Rules,
        paths: Mapping[str, str], cut: Sequence[str], fractions: Sequence[float], seed: int,
    ) -> None:  # fmt: skip
        """``paths`` begin at ``data_dir``; ``cut`` are the splits with ``fractions`` of a file."""
        self.name, self.rules, self._paths = name, rules, paths
        self._cut, self._fractions, self._seed = cut, fractions, seed
        self.data_dir = Path(str(data_dir))  # a name such as 2024 is a number in YAML
        self.cache_dir = Path(str(cache_dir))

    def path(self, split: str) -> Path:
        """The file or folder that a split is in; ``ConfigError`` where none is given."""
        if check_split(split) not in self._paths:
            raise ConfigError(f"give dataset.split.{split}=PATH, a table in {self.data_dir}")
        return self.data_dir / self._paths[split]

    def _digest(self, path: Path) -> str:
        """Of the content of what lies there."""
        return file_digest(path, self.cache_dir)

    def _qids(self, path: Path) -> Iterable[str]:
        """The query ids of what lies there."""
        raise NotImplementedError

    @cached_property
    def _parts(self) -> dict[str, set[str]]:
        """The queries of each split that is cut."""
        path = self.path("train")
        parts = split_queries(
            self._qids(path), self._fractions, self._seed, title=str(path), remedy=self._remedy
        )
        return dict(zip(self._cut, parts, strict=True))

    def _lists(
        self, split: str, key: str, content: str, read: Reading, *, total: int | None = None,
        **how: Any,
    ) -> Lists:  # fmt: skip
        """The cache entry ``key``; where it is not there, what ``read`` gives of its queries.

        ``content`` is the digest of its path, ``total`` its number of blocks where that is known,
        ``how`` as for ``assemble``.
        """
        path = self.path(split)

        def build(file: Path) -> Lists:
            keep = self._parts[split] if split in self._cut else None
            blocks, columns = read(keep)
            bar = tqdm(blocks, str(path), total, unit=" blocks", disable=None)
            lists = assemble(bar, file, keep=keep, columns=columns, **how)
            check_unchanged(path, content, self._digest(path))
            return lists

        return cached_lists(self.cache_dir, key, build)


class LetorFiles(SplitFiles):
    """``train.txt``, ``vali.txt`` and ``test.txt`` of a folder, or of one of its folds.

    Each file is parsed once; later runs map the arrays from the cache, keyed by the content of the
    file and by how it is read.
    """

    def __init__(
        self,
        *,
        name: str,
        folder: str | None,
        data_dir: Place,
        cache_dir: Place,
        fold: int | None = None,
        folds: int = 0,
        width: int | None = None,
        labels: str = "grade",
        max_grade: int | None = None,
        regroup: bool = False,
        vali_share: float | None = None,
        seed: int = 1,
    ) -> None:
        """Describe the files; nothing is read yet. ``ConfigError``: a setting is out of its range.

        Args:
            name: of the set in results; the errors of a public set tell how to get it.
            folder: the folder under ``data_dir`` that holds the files, or ``Fold1``, ``Fold2``, ...
            data_dir, cache_dir: the folders of all data sets and of the parsed arrays.
            fold: 1-based; None: the files lie in ``folder`` itself.
            folds: how many folds the set has; 0: none, or not known.
            width: number of features; None: the largest index of ``train``, then fixed.
            labels, max_grade, regroup: as for ``ltr.data.letor.Rules`` and ``read_letor``.
            vali_share: of the queries of ``train.txt``, which are vali where no ``vali.txt`` is.
            seed: of that cut.
        """
        if folder is None:
            raise ConfigError(f"give dataset.folder=NAME, the folder of {name} in {data_dir}")
        good = type(fold) is int and 1 <= fold <= (folds or fold)
        if not good and (folds or fold is not None):
            raise ConfigError(
                f"dataset.fold={fold}: give a whole number from 1{f' to {folds}' if folds else ''}"
            )
        place = Path(str(folder), *([] if fold is None else [f"Fold{fold}"]))
        cut: Sequence[str] = ()
        if vali_share is not None and not Path(str(data_dir), place, "vali.txt").exists():
            cut = SPLITS[:2]
        paths = {split: f"{place}/{'train' if split in cut else split}.txt" for split in SPLITS}
        rules, share = Rules(width=width, labels=labels, max_grade=max_grade), vali_share or 0.0
        super().__init__(name, data_dir, cache_dir, rules, paths, cut, (1 - share, share), seed)
        self.fold, self.regroup, self._width = fold, regroup, width
        self.folder = self.data_dir / str(folder)

    @property
    def width(self) -> int:
        """Number of features; where it was not given, ``train`` is read to find it."""
        if self._width is None:
            self._width = self.split("train").width
        return self._width

    def _qids(self, path: Path) -> Iterable[str]:
        return (qid for block in read_blocks(path, self.rules) for qid in block.queries)

    def check(self, *splits: str) -> None:
        """Raise ``DataError`` that names every missing file of ``splits``, all; read no data."""
        paths = [self.path(split) for split in splits or SPLITS]
        if missing := [path.name for path in paths if not os.path.isfile(path)]:  # noqa: PTH113
            public = public_sets().get(self.name)
            remedy = "set dataset.folder, dataset.fold and data_dir to where they are"
            raise DataError(
                f"{paths[0].parent}: no file {', '.join(missing)}; "
                f"{public.how_to_get(self.data_dir) if public else remedy}"
            )

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``, parsed once and then mapped from the cache.

        ``DataError``: the file is not there, is malformed, or the cache cannot be written.
        """
        self.check(split)
        path, rules = self.path(split), self.rules
        if split != "train":
            rules = replace(rules, width=self.width)
        content = digest = self._digest(path)
        if split in self._cut:
            text = f"{content} {split} vali_share={self._fractions[1]} seed={self._seed}"
            digest = hashlib.sha256(text.encode()).hexdigest()
        lists = self._lists(
            split,
            f"letor {digest} reader={READER_VERSION} {rules} regroup={self.regroup}",
            content,
            lambda keep: (read_blocks(path, rules), None),
            digest=digest,
            together=not self.regroup,
            total=-(-path.stat().st_size // CHUNK_BYTES),
        )
        if split == "train":
            self._width = lists.width
        return lists

    def ids(self, split: str, rows: Sequence[int]) -> list[str]:
        """The ids of these rows of the file of ``split``, as ``item_ids``."""
        with self.path(split).open("rb") as file:
            every = (one for line in file for one in item_ids(line))
            ids = list(islice(every, max(rows) + 1))
        return [ids[row] for row in rows]
