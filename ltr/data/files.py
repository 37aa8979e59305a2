"""``LetorFiles``: a data set in LETOR/LibSVM files."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ltr.data.assemble import assemble
from ltr.data.cache import cached_lists, check_unchanged, file_digest
from ltr.data.letor import READER_VERSION, Rules, item_ids, read_blocks
from ltr.data.lists import SPLITS, Lists, check_split, split_queries
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError, DataError


class LetorFiles:
    """``train.txt``, ``vali.txt`` and ``test.txt`` of a folder, or of one of its folds.

    Each file is parsed once; later runs map the arrays from the cache, keyed by the content of the
    file and by how it is read.
    """

    def __init__(
        self,
        *,
        name: str,
        folder: str | None,
        data_dir: str | os.PathLike[str],
        cache_dir: str | os.PathLike[str],
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
        self.name, self.fold, self.regroup = name, fold, regroup
        self.data_dir = Path(str(data_dir))  # a name such as 2024 is a number in YAML
        self.cache_dir = Path(str(cache_dir))
        self.rules = Rules(width=width, labels=labels, max_grade=max_grade)
        self._width, self._vali_share, self._seed = width, vali_share, seed
        self.folder = self.data_dir / str(folder)
        self._place = self.folder if fold is None else self.folder / f"Fold{fold}"

    @property
    def width(self) -> int:
        """Number of features; where it was not given, ``train`` is read to find it."""
        if self._width is None:
            self._width = self.split("train").width
        return self._width

    def path(self, split: str) -> Path:
        """The file of ``train``, ``vali`` or ``test``."""
        return self._place / f"{'train' if check_split(split) in self._cut else split}.txt"

    @property
    def _cut(self) -> tuple[str, ...]:
        """The splits that are cut from ``train.txt``."""
        cut = self._vali_share is not None and not (self._place / "vali.txt").exists()
        return ("train", "vali") if cut else ()

    @cached_property
    def _parts(self) -> list[set[str]]:
        """The queries of train and vali where these are cut from ``train.txt``."""
        path, share = self.path("train"), self._vali_share or 0.0
        qids = {qid for block in read_blocks(path, self.rules) for qid in block.queries}
        fractions, remedy = [1 - share, share], "put a vali.txt beside it"
        return split_queries(qids, fractions, self._seed, title=str(path), remedy=remedy)

    def check(self, *splits: str) -> None:
        """Raise ``DataError`` that names every missing file of ``splits``, all; read no data."""
        paths = [self.path(split) for split in splits or SPLITS]
        if missing := [path.name for path in paths if not os.path.isfile(path)]:  # noqa: PTH113
            public = public_sets().get(self.name)
            remedy = "set dataset.folder, dataset.fold and data_dir to where they are"
            raise DataError(
                f"{self._place}: no file {', '.join(missing)}; "
                f"{public.how_to_get(self.data_dir) if public else remedy}"
            )

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``, parsed once and then mapped from the cache.

        ``DataError``: the file is not there, is malformed, or the cache cannot be written.
        """
        self.check(split)
        path = self.path(split)
        rules = self.rules if split == "train" else replace(self.rules, width=self.width)
        content = digest = file_digest(path, self.cache_dir)
        if split in self._cut:
            text = f"{digest} {split} vali_share={self._vali_share} seed={self._seed}"
            content = hashlib.sha256(text.encode()).hexdigest()

        def build(file: Path) -> Lists:
            size = path.stat().st_size
            with tqdm(desc=str(path), total=size, unit="B", unit_scale=True, disable=None) as bar:
                blocks = read_blocks(path, rules, lambda text: bar.update(len(text)))
                keep = self._parts[SPLITS.index(split)] if split in self._cut else None
                how: Any = {"together": not self.regroup, "digest": content}
                lists = assemble(blocks, file, keep=keep, **how)
            check_unchanged(path, digest, file_digest(path, self.cache_dir))
            return lists

        key = f"letor {content} reader={READER_VERSION} {rules} regroup={self.regroup}"
        lists = cached_lists(self.cache_dir, key, build)
        if split == "train":
            self._width = lists.width
        return lists

    def ids(self, split: str, rows: Sequence[int]) -> list[str]:
        """The ids of these rows of the file of ``split``, as ``item_ids``."""
        with self.path(split).open("rb") as file:
            every = (one for line in file for one in item_ids(line))
            ids = list(islice(every, max(rows) + 1))
        return [ids[row] for row in rows]
