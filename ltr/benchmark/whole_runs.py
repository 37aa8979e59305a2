"""Whole runs of ``train.py`` on a GPU: the paper's, and all neural rows of its Table 3."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.benchmark.training import flops_of_a_list
from ltr.benchmark.work import OURS, Case, Work
from ltr.console.compose import composed
from ltr.experiment.build import build
from ltr.experiment.run import run

# Table 3 of Pobrotyn and Bialobrzeski (2021): what train.py is given for each neural row.
_CUTOFFS = ("5", "10", "null")
ROWS = [
    *(f"loss={name} loss.k={k}" for name in ("neuralndcg", "neuralndcg_t") for k in _CUTOFFS),
    "loss=approxndcg",
    "loss=listnet",
    "loss=listmle",
    *(
        f"loss={name} loss.k={k} loss.pairs=both"
        for name in ("ranknet", "lambdarank")
        for k in _CUTOFFS
    ),
    "loss=rmse",
]


def cases(sizes: DictConfig) -> list[Case]:
    """The paper's run of 100 epochs, and one such run for each of the 16 rows."""
    common = {"queries": int(sizes.run_queries), "epochs": int(sizes.run_epochs)}
    epochs = f"{sizes.run_epochs} epochs"
    return [
        Case(
            f"{epochs} of NeuralNDCG, {sizes.run_queries:,} lists",
            {**common, "rows": [ROWS[2]]},
            (OURS,),
        ),
        Case(
            f"16 neural rows, {epochs} each, {sizes.run_queries:,} lists",
            {**common, "rows": ROWS},
            (OURS,),
        ),
    ]


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """All runs one after the other, reading and testing included."""
    configs = [
        composed(
            "train",
            "dataset=synthetic",
            f"dataset.queries={settings['queries']}",
            f"epochs={settings['epochs']}",
            f"device={device}",
            f"cache_dir='{cache_dir}'",
            *row.split(),
        )
        for row in settings["rows"]
    ]

    def runs() -> None:
        for cfg in configs:
            with tempfile.TemporaryDirectory() as folder:
                run(cfg, Path(folder), {"loss": str(cfg.loss["_target_"])})

    lists = int(settings["queries"]) * int(settings["epochs"]) * len(configs)
    experiment = build(configs[0])
    train = experiment.dataset.split("train")
    flops = lists * flops_of_a_list(experiment, train, experiment.fit_transform(train))
    return Work(runs, lambda: {}, lists, "lists", "one run after the other", flops=flops)
