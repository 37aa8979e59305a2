"""Checkpoints: whole or not at all, and nothing in one is ever executed."""

import os
import pickle
from pathlib import Path

import pytest
import torch
from conftest import compose

from ltr.errors import CheckpointError, ConfigError, OutputError
from ltr.experiment.build import trusted
from ltr.experiment.job import resumed
from ltr.experiment.kept import load_kept
from ltr.experiment.run import run
from ltr.training.checkpoint import (
    load_checkpoint,
    random_states,
    restore_random_states,
    save_checkpoint,
)


class Exploit:
    """Pickled, it makes the file ``owned`` when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_file_with_code_in_it_is_refused(tmp_path) -> None:
    owned = tmp_path / "owned"
    for name, save in (
        ("torch.pt", lambda p: torch.save({"version": 1, "model": Exploit(owned)}, p)),
        ("plain.pt", lambda p: p.write_bytes(pickle.dumps(Exploit(owned)))),
    ):
        save(tmp_path / name)
        with pytest.raises(CheckpointError, match=r"cannot be read safely|can be read safely"):
            load_checkpoint(tmp_path / name)
        assert not owned.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x00" * 4096])
def test_a_damaged_file_is_refused(tmp_path, content) -> None:
    path = tmp_path / "last.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged, or not written by train.py"):
        load_checkpoint(path)
    torch.save({"version": 99}, path)
    with pytest.raises(CheckpointError, match=r"checkpoint version 99, this program reads 1"):
        load_checkpoint(path)


def test_a_failed_write_leaves_the_one_before(tmp_path, monkeypatch) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, {"step": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"No space left on device.*free some space"):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def test_every_random_state_comes_back() -> None:
    import random

    import numpy as np

    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002

    states = random_states()
    first = draw()
    assert draw() != first
    restore_random_states(states)
    assert draw() == first


GOOD = {
    "model": {"_target_": "ltr.models.MLP"},
    "loss": {"_target_": "ltr.losses.listnet_loss"},
    "optimizer": {"_target_": "torch.optim.Adam"},
    "schedule": {"_target_": "ltr.training.schedules.constant"},
    "transform": {"_target_": "ltr.data.transforms.fit_transform"},
    "dataset": {"_target_": "ltr.data.files.LetorFiles"},
}


@pytest.mark.parametrize(
    ("part", "node"),
    [
        ("model", {"_target_": "os.system"}),
        ("model", {"_target_": "ltr.losses.listnet_loss"}),
        ("model", {}),
        ("dataset", {"_target_": "ltr.data.files.os.system"}),
        ("optimizer", {"_target_": "torch.optim.optimizer.torch.hub.load"}),
        ("optimizer", {"_target_": "torch.optim.Adam", "lr": {"_target_": "os.getcwd"}}),
        ("loss", {"_target_": "ltr.losses.listnet_loss", "knob": [{"_target_": "os.getcwd"}]}),
        ("schedule", {"_target_": "ltr.training.schedules.math.floor"}),
        ("transform", {"_target_": "ltr.data.transforms.nothing"}),
    ],
)
def test_a_config_that_names_foreign_code_is_refused(part, node) -> None:
    trusted(GOOD, list(GOOD))
    with pytest.raises(ConfigError, match=rf"the checkpoint's {part} is .*trust="):
        trusted({**GOOD, part: node}, list(GOOD))


def test_trust_allows_the_modules_it_names_and_only_what_is_built_is_looked_at() -> None:
    mine = {**GOOD, "loss": {"_target_": "fractions.Fraction"}}
    with pytest.raises(ConfigError):
        trusted(mine, ["loss"])
    for trust in ("fractions", ["fractions"]):
        assert trusted(mine, ["loss"], trust).loss._target_ == "fractions.Fraction"
    assert trusted(mine, ["model"]).model._target_ == "ltr.models.MLP"


@pytest.mark.parametrize("sizes", ["${evil}", r"\${evil}", ["${evil}"], "${oc.create:${evil}}"])
def test_an_interpolation_cannot_bring_in_what_was_not_looked_at(sizes, tmp_path) -> None:
    evil = {"_target_": "os.mkdir", "path": str(tmp_path / "owned")}
    config = {**GOOD, "evil": evil, "model": {"_target_": "ltr.models.MLP", "hidden_sizes": sizes}}
    with pytest.raises(ConfigError, match=r"the checkpoint's"):
        trusted(config, ["model"])
    assert not (tmp_path / "owned").exists()


def test_a_kept_model_whose_config_was_changed_runs_nothing(tiny, tmp_path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    run(compose(*tiny, "epochs=1"), folder, {})
    for name in ("best.pt", "last.pt"):
        content = load_checkpoint(folder / name)
        content["config"]["model"] = {"_target_": "os.mkdir", "path": str(tmp_path / "owned")}
        save_checkpoint(folder / name, content)
    with pytest.raises(ConfigError, match=r"the checkpoint's model is os.mkdir"):
        load_kept(str(folder), torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"the checkpoint's model is os.mkdir"):
        resumed(compose(*tiny, f"resume={folder}"), [])
    assert not (tmp_path / "owned").exists()
