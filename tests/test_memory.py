"""A list that needs more memory than there is is refused before anything is taken for it."""

import os
from pathlib import Path

import pytest
import torch
from conftest import compose, make_lists
from folders import refused

from ltr.data.batches import ItemTensors
from ltr.data.transforms import no_transform
from ltr.experiment.run import run
from ltr.models import MLP, ContextAwareTransformer
from ltr.training.device import check_memory, free_memory
from ltr.training.evaluation import predict

CPU = torch.device("cpu")


def test_free_memory_is_what_the_system_says() -> None:
    found = free_memory(CPU)
    if Path("/proc/meminfo").is_file():
        assert found is not None
        assert 0 < found <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_what_a_long_list_takes() -> None:
    model = ContextAwareTransformer(10, dropout=0.0, heads=2, blocks=3)
    assert model.bytes_needed(200_000, training=False) < 2e9  # no matrix is kept
    assert model.bytes_needed(200_000, training=True) > 3 * 2 * 4 * 200_000**2
    said = refused(lambda: check_memory(model, 2_000_000, CPU, training=True))
    assert said.startswith("a list of 2,000,000 items takes ContextAwareTransformer about ")
    assert "set list_size lower" in said
    check_memory(model, 240, CPU, training=True)
    check_memory(MLP(10), 2_000_000_000, CPU, training=True)  # it scores each item alone


def test_scoring_and_training_look_first(tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ltr.training.device.free_memory", lambda device: 100_000)
    lists = make_lists([30, 500])
    data = ItemTensors(lists, no_transform(lists))
    model = ContextAwareTransformer(lists.width)
    said = refused(lambda: predict(model, data))
    assert "a list of 500 items" in said
    assert "split this list" in said
    monkeypatch.setattr("ltr.training.device.free_memory", lambda device: 10)
    said = refused(lambda: run(compose(*tiny, "loss=listnet"), tmp_path, {}))
    assert said.startswith("a list of 6 items takes")  # list_size
    assert not (tmp_path / "last.pt").exists()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_what_training_takes_grows_with_dropout(dropout) -> None:
    needs = ContextAwareTransformer(10, dropout=dropout, blocks=1).bytes_needed(
        10_000, training=True
    )
    assert needs // (4 * 10_000**2) == (5 if dropout else 3)
