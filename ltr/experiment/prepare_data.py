"""The command ``prepare_data``: unpack a data set, fill its cache, and check its counts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.atomic import remove_parts
from ltr.cli.options import group, option
from ltr.cli.unpack import unpack
from ltr.data.cache import file_digest
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Dataset, Lists, splits_of
from ltr.data.public_sets import PublicSet, PublishedCounts, public_sets
from ltr.errors import ConfigError, DataError
from ltr.parts.components import build_dataset

_FEW_LABELS = 8  # with at most this many different labels, the table counts the items of each label


@dataclass(frozen=True, kw_only=True)
class PrepareDataOptions:
    """Check a data set, parse it into the cache, and count its lists and items. With archive=FILE,
    unpack the archive of a public data set first.

      ltr prepare_data dataset=web30k archive=PATH/MSLR-WEB30K.zip
      ltr prepare_data dataset=mq2008 data_dir=PATH           files that are already unpacked
      ltr prepare_data dataset=letor dataset.folder=MY_LISTS  a check of your own lists
      ltr prepare_data dataset=table dataset.query=Q dataset.label=L dataset.path=all.parquet
    """

    dataset: DictConfig = group(
        help="the data set; for your own lists, dataset=letor or dataset=table"
    )
    archive: str | None = option(
        None,
        help="the archive that you downloaded, or a folder that contains its files; null = the "
        "files are already in data_dir",
    )
    data_dir: str = option("data", help="the folder that holds the data sets")
    cache_dir: str = option(
        "data/cache", help="the folder in which parsed data files are kept, as memory-mapped arrays"
    )


def prepare_data(options: PrepareDataOptions) -> None:
    """Unpack and check a data set, fill its cache, and print its counts.

    Raises:
        ConfigError: a setting is invalid.
        DataError: a file cannot be read, or the counts or files are not the published ones.
    """
    public = public_sets().get(options.dataset.get("name"))
    rows = []
    differing_files = []
    columns_text = ""
    for dataset in _datasets_of_folds(options):
        if public and isinstance(dataset, LetorFiles):  # a public set has all of them
            dataset.check(*SPLITS)
        else:
            dataset.check()
        for split in splits_of(dataset):
            lists = dataset.split(split)
            rows.append({"fold": dataset.fold, "split": split, **counts_of(lists)})
            if public and isinstance(dataset, LetorFiles):
                differing_files += _unofficial_files(dataset, split, public)
            if split == "train" and lists.columns is not None:
                coded = ", ".join(lists.columns.categories) or "none"
                columns_text = f"\n\n{len(lists.columns.names):,} features, categories: {coded}"
    if "test" not in {row["split"] for row in rows}:
        columns_text += "\n\nno test split: metrics are computed on vali only"
    print(table(rows) + columns_text)
    if public and public.counts:
        problems = differences(rows, public.counts) + differing_files
        if problems:
            raise DataError(f"{'; '.join(problems)}; {public.how_to_get(options.data_dir)}")
        print("\nall counts match the published ones")


def _unofficial_files(dataset: LetorFiles, split: str, public: PublicSet) -> list[str]:
    """Return a list with a message if the file of ``split`` is not the published one, else []."""
    path = dataset.path(split)
    official = public.files.get(path.relative_to(dataset.folder).as_posix())
    if official is None or official == file_digest(path, dataset.cache_dir):
        return []
    return [f"{path} is not the official file"]


def _datasets_of_folds(options: PrepareDataOptions) -> list[Dataset]:
    """Unpack the archive if needed; return the data set once for each of its folds."""
    dataset = build_dataset(options.dataset)
    if not isinstance(dataset, LetorFiles):
        if options.archive is not None:
            raise ConfigError(
                "archive: this data set does not come in an archive; leave out archive"
            )
        return [dataset]
    folder = dataset.folder
    remove_parts(folder.parent)  # of a process that was killed while it unpacked
    fold_count = options.dataset.get("folds") or len([*folder.glob("Fold[0-9]")])
    folds = [*range(1, fold_count + 1)] or [None]
    if options.archive is not None and not any(folder.glob("*")):
        has_vali = options.dataset.get("vali_share") is None
        _unpack_archive(options.archive, dataset, folds, has_vali=has_vali)
    nodes: list[Any] = [
        OmegaConf.merge(options.dataset, {"fold": fold, "folds": fold_count}) for fold in folds
    ]
    return [*map(build_dataset, nodes)]


def _unpack_archive(
    archive: str, dataset: LetorFiles, folds: Sequence[int | None], *, has_vali: bool
) -> None:
    """Unpack the files of all ``folds``; a test split is required for a public data set only."""
    public = public_sets().get(dataset.name)
    splits = ["train"]
    if has_vali:
        splits.append("vali")
    if public:
        splits.append("test")
    optional = [] if public else _split_files(folds, ["test"])
    path = Path(archive).expanduser()
    unpack(path, public, dataset.folder, _split_files(folds, splits), optional)


def _split_files(folds: Sequence[int | None], splits: Sequence[str]) -> list[str]:
    """Return the path of each split of each fold, relative to the folder of the data set."""
    return [
        f"Fold{fold}/{split}.txt" if fold else f"{split}.txt" for fold in folds for split in splits
    ]


def counts_of(lists: Lists) -> dict[str, Any]:
    """Return the numbers of rows, lists, empty lists and missing values of a split, and more."""
    return {
        "rows": lists.items,
        "lists": len(lists),
        "empty lists": int(lists.empty.sum()),
        "longest list": int(lists.lengths.max()),
        "missing values": lists.missing,
        "labels": Counter(lists.labels.tolist()),
    }


def differences(
    rows: Sequence[Mapping[str, Any]], published: Sequence[PublishedCounts]
) -> list[str]:
    """Return a message for each count in ``rows`` that differs from the published one.

    Args:
        rows: a row for each split of each fold: the ``fold``, the ``split``, and the counts that
            ``counts_of`` returned.
        published: the published counts; one that covers several splits is compared with the sum
            over these splits.
    """
    messages = []
    for record in published:
        counted = [
            row for row in rows if row["fold"] == record.fold and row["split"] in record.splits
        ]
        expected_counts: dict[str, Any] = {
            "rows": record.rows,
            "lists": record.lists,
            "empty lists": record.empty,
            "labels": record.labels and Counter(dict(enumerate(record.labels))),
        }
        fold = "" if record.fold is None else f"Fold{record.fold} "
        title = f"{fold}{'+'.join(record.splits)}"
        for name, expected in expected_counts.items():
            if expected is None:
                continue
            actual = sum((row[name] for row in counted), type(expected)())
            if actual != expected:
                messages.append(
                    f"{title}, {name}: expected {_count_text(expected)}, got {_count_text(actual)}"
                )
    return messages


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a text table with a line for each split."""
    shown = [{**row, "labels": _count_text(row["labels"])} for row in rows]
    return tabulate(shown, headers="keys", intfmt=",", missingval="")


def _count_text(count: Any) -> str:
    """Return a count, or the number of items of each label, as text.

    If there are more than ``_FEW_LABELS`` different labels, their number and range are returned.
    """
    if not isinstance(count, Counter):
        return str(count)
    if len(count) > _FEW_LABELS:
        return f"{len(count)} from {min(count):g} to {max(count):g}"
    return "  ".join(f"{label:g}: {count[label]:,}" for label in sorted(count))
