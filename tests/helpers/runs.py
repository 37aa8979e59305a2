"""Compose and train configs, as ``train.py`` does; compare two runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import torch
from omegaconf import DictConfig

import ltr.experiment.identity
import ltr.experiment.run
from ltr.cli.compose import composed, typed
from ltr.data.lists import Dataset
from ltr.experiment.build import build
from ltr.training.checkpoint import load_checkpoint
from ltr.training.hooks import Hook

CHOICES = {"loss": "listnet", "model": "transformer"}
TIMES = ["seconds", "lists_per_second"]


def compose(*overrides: str, config: str = "train") -> DictConfig:
    """The config that ``python train.py <overrides>`` composes, or another command."""
    return composed(config, *overrides) if config == "train" else typed(config, overrides)


def run(
    cfg: DictConfig,
    folder: Path,
    choices: Mapping[str, str] | None = None,
    dataset: Dataset | None = None,
    hooks: Sequence[Hook] = (),
    *,
    printed: bool = False,
) -> dict[str, float]:
    """Build and run ``cfg``; return the metrics of the selected weights."""
    experiment = build(cfg, choices, dataset)
    return ltr.experiment.run.run(experiment, folder, hooks, printed=printed).figures


def train(folder: Path, *overrides: str) -> dict[str, float]:
    """Train the experiment of ``overrides`` in ``folder``."""
    folder.mkdir(exist_ok=True)
    return run(compose(*overrides), folder, CHOICES)


def identity(cfg: DictConfig) -> str:
    """Return the identity of the run of ``cfg``."""
    return ltr.experiment.identity.identity(build(cfg))


def assert_same_run(a: Path, b: Path) -> None:
    """Same weights bit for bit, same history and results but for the clock."""
    for name in ("best.pt", "last.pt"):
        one, two = load_checkpoint(a / name), load_checkpoint(b / name)
        assert one["model"].keys() == two["model"].keys()
        assert all(torch.equal(one["model"][key], two["model"][key]) for key in one["model"])
        assert torch.equal(one["random"]["torch"], two["random"]["torch"])
    histories = [pd.read_csv(f / "history.csv").drop(columns=TIMES) for f in (a, b)]
    pd.testing.assert_frame_equal(*histories)
    for name in ("queries.csv", "scores.csv"):
        assert (a / name).read_bytes() == (b / name).read_bytes()
    clock = {"finished", "protocol", "sha256", "files_sha256", "checkpoints_sha256"}
    one, two = (json.loads((f / "results.json").read_text()) for f in (a, b))
    clock |= {name for name in one if name.endswith("_seconds")}
    assert all(one[name] == two[name] for name in one.keys() - clock)
