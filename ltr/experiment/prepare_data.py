"""The command ``prepare_data``: unpack a data set, fill its cache, and check its counts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.atomic import remove_parts
from ltr.console.keys import required
from ltr.console.unpack import unpack
from ltr.data.cache import file_digest
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Lists, splits_of
from ltr.data.public_sets import Known, public_sets
from ltr.errors import ConfigError, DataError
from ltr.scorers.parts import make_dataset

_FEW = 8  # the number of items is shown for each label if there are at most so many labels


def prepare_data(cfg: DictConfig) -> None:
    """Check and unpack the data set ``cfg.dataset``, fill its cache, and print what it holds.
    ``ConfigError``, ``DataError``: one line says what to change, or what differs from the published
    counts and files.
    """
    required(cfg, "dataset")
    datasets, public = _folds(cfg), public_sets().get(cfg.dataset.get("name"))
    rows, strange, text = [], [], ""
    for dataset in datasets:
        if public and isinstance(dataset, LetorFiles):  # a public set has all of them
            dataset.check(*SPLITS)
        else:
            dataset.check()
        for split in splits_of(dataset):
            lists = dataset.split(split)
            rows.append({"fold": dataset.fold, "split": split, **counts_of(lists)})
            if public and isinstance(dataset, LetorFiles):
                path = dataset.path(split)
                official = public.files.get(path.relative_to(dataset.folder).as_posix())
                if official not in (None, file_digest(path, dataset.cache_dir)):
                    strange.append(f"{path} is not the official file")
            if split == "train" and lists.columns is not None:
                coded = ", ".join(lists.columns.categories) or "none"
                text = f"\n\n{len(lists.columns.names):,} features, categories: {coded}"
    if "test" not in {row["split"] for row in rows}:
        text += "\n\nno test split: train, recommend and the others measure vali alone"
    print(table(rows) + text)
    if public and public.known:
        if strange := differences(rows, public.known) + strange:
            raise DataError(f"{'; '.join(strange)}; {public.how_to_get(cfg.data_dir)}")
        print("\nall counts are as published")


def _folds(cfg: DictConfig) -> list[Any]:
    """Unpack ``cfg.archive`` if needed; return ``cfg.dataset`` once for each of its folds."""
    dataset = make_dataset(cfg.dataset)
    if not isinstance(dataset, LetorFiles):
        if cfg.archive is not None:
            raise ConfigError("archive: this data set has none; leave it out")
        return [dataset]
    folder = dataset.folder
    remove_parts(folder.parent)  # of a process that was killed while it unpacked
    folds = cfg.dataset.get("folds") or len([*folder.glob("Fold[0-9]")])
    every = [*range(1, folds + 1)] or [None]
    if cfg.archive is not None and not any(folder.glob("*")):
        cut = [] if cfg.dataset.get("vali_share") is None else ["vali"]
        public = public_sets().get(dataset.name)
        optional = [] if public else _files(every, ["test"])
        splits = [one for one in SPLITS if one not in cut and (public or one != "test")]
        archive = Path(str(cfg.archive)).expanduser()
        unpack(archive, public, folder, _files(every, splits), optional)
    nodes: list[Any] = [
        OmegaConf.merge(cfg.dataset, {"fold": fold, "folds": folds}) for fold in every
    ]
    return [*map(make_dataset, nodes)]


def _files(folds: Sequence[int | None], splits: Sequence[str]) -> list[str]:
    """Return the path of each of ``splits`` of each fold, in the folder of the data set."""
    return [f"Fold{fold}/{one}.txt" if fold else f"{one}.txt" for fold in folds for one in splits]


def counts_of(lists: Lists) -> dict[str, Any]:
    """Return the counts of a split: rows, lists, empty lists, labels and more."""
    return {
        "rows": lists.items,
        "lists": len(lists),
        "empty lists": int(lists.empty.sum()),
        "longest list": int(lists.lengths.max()),
        "missing values": lists.missing,
        "labels": Counter(lists.labels.tolist()),
    }


def differences(rows: Sequence[Mapping[str, Any]], known: Sequence[Known]) -> list[str]:
    """Return in words every count in ``rows`` that differs from the published one."""
    found = []
    for record in known:
        parts = [r for r in rows if r["fold"] == record.fold and r["split"] in record.splits]
        must: dict[str, Any] = {
            "rows": record.rows,
            "lists": record.lists,
            "empty lists": record.empty,
            "labels": record.labels and Counter(dict(enumerate(record.labels))),
        }
        where = ("" if record.fold is None else f"Fold{record.fold} ") + "+".join(record.splits)
        for name, number in must.items():
            if number is None:
                continue
            have = sum((part[name] for part in parts), type(number)())
            if have != number:
                found.append(f"{where} has {name} {_shown(have)}, not {_shown(number)}")
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a text table with a line for each split."""
    shown = [{**row, "labels": _shown(row["labels"])} for row in rows]
    return tabulate(shown, headers="keys", intfmt=",", missingval="")


def _shown(count: Any) -> str:
    """Return a count in words; for many different labels, their number and range."""
    if not isinstance(count, Counter):
        return str(count)
    if len(count) > _FEW:
        return f"{len(count)} from {min(count):g} to {max(count):g}"
    return "  ".join(f"{label:g}: {count[label]:,}" for label in sorted(count))
