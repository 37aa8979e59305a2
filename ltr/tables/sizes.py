"""How many lists the data of a table have, and whether the published numbers are of the same."""

from collections.abc import Mapping, Sequence
from itertools import product

from ltr.data.lists import SPLITS
from ltr.data.public_sets import public_sets
from ltr.errors import DataError
from ltr.scorers.parts import make_dataset
from ltr.tables.runs import Run

Size = Mapping[str, tuple[int, int]]  # split -> its lists and items


def sizes_of(runs: Sequence[Run]) -> dict[int | None, Size]:
    """Lists and items of each split by fold; of those folds whose data are here."""
    sizes: dict[int | None, Size] = {}
    for fold, run in {run.fold: run for run in runs}.items():
        dataset = make_dataset(run.config.dataset)
        try:
            lists = {split: dataset.split(split) for split in SPLITS}
        except DataError:
            continue
        sizes[fold] = {split: (len(part), part.items) for split, part in lists.items()}
    return sizes


def lists_in_words(sizes: Mapping[int | None, Size]) -> str:
    """The number of lists of each split.

    >>> lists_in_words({1: {"test": (156, 2874)}, 2: {"test": (157, 2933)}})
    'test 156 to 157, 313 in all folds'
    """
    said = []
    for split in next(iter(sizes.values()), {}):
        counts = [size[split][0] for size in sizes.values()]
        more = f" to {max(counts):,}" * (min(counts) != max(counts))
        said.append(f"{split} {min(counts):,}{more}")
        said += [f"{sum(counts):,} in all folds"] * (split == "test" and len(counts) > 1)
    return ", ".join(said)


def unlike_published(name: str, sizes: Mapping[int | None, Size]) -> str | None:
    """Say where the data set ``name`` has not the lists or items of the published one.

    Returns:
        The first difference; None where there is none, or nothing is known.
    """
    known = public_sets()[name].known if name in public_sets() else ()
    published = {(one.fold, one.splits): (one.lists, one.rows) for one in known}
    for (fold, size), split in product(sizes.items(), reversed(SPLITS)):
        counts = zip(size.get(split, ()), published.get((fold, (split,)), ()), strict=False)
        for what, (here, there) in zip(("lists", "items"), counts, strict=False):
            if there is not None and here != there:
                of = name if fold is None else f"{name} Fold{fold}"
                return (
                    f"the published numbers are of other data: {split} of {of} has {here:,} {what} "
                    f"here, {there:,} as published"
                )
    return None
