"""Categories and missing values in networks: learned, kept, resumed, and known where unseen."""

import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import compose
from made_columns import COLUMNS, mixed, mixed_data, train_mixed

from ltr.data.batches import ItemTensors
from ltr.data.lists import SPLITS, Columns
from ltr.data.memory import MemoryLists
from ltr.data.transforms import fit_transform
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.models.embeddings import WithEmbeddings
from ltr.scorers.parts import make, model_for
from ltr.scorers.scorer import check_columns, load_model
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.distributed import check_shards
from ltr.training.evaluation import predict
from ltr.training.interruption import Interrupted

MLP = (
    "model=mlp", "model.hidden_sizes=[8]", "loss=listnet", "transform.missing=indicator",
    "epochs=4", "batch_size=8", "optimizer.lr=0.02", "threads=1",
)  # fmt: skip
RENAMED = Columns(COLUMNS.names, {**COLUMNS.categories, "brand": ("x",) * 12})


@pytest.mark.parametrize("model", ["linear", "mlp", "transformer"])
def test_padding_is_never_read(model: str) -> None:
    lists = mixed(6)
    transform = fit_transform(lists, missing="indicator")
    torch.manual_seed(0)
    network = model_for(make(compose(f"model={model}").model, "model"), transform).eval()
    assert isinstance(network, WithEmbeddings)
    with torch.no_grad():
        for parameter in network.embeddings.parameters():
            parameter += torch.randn_like(parameter)
    batch = ItemTensors(lists, transform).batch(np.arange(6))
    assert not batch.mask.all()
    expected = network(batch.features, batch.mask, batch.ranks)
    poisoned = batch.features.masked_fill(~batch.mask[..., None], torch.nan)
    assert torch.equal(network(poisoned, batch.mask, batch.ranks), expected)
    assert (expected[~batch.mask] == 0).all()
    batch_norm = model_for(make(compose("model=dasalc").model, "model"), transform)
    with pytest.raises(ConfigError, match=r"^shards=2: .* shards=null"):
        check_shards(batch_norm, 2)


def test_each_value_has_a_vector_of_its_own_and_unseen_ones_the_shared_part() -> None:
    lists = mixed(40)
    network = WithEmbeddings(torch.nn.Identity, fit_transform(lists).codes.tolist())
    embed = network.embeddings[0]
    assert embed.size == 7  # 1.6 * 13^0.56 = 6.7
    codes = torch.arange(14)  # other, 12 brands, missing
    optimizer = torch.optim.Adam(embed.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (embed(codes[1:12]) * torch.arange(1, 12.0)[:, None]).sum().backward()
        optimizer.step()
    vectors = embed(codes)
    assert vectors[0].abs().min() > 0, "the vector of unseen values is trained by those seen"
    assert torch.equal(vectors[12:], vectors[[0, 0]]), "a brand that train lacks is as any other"
    assert not torch.isclose(vectors[1:12], vectors[0]).any()


@pytest.mark.slow
def test_categories_and_missing_values_are_learned_kept_and_resumed(tmp_path, monkeypatch) -> None:
    out, data = tmp_path / "run", mixed_data()
    assert train_mixed(out, data, *MLP)["test_ndcg@5"] > 0.85
    kept = load_model(str(out), torch.device("cpu"))
    assert kept.columns == COLUMNS
    assert (kept.transform.width, kept.transform.outputs) == (4, 5)
    test = ItemTensors(data.split("test"), kept.transform)
    stored = pd.read_csv(out / "scores.csv").score.to_numpy(np.float32)
    np.testing.assert_array_equal(predict(kept.model, test).numpy(), stored)
    calls = iter(range(99))

    def stop(*args, **kwargs):
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return predict(*args, **kwargs)

    cut = tmp_path / "cut"
    with monkeypatch.context() as patch:
        patch.setattr("ltr.training.network.predict", stop)
        with pytest.raises(Interrupted):
            train_mixed(cut, data, *MLP)
    train_mixed(cut, data, *MLP, f"resume={cut}")
    assert (cut / "scores.csv").read_bytes() == (out / "scores.csv").read_bytes()

    others = {split: mixed(seed=i, columns=RENAMED) for i, split in enumerate(SPLITS)}
    with pytest.raises(DataError, match="the categories of brand are not those the model was"):
        train_mixed(cut, MemoryLists(name="m", lists=others), *MLP, f"resume={cut}")


def test_lists_of_other_columns_are_refused() -> None:
    lists = mixed(3)
    check_columns(lists, COLUMNS)
    plain = Columns(COLUMNS.names)
    check_columns(mixed(3, columns=None), plain)
    check_columns(mixed(3, columns=plain), None)
    for columns, message in (
        (RENAMED, "the categories of brand are not those the model was trained on: give"),
        (None, "the categories of brand, shop are not those"),
        (plain, "the categories of brand, shop are not those"),
        (Columns(("cost", *COLUMNS.names[1:])), "on the feature cost, where the lists have price"),
        (Columns(COLUMNS.names[:3]), "on the feature nothing, where the lists have shop: give"),
    ):
        with pytest.raises(DataError, match=message):
            check_columns(lists, columns)


@pytest.mark.slow
def test_crafted_checkpoints_are_refused(tmp_path: Path) -> None:
    lists = {split: mixed(9, seed=1, columns=None) for split in SPLITS}
    data, path = MemoryLists(name="plain", lists=lists), tmp_path / "run" / "last.pt"
    train_mixed(tmp_path / "run", data, "model=linear", "epochs=1", "select=last")
    content = load_checkpoint(path)
    for codes in ([0, 10**12, 0, 4], [0, 10**18, 0, 4], [0, -5, 0, 0]):
        save_checkpoint(path, content | {"transform": content["transform"] | {"codes": codes}})
        with pytest.raises(CheckpointError):
            load_model(str(path), torch.device("cpu"))
