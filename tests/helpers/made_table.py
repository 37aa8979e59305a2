"""A small table, made in the process of the tests: the runs are trained without a command."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ltr.experiment.run_folder import RunFolder
from ltr.lab.tables import runs, table
from ltr.lab.tables.runs import Run
from tests.helpers.made_lists import make_lists, write_letor
from tests.helpers.orders import table_of
from tests.helpers.runs import run


def train_here(wanted: Sequence[Run], *_: object) -> dict[Path, str]:
    """``execute`` without Hydra."""
    for one in wanted:
        one.folder.mkdir(parents=True, exist_ok=True)
        RunFolder(one.folder).prepare(one.identity)
        run(one.config, one.folder, {"model": "mlp", "loss": one.label})
    return {}


def write_data(folder: Path, *, queries: int = 30) -> list[str]:
    """Random lists in ``folder``; the overrides that read them."""
    for seed, (split, count) in enumerate({"train": 24, "vali": 8, "test": queries}.items()):
        lengths = np.random.default_rng(seed).integers(2, 12, count).tolist()
        write_letor(folder / "mine" / f"{split}.txt", make_lists(lengths, seed=seed))
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={folder}", f"cache_dir={folder}/cache",
    ]  # fmt: skip


def made(folder: Path) -> Path:
    """Make the small table in ``folder``; its own folder."""
    arguments = [
        "table=ranknet_report", "rows=RankNet,BCE,RankSVM linear L2 0.01", "seeds=2", "epochs=3",
        "batch_size=5", "model.hidden_sizes=[4]", *write_data(folder), f"output_dir={folder}/out",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "execute", train_here)
        patch.setitem(os.environ, "TQDM_DISABLE", "1")
        assert table.make_table(table_of(arguments))
    (tables,) = (folder / "out" / "tables").iterdir()
    return tables
