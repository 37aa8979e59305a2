"""Name an item of lists in a message: its label, its query id and, from a file, its line."""

from pathlib import Path

import numpy as np
import torch

from ltr.data.files import LetorFiles
from ltr.data.lists import Dataset, Lists

Source = Dataset | Path | None  # of the lists: a data set, a file, or not known


def best_list(lists: Lists) -> tuple[float, torch.Tensor]:
    """The largest label, and the labels of the list that holds it, descending, ``[1, items]``."""
    place = int(lists.labels.argmax())
    number = _list_of(lists, place)
    labels = lists.labels[lists.offsets[number] : lists.offsets[number + 1]]
    ordered = np.sort(labels)[::-1].astype(np.float64)
    return float(lists.labels[place]), torch.from_numpy(ordered)[None]


def _list_of(lists: Lists, place: int) -> int:
    """The number of the list that holds the item ``place``."""
    return int(np.searchsorted(lists.offsets, place, side="right")) - 1


def largest_item(split: str, lists: Lists, source: Source) -> str:
    """The item with the largest label, as ``named_item`` names it."""
    return named_item(int(lists.labels.argmax()), split, lists, source)


def named_item(place: int, split: str, lists: Lists, source: Source) -> str:
    """The label of an item, its query id and, where it is from a file, the line."""
    label, qid = float(lists.labels[place]), str(lists.qids[_list_of(lists, place)])
    path = source if isinstance(source, Path) else None
    if isinstance(source, LetorFiles):
        path = source.path(split)
    line = _line(path, label, qid) if path is not None else None
    where = f", {path}:{line}" if line else ""
    return f"label {label:g} (query id {qid}{where})"


def as_written(label: float) -> str:
    """A label of float32 with the fewest digits that name it.

    >>> as_written(float(np.float32(0.1234567))), as_written(9.0)
    ('0.1234567', '9')
    """
    return f"{float(str(np.float32(label))):.9g}"


def _line(path: Path, label: float, qid: str) -> int | None:
    """The first line of a LETOR file with this label and query id."""
    wanted = f"qid:{qid}".encode()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                tokens = line.split(None, 2)
                if len(tokens) > 1 and tokens[1] == wanted and np.float32(tokens[0]) == label:
                    return number
    except (OSError, ValueError):  # the error that asks for it stands without
        return None
    return None
