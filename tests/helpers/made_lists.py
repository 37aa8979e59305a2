"""Random lists, and files of LETOR text with them."""

import os
from pathlib import Path

import numpy as np
import pytest

from ltr.data.lists import Lists

real_data = pytest.mark.skipif(
    "LTR_DATA_DIR" not in os.environ, reason="LTR_DATA_DIR names no folder of real lists"
)


def make_lists(
    lengths: list[int], width: int = 5, seed: int = 0, empty: tuple[int, ...] = ()
) -> Lists:
    """Random lists in which the first feature tells the label; lists in ``empty`` have none."""
    rng = np.random.default_rng(seed)
    items = sum(lengths)
    labels = rng.integers(0, 3, items).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    for i in empty:
        labels[offsets[i] : offsets[i + 1]] = 0
    features = rng.normal(size=(items, width)).astype(np.float32)
    features[:, 0] = labels + rng.normal(scale=0.3, size=items)
    qids = np.array([f"q{i}" for i in range(len(lengths))])
    return Lists(features, labels, offsets, qids, digest=f"random-{seed}")


def write_letor(path: Path, lists: Lists) -> None:
    """Write ``lists`` as LETOR text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for qid, features, labels in lists:
            for row, label in zip(features, labels, strict=True):
                values = " ".join(f"{i}:{v!r}" for i, v in enumerate(row.tolist(), 1))
                file.write(f"{label:g} qid:{qid} {values}\n")


def letor_lists(folder: Path) -> Path:
    """Write the lists ``mine/{train,vali,test}.txt`` into ``folder``: 5 features, labels 0-2."""
    for seed, (split, count) in enumerate({"train": 24, "vali": 8, "test": 8}.items()):
        lengths = np.random.default_rng(seed).integers(1, 12, count).tolist()
        write_letor(folder / "mine" / f"{split}.txt", make_lists(lengths, seed=seed))
    return folder
