"""How many lists the data of a table have, and whether the published numbers are of the same."""

from collections.abc import Mapping, Sequence

from ltr.data.lists import SPLITS
from ltr.data.public_sets import public_sets
from ltr.experiment.parts import make_dataset
from ltr.tables.runs import Run

Size = Mapping[str, tuple[int, int]]  # split -> its lists and items


def sizes_of(runs: Sequence[Run]) -> dict[int | None, Size]:
    """Lists and items of each split by fold; of those folds whose data are here."""
    found: dict[int | None, Size] = {}
    for run in (run for run in runs if run.absent is None and run.fold not in found):
        dataset = make_dataset(run.config.dataset)
        lists = {split: dataset.split(split) for split in SPLITS}
        found[run.fold] = {split: (len(part), part.items) for split, part in lists.items()}
    return found


def lists_in_words(sizes: Mapping[int | None, Size]) -> str:
    """The number of lists of each split.

    >>> lists_in_words({None: {"train": (471, 9630), "test": (156, 2874)}})
    'train 471, test 156'
    >>> lists_in_words({1: {"test": (156, 2874)}, 2: {"test": (157, 2933)}})
    'test 156 to 157, 313 in all folds'
    """
    said = []
    for split in next(iter(sizes.values()), {}):
        counts = sorted(size[split][0] for size in sizes.values())
        least, most = f"{counts[0]:,}", f"{counts[-1]:,}"
        said.append(f"{split} {least}" + (f" to {most}" if least != most else ""))
        if split == "test" and len(counts) > 1:
            said.append(f"{sum(counts):,} in all folds")
    return ", ".join(said)


def unlike_published(name: str, sizes: Mapping[int | None, Size]) -> str | None:
    """Say where the data set ``name`` has not the lists or items of the published one.

    Returns:
        The first difference; None where there is none, or nothing is known.
    """
    for fold, size in sizes.items():
        known = [
            one
            for one in (public_sets()[name].known if name in public_sets() else ())
            if one.fold == fold
        ]
        for place, what in enumerate(("lists", "items")):
            counts = [
                (split, size[split][place], (one.lists, one.rows)[place])
                for split in reversed(SPLITS)
                for one in known
                if one.splits == (split,)
            ]
            for split, here, there in counts:
                if there is not None and here != there:
                    of = f"{name} Fold{fold}" if fold is not None else name
                    return (
                        f"the published numbers are of other data: {split} of {of} has {here:,} "
                        f"{what} here, {there:,} as published"
                    )
    return None
