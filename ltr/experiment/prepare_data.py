"""The command prepare_data: unpack a data set, fill its cache, count, compare with its facts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.console.keys import required
from ltr.console.unpack import unpack
from ltr.data.cache import file_digest
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Lists
from ltr.data.public_sets import Known, public_sets
from ltr.data.transforms import column_range
from ltr.errors import ConfigError, DataError
from ltr.scorers.parts import make_dataset

_FEW = 8  # up to so many different labels, each is counted


def prepare_data(cfg: DictConfig) -> None:
    """Prepare the data set that ``cfg`` names and print what it holds."""
    text, wrong = prepared(cfg)
    print(text)
    if wrong:
        raise DataError(wrong)


def prepared(cfg: DictConfig) -> tuple[str, str]:
    """Check and unpack the data set ``cfg.dataset``, fill its cache and count its contents.

    Returns:
        The table to print; and all that is not as published, with the remedy, or nothing.

    Raises:
        ConfigError, DataError: one line that says what to mend.
    """
    required(cfg, "dataset")
    datasets, public = _folds(cfg), public_sets().get(cfg.dataset.get("name"))
    rows, strange, text = [], [], ""
    for dataset in datasets:
        dataset.check()
        for split in SPLITS:
            lists = dataset.split(split)
            rows.append(count_items(lists, dataset.fold, split))
            if public and isinstance(dataset, LetorFiles):
                path = dataset.path(split)
                official = public.files.get(path.relative_to(dataset.folder).as_posix())
                if official not in (None, file_digest(path, dataset.cache_dir)):
                    strange.append(f"{path} is not the official file")
            if split == "train" and lists.columns is not None:
                coded = ", ".join(lists.columns.categories) or "none"
                text = f"\n\n{len(lists.columns.names):,} features, categories: {coded}"
    if public is None or not public.known:
        return table(rows) + text, ""
    if strange := differences(rows, public.known) + strange:
        return table(rows), f"{'; '.join(strange)}; {public.how_to_get(cfg.data_dir)}"
    return f"{table(rows)}\n\nall counts are as published", ""


def _folds(cfg: DictConfig) -> list[Any]:
    """The data set ``cfg.dataset``, once for each fold that it has; an archive is unpacked."""
    dataset = make_dataset(cfg.dataset)
    if not isinstance(dataset, LetorFiles):
        if cfg.archive is not None:
            raise ConfigError("archive: this data set has none; leave it out")
        return [dataset]
    folder = dataset.folder
    folds = cfg.dataset.get("folds") or len([*folder.glob("Fold[0-9]")])
    every = [*range(1, folds + 1)] or [None]
    if cfg.archive is not None and not any(folder.glob("*")):
        splits = [one for one in SPLITS if one != "vali" or cfg.dataset.get("vali_share") is None]
        wanted = [f"Fold{f}/{one}.txt" if f else f"{one}.txt" for f in every for one in splits]
        archive = Path(str(cfg.archive)).expanduser()
        unpack(archive, public_sets().get(dataset.name), folder, wanted)
    nodes: list[Any] = [
        OmegaConf.merge(cfg.dataset, {"fold": fold, "folds": folds}) for fold in every
    ]
    return [*map(make_dataset, nodes)]


def count_items(lists: Lists, fold: int | None, split: str) -> dict[str, Any]:
    """What a split holds; features are read once, in blocks."""
    low, high = column_range(lists.features)
    return {
        "fold": fold,
        "split": split,
        "rows": lists.items,
        "lists": len(lists),
        "empty lists": int(lists.empty.sum()),
        "shortest": int(lists.lengths.min()),
        "mean": round(float(lists.lengths.mean()), 1),
        "longest list": int(lists.lengths.max()),
        "constant columns": int((low >= high).sum()),  # greater where every value is missing
        "missing values": lists.missing,
        "labels": Counter(lists.labels.tolist()),
    }


def differences(rows: Sequence[Mapping[str, Any]], known: Sequence[Known]) -> list[str]:
    """Every count of ``rows`` that is not as published, in words."""
    found, splits = [], {(row["fold"], row["split"]): row for row in rows}
    for record in known:
        parts = [splits[record.fold, split] for split in record.splits]
        labels = sum((part["labels"] for part in parts), Counter[float]())
        must: dict[str, Any] = {
            "rows": record.rows,
            "lists": record.lists,
            "empty lists": record.empty,
        }
        have = {name: sum(part[name] for part in parts) for name in must}
        if record.labels:
            have["items of each grade"] = _counts(labels)
            must["items of each grade"] = _counts(dict(enumerate(record.labels)))
        where = ("" if record.fold is None else f"Fold{record.fold} ") + "+".join(record.splits)
        found += [
            f"{where} has {have[name]} {name}, not {number}"
            for name, number in must.items()
            if number not in (None, have[name])
        ]
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each split; of many labels the number and the range."""
    shown = [{**row, "labels": _counts(row["labels"])} for row in rows]
    return tabulate(shown, headers="keys", intfmt=",", missingval="")


def _counts(labels: Mapping[float, int]) -> str:
    if len(labels) > _FEW:
        return f"{len(labels)} from {min(labels):g} to {max(labels):g}"
    return "  ".join(f"{label:g}: {labels[label]:,}" for label in sorted(labels))
