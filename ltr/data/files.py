"""``LetorFiles``: a data set in LETOR/LibSVM files."""

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from ltr.data.assemble import Assembler, assemble
from ltr.data.cache import cached_lists, file_digest
from ltr.data.cut import Part, cut, place
from ltr.data.letor import READER_VERSION, Rules, item_ids, read_blocks, together
from ltr.data.lists import SPLITS, Lists
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError, DataError

log = logging.getLogger(__name__)


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
        """Describe the files; nothing is read yet.

        Args:
            name: of the set in results; the errors of a public set tell how to get it.
            folder: the folder under ``data_dir`` that holds the files, or ``Fold1``, ``Fold2``, ...
            data_dir, cache_dir: the folders of all data sets and of the parsed arrays.
            fold: 1-based; None: the files lie in ``folder`` itself.
            folds: how many folds the set has; 0: none, or not known.
            width: number of features; None: the largest index of ``train``, then fixed.
            labels, max_grade, regroup: as for ``ltr.data.letor.read_letor``.
            vali_share: of the queries of ``train.txt``, which are vali where no ``vali.txt`` is.
            seed: of that cut.

        Raises:
            ConfigError: ``folder`` is None, or a setting is out of its range.
        """
        if folder is None:
            raise ConfigError(
                f"dataset={name} needs a folder: set dataset.folder=NAME, a folder in {data_dir}"
            )
        whole = isinstance(fold, int) and not isinstance(fold, bool)
        if fold is not None and not (whole and (folds or fold >= 1)):
            raise ConfigError(f"fold={fold}: give a whole number >= 1, such as dataset.fold=1")
        if folds and fold not in range(1, folds + 1):
            raise ConfigError(f"fold={fold}: {name} has {folds} folds, set dataset.fold=1..{folds}")
        self.name, self.fold, self.regroup = name, fold, regroup
        self.data_dir = Path(str(data_dir))  # a name such as 2024 is a number in YAML
        self.cache_dir = Path(str(cache_dir))
        self.folder = self.data_dir / str(folder)
        self.rules = Rules(width=width, labels=labels, max_grade=max_grade)
        self._width, self._vali_share, self._seed = width, vali_share, seed

    @property
    def width(self) -> int:
        """Number of features; where it was not given, ``train`` is read to find it."""
        if self._width is None:
            self._width = self.split("train").width
        return self._width

    def path(self, split: str) -> Path:
        """The file of ``train``, ``vali`` or ``test``.

        Raises:
            ConfigError: there is no such split.
        """
        if split not in SPLITS:
            raise ConfigError(f"split={split}: choose one of {', '.join(SPLITS)}")
        return self._place / f"{'train' if split in self._cut else split}.txt"

    @property
    def _cut(self) -> tuple[str, ...]:
        """The splits that are cut from ``train.txt``."""
        alone = self._vali_share is not None and not (self._place / "vali.txt").exists()
        return ("train", "vali") if alone else ()

    def _part(self, split: str, rules: Rules) -> Part | None:
        """The queries of ``train.txt`` that are ``split``; None: all."""
        if split not in self._cut or self._vali_share is None:
            return None
        blocks = read_blocks(self.path(split), rules)
        places = {place(qid, self._seed) for block in blocks for qid in block.queries}
        shares = [1 - self._vali_share, self._vali_share]
        remedy = "put a vali.txt beside it"
        parts = cut(places, shares, self._seed, title=str(self.path(split)), remedy=remedy)
        return dict(zip(self._cut, parts, strict=True))[split]

    def check(self) -> None:
        """Raise ``DataError`` that names every missing file; read no data."""
        self._check(SPLITS)

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``, parsed once and then mapped from the cache.

        Raises:
            DataError: the file is not there, is malformed, or the cache cannot be written.
            ConfigError: there is no such split.
        """
        path = self.path(split)
        self._check([split])
        rules = self.rules if split == "train" else replace(self.rules, width=self.width)
        digest = file_digest(path, self.cache_dir)
        if split in self._cut:
            text = f"{digest} {split} vali_share={self._vali_share} seed={self._seed}"
            content = hashlib.sha256(text.encode()).hexdigest()
        else:
            content = digest
        key = f"letor {content} reader={READER_VERSION} {rules} regroup={self.regroup}"

        def build(into: Assembler) -> Lists:
            size, sha256 = path.stat().st_size, hashlib.sha256()
            with tqdm(desc=str(path), total=size, unit="B", unit_scale=True, disable=None) as bar:

                def see(text: bytes) -> None:
                    sha256.update(text)
                    bar.update(len(text))

                blocks = read_blocks(path, rules, see)
                lists = assemble(
                    blocks, into, keep=self._part(split, rules), apart=together(self.regroup),
                    digest=lambda: content,
                )  # fmt: skip
            if sha256.hexdigest() != digest:
                raise DataError(f"{path}: changed while it was read; run again when it is complete")
            return lists

        lists = cached_lists(self.cache_dir, key, build, width=rules.width)
        if split == "train":
            self._width = lists.width
        if lists.missing:
            log.info("%d values of %s are missing: nan, or beyond float32", lists.missing, path)
        return lists

    def ids(self, split: str, rows: Sequence[int]) -> list[str]:
        """The ids of these rows of the file of ``split``, as ``item_ids``."""
        found, row, last = dict.fromkeys(rows, ""), -1, max(rows)
        with self.path(split).open("rb") as file:
            for line in file:
                if ids := item_ids(line):
                    row += 1
                    found |= {row: ids[0]} if row in found else {}
                if row == last:
                    break
        return [found[row] for row in rows]

    @property
    def _place(self) -> Path:
        return self.folder if self.fold is None else self.folder / f"Fold{self.fold}"

    def _check(self, splits: Sequence[str]) -> None:
        try:
            missing = [path for path in map(self.path, splits) if not path.is_file()]
            if missing:
                raise DataError(self._explain(missing))
        except OSError as error:  # a name that is too long, a folder that may not be read
            raise DataError(
                f"{error.filename or self._place}: {error.strerror or error}; "
                "set dataset.folder and data_dir to a folder that can be read"
            ) from None

    def _explain(self, missing: Sequence[Path]) -> str:
        if strange := [path for path in missing if os.path.lexists(path)]:
            return (
                f"{strange[0]}: a folder, a pipe or a link that leads nowhere; "
                "put a file of LETOR text there"
            )
        if self.fold is None and any(self.folder.glob("Fold[1-9]*")):
            holds = _contents(self.folder)
            return f"{self.folder} holds {holds}; set dataset.fold=1, or another of them"
        if self._place.is_dir():
            files = ", ".join(path.name for path in missing)
            found = f"{self._place}: no {files}; it holds {_contents(self._place)}"
        else:
            found = f"{self._place}: no such folder"
        return f"{found}; {self._remedy()}"

    def _remedy(self) -> str:
        if public := public_sets().get(self.name):
            return public.how_to_get(self.data_dir)
        if self._place.is_dir():
            return "name the files train.txt, vali.txt and test.txt"
        for there, setting in (
            (self.folder, "dataset.fold to one there, or to null"),
            (self.data_dir, "dataset.folder to one there, or data_dir=DIR"),
        ):
            if there.is_dir():
                return f"{there} holds {_contents(there)}; set {setting}"
        return "set data_dir=DIR to the folder that holds it"


def _contents(folder: Path) -> str:
    """The names in a folder, files first, at most eight."""
    paths = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    more = f" and {len(paths) - 8} more" if len(paths) > 8 else ""
    return (", ".join(path.name for path in paths[:8]) or "nothing") + more
