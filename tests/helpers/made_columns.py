"""Lists with categories, missing values and names, as a table of products has them."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from ltr.data.assemble import assemble
from ltr.data.letor import ParseOptions
from ltr.data.lists import Columns, Lists
from ltr.data.memory import MemoryLists
from ltr.data.table_sources import Source, as_frame
from ltr.data.tables import ColumnRoles, find_columns, table_blocks
from tests.helpers.runs import compose, run

COLUMNS = Columns(
    names=("price", "brand", "stars", "shop"),
    categories={"brand": tuple(f"brand {i}" for i in range(12)), "shop": ("a", "b", "c")},
)


def mixed(lists=60, *, seed=0, unseen=False, columns=COLUMNS, weights=False) -> Lists:
    """Random lists in which brand, stars and whether a price is missing tell the label.

    ``unseen``: a tenth of the brands is none of those listed (code 0), which others never have.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 12, lists)
    n = int(lengths.sum())
    price, stars = rng.normal(size=(2, n))
    brand, shop = rng.integers(1, 13, n), rng.integers(1, 4, n)
    no_price = rng.random(n) < 0.3
    worth = np.sin(3.0 * np.arange(13))[brand] + 0.5 * stars - 1.5 * no_price
    labels = np.digitize(worth + 0.3 * rng.normal(size=n), [0.3, 1.2])
    features = np.stack([price, brand, stars, shop], 1).astype(np.float32)
    features[no_price, 0] = np.nan
    features[rng.random(n) < 0.1, 1] = np.nan
    if unseen:
        features[rng.random(n) < 0.1, 1] = 0
    return Lists(
        features,
        labels.astype(np.float32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.array([f"q{i}" for i in range(lists)]),
        digest=f"mixed-{seed}",
        missing=int(np.isnan(features).sum()),
        columns=columns,
        weights=rng.uniform(0.5, 3, lists).astype(np.float32) if weights else None,
    )


def mixed_data(lists: int = 60, *, weights: bool = False) -> MemoryLists:
    """Such lists in three splits; only those of test have unseen brands."""
    parts = {
        split: mixed(lists, seed=seed, unseen=split == "test", weights=weights)
        for seed, split in enumerate(("train", "vali", "test"))
    }
    return MemoryLists(name="mixed", lists=parts)


def train_mixed(folder: Path, data: MemoryLists, *overrides: str) -> dict[str, float]:
    """Train on ``data`` in ``folder`` as ``train.py dataset=memory`` with ``overrides`` would."""
    folder.mkdir(exist_ok=True)
    return run(compose("dataset=memory", *overrides), folder, {}, data)


def lists_of(table: pa.Table, roles: ColumnRoles, *, columns=None, labelled=True) -> Lists:
    """The lists of a table, with these names and categories, or those that are found in it."""
    source = Source(as_frame(table))
    columns = columns or find_columns(source, roles)
    rules = ParseOptions(labelled=labelled)
    return assemble(table_blocks(source, roles, columns, rules=rules), columns=columns)
