"""The command prepare_data: unpack a data set, fill its cache, count, compare with its facts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.console.keys import required
from ltr.console.unpack import unpack_once
from ltr.data.cache import file_digest
from ltr.data.files import LetorFiles
from ltr.data.lists import SPLITS, Columns, Lists
from ltr.data.public_sets import Known, PublicSet, public_sets
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
    nodes, remedy, public = [cfg.dataset], "", None
    if cfg.dataset.get("_target_") == "ltr.data.files.LetorFiles":
        base, public = Path(str(cfg.data_dir)).expanduser(), public_sets().get(cfg.dataset.name)
        if cfg.dataset.folder in (None, ""):
            raise ConfigError(f"give dataset.folder=NAME, the folder of your lists in {base}")
        folder = base / str(cfg.dataset.folder)
        remedy = f"put train.txt, vali.txt, test.txt into {folder}, or into Fold1, ... in it"
        remedy = public.how_to_get(cfg.data_dir) if public else remedy
        folds = _unpacked(cfg, folder, public)
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; {remedy}")
        nodes = [OmegaConf.merge(cfg.dataset, {"data_dir": str(base)} | one) for one in folds]
    elif cfg.archive is not None or cfg.folds != "all":
        raise ConfigError("this data set has neither archive nor folds: leave both out")
    rows, strange, text = [], [], ""
    for dataset in map(make_dataset, nodes):
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
                text = _columns_in_words(lists.columns)
    strange = differences(rows, public.known if public else ()) + strange
    if public and public.known and not strange:
        text = "\n\nall counts are as published"
    return table(rows) + text, f"{'; '.join(strange)}; {remedy}" if strange else ""


def _unpacked(cfg: DictConfig, folder: Path, public: PublicSet | None) -> list[dict[str, Any]]:
    """Unpack the archive that ``cfg`` names; the settings of each fold that is asked for."""
    there = int(cfg.dataset.get("folds") or 0)
    if not public:
        there = next(fold for fold in count() if not (folder / f"Fold{fold + 1}").exists())
    every = [*range(1, there + 1)] or [None]
    chosen = cfg.folds if OmegaConf.is_list(cfg.folds) else [cfg.folds]
    chosen = every if cfg.folds == "all" else list(chosen)
    if not chosen or any(fold not in every for fold in chosen):
        some = f", or some of 1 to {there} as in 'folds=[1,2]'" if there else ""
        raise ConfigError(f"folds={cfg.folds}: give all{some}")
    if cfg.archive is not None:
        splits = [one for one in SPLITS if one != "vali" or cfg.dataset.get("vali_share") is None]
        wanted = [
            f"Fold{fold}/{one}.txt" if fold else f"{one}.txt" for fold in every for one in splits
        ]
        unpack_once(Path(str(cfg.archive)).expanduser(), public, folder, wanted)
    return [{"fold": fold, "folds": there} for fold in chosen]


def _columns_in_words(columns: Columns) -> str:
    coded = [
        f"{name} ({f'hashed to {values:,}' if isinstance(values, int) else f'{len(values):,}'})"
        for name, values in columns.categories.items()
    ]
    return f"\n\n{len(columns.names):,} features, categories: {', '.join(coded) or 'none'}"


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
        parts = [splits[p] for one in record.splits if (p := (record.fold, one)) in splits]
        if len(parts) < len(record.splits):
            continue
        must = {"rows": record.rows, "lists": record.lists, "empty lists": record.empty}
        have = {name: sum(part[name] for part in parts) for name in must}
        if record.labels:
            grades = dict(enumerate(record.labels))
            labels = sum((part["labels"] for part in parts), Counter[float]())
            for grade in sorted({*labels, *grades}):
                name = f"items of grade {grade:g}"
                have[name], must[name] = labels[grade], grades.get(grade, 0)
        where = ("" if record.fold is None else f"Fold{record.fold} ") + "+".join(record.splits)
        found += [
            f"{where} has {have[name]:,} {name}, not {number:,}"
            for name, number in must.items()
            if number is not None and number != have[name]
        ]
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each split; of many labels the number and the range."""
    several = sorted({label for row in rows for label in row["labels"]})
    shown = []
    for row in rows:
        labels = row["labels"]
        cells = {f"label {label:g}": labels[label] for label in several}
        if len(several) > _FEW:
            cells = {"labels": len(labels), "least": min(labels), "most": max(labels)}
        shown.append({name: row[name] for name in row if name != "labels"} | cells)
    return tabulate(shown, headers="keys", intfmt=",", floatfmt=",.10g", missingval="")
