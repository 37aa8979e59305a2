"""Time whole runs of the neural rows of the paper's Table 3, each a case: ``what=runs``.

A run is ``train.py``'s, on synthetic lists of Web30K's size: reading, training, evaluation after
every epoch, checkpoints and the test.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.benchmark.training import first_lists, flops_of_a_list, on_synthetic
from ltr.benchmark.worker import OURS, Case, Work
from ltr.console.compose import composed
from ltr.console.configs import CONFIGS
from ltr.experiment.build import build
from ltr.experiment.run import run
from ltr.training.record import Row

SHARE = 0.8  # of the time that the warm-up leaves, which the timed call may take


def cases(sizes: DictConfig, time_limit: float) -> list[Case]:
    """A run of each neural row of Table 3; the first NeuralNDCG@max is the paper's own."""
    rows = table3_rows()
    common = {
        "queries": int(sizes.run_queries), "epochs": int(sizes.run_epochs),
        "seconds": time_limit,
    }  # fmt: skip
    told = f"{common['epochs']:.0f} epochs, {common['queries']:,.0f} lists"
    return [
        Case(f"{label}, {told}", {**common, "row": overrides}, (OURS,))
        for label, overrides in rows.items()
    ]


def table3_rows() -> dict[str, list[str]]:
    """The overrides of the neural rows of the paper's Table 3, by label."""
    table: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "tables/neuralndcg_table3.yaml"))
    return {
        label: overrides
        for label, overrides in table["rows"].items()
        if not any(override.startswith("model=") for override in overrides)
    }


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """A whole run; a run of two epochs warms up here, and tells how many epochs fit."""
    started, asked = time.perf_counter(), int(settings["epochs"])
    cfg = composed(
        "train", *on_synthetic(settings, device, cache_dir), f"epochs={asked}", *settings["row"]
    )
    ends: list[float] = []

    def whole(epochs: int) -> None:
        cfg.epochs = epochs
        with tempfile.TemporaryDirectory() as folder:
            run(cfg, Path(folder), {"loss": str(cfg.loss["_target_"])}, after_epoch=ended)

    def ended(epoch: int, row: Row) -> None:
        ends.append(time.perf_counter())

    began = time.perf_counter()
    whole(2)
    an_epoch = ends[-1] - ends[-2]  # the first compiles
    rest = time.perf_counter() - began - 2 * an_epoch
    experiment = build(cfg)
    train = experiment.dataset.split("train")
    some = first_lists(train, min(256, len(train)))
    flops = flops_of_a_list(experiment, some, experiment.fit_transform(some))
    left = float(settings["seconds"]) - (time.perf_counter() - started)
    epochs = epochs_that_fit(asked, an_epoch, rest, SHARE * left)
    note = f"{epochs} of {asked} epochs, so that it ends in time" if epochs < asked else ""
    amount = len(train) * epochs
    more: Any = {"note": note, "flops": amount * flops, "part": epochs / asked}
    return Work(lambda: whole(epochs), lambda: {}, amount, "lists", **more)


def epochs_that_fit(asked: int, an_epoch: float, rest: float, seconds: float) -> int:
    """How many of ``asked`` epochs fit into ``seconds``, beside ``rest`` seconds; at least one.

    >>> epochs_that_fit(100, 1.5, 10, 420), epochs_that_fit(100, 50, 20, 420)
    (100, 8)
    """
    return max(1, min(asked, int((seconds - rest) / an_epoch)))
