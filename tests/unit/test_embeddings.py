"""Categories and missing values in networks: learned, kept, resumed, and known where unseen.

Embeddings of numbers: the encodings by arithmetic, bins of train kept with the weights.
"""

import math
import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ltr.data.batches import ItemTensors
from ltr.data.lists import SPLITS, Columns
from ltr.data.memory import MemoryLists
from ltr.data.transforms import fit_transform
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.experiment.build import build
from ltr.models import MLP
from ltr.models.embeddings import Piecewise, WithEmbeddings, fit_embedding, number_embedding
from ltr.parts.components import build_model, build_part
from ltr.parts.scorer import check_columns, load_model
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.evaluation import predict
from ltr.training.interruption import Interrupted
from tests.helpers.made_columns import COLUMNS, mixed, mixed_data, train_mixed
from tests.helpers.runs import compose

SMALL = (
    "model=mlp", "model.hidden_sizes=[8]", "loss=listnet", "transform.missing=indicator",
    "epochs=4", "batch_size=8", "optimizer.lr=0.02", "threads=1",
)  # fmt: skip
RENAMED = Columns(COLUMNS.names, {**COLUMNS.categories, "brand": ("x",) * 12})


@pytest.mark.parametrize("model", ["linear", "mlp", "transformer"])
def test_with_embeddings_never_reads_padding(model: str) -> None:
    lists = mixed(6)
    transform = fit_transform(lists, missing="indicator")
    torch.manual_seed(0)
    network = build_model(build_part(compose(f"model={model}").model, "model"), transform).eval()
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


def test_embedding_trains_a_vector_per_value_and_one_for_unseen_values() -> None:
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
def test_networks_learn_load_and_resume_categories_and_missing_values(
    tmp_path, monkeypatch
) -> None:
    out = tmp_path / "run"
    data = mixed_data()
    assert train_mixed(out, data, *SMALL)["test_ndcg@5"] > 0.85
    loaded = load_model(str(out), torch.device("cpu"))
    assert loaded.columns == COLUMNS
    assert loaded.transform.width == 4
    assert loaded.transform.outputs == 5
    test = ItemTensors(data.split("test"), loaded.transform)
    saved_scores = pd.read_csv(out / "scores.csv").score.to_numpy(np.float32)
    np.testing.assert_array_equal(predict(loaded.model, test).numpy(), saved_scores)
    calls = iter(range(99))

    def stop(*args, **kwargs):
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return predict(*args, **kwargs)

    cut = tmp_path / "cut"
    with monkeypatch.context() as patch:
        patch.setattr("ltr.training.trainer.predict", stop)
        with pytest.raises(Interrupted):
            train_mixed(cut, data, *SMALL)
    train_mixed(cut, data, *SMALL, f"resume={cut}")
    assert (cut / "scores.csv").read_bytes() == (out / "scores.csv").read_bytes()

    renamed = {split: mixed(seed=i, columns=RENAMED) for i, split in enumerate(SPLITS)}
    with pytest.raises(DataError, match="the categories of brand differ from those"):
        train_mixed(cut, MemoryLists(name="m", lists=renamed), *SMALL, f"resume={cut}")


def test_check_columns_refuses_lists_of_other_columns() -> None:
    lists = mixed(3)
    check_columns(lists, COLUMNS)
    plain = Columns(COLUMNS.names)
    check_columns(mixed(3, columns=None), plain)
    check_columns(mixed(3, columns=plain), None)
    for columns, message in (
        (RENAMED, "the categories of brand differ from those on which the model was trained"),
        (None, "the categories of brand, shop differ from those"),
        (plain, "the categories of brand, shop differ from those"),
        (Columns(("cost", *COLUMNS.names[1:])), "trained on cost, but the lists have price"),
        (Columns(COLUMNS.names[:3]), "trained on nothing, but the lists have shop"),
    ):
        with pytest.raises(DataError, match=message):
            check_columns(lists, columns)


@pytest.mark.slow
def test_load_model_refuses_crafted_codes(tmp_path: Path) -> None:
    lists = {split: mixed(9, seed=1, columns=None) for split in SPLITS}
    data = MemoryLists(name="plain", lists=lists)
    path = tmp_path / "run" / "last.pt"
    train_mixed(tmp_path / "run", data, "model=linear", "epochs=1", "select=last")
    content = load_checkpoint(path)
    (path.parent / "results.json").unlink()  # it would say that the file is another one
    for codes in ([0, 10**12, 0, 4], [0, 10**18, 0, 4], [0, -5, 0, 0]):
        save_checkpoint(path, content | {"transform": content["transform"] | {"codes": codes}})
        with pytest.raises(CheckpointError):
            load_model(str(path), torch.device("cpu"))


def test_piecewise_is_the_position_in_each_bin_between_quantiles() -> None:
    encoding = Piecewise(3, bins=4)
    column = torch.tensor([0.0, 1.0, 2.0, 4.0, 8.0])
    tied = torch.tensor([0.0, 0.0, 0.0, 0.0, 6.0])  # quantiles 0, 0, 0, 0, 6: one bin
    encoding.fit(torch.stack([column, tied, torch.full((5,), 3.0)], 1))
    positions = encoding(torch.tensor([[3.0, 3.0, 9.0], [-1.0, -3.0, 3.0], [12.0, 12.0, -9.0]]))
    assert positions.transpose(0, 1).tolist() == [
        [[1, 1, 1 / 2, 0], [1 / 2, 0, 0, 0], [0, 0, 0, 0]],
        [[-1, 0, 0, 0], [-1 / 2, 0, 0, 0], [0, 0, 0, 0]],  # linear below the first bin
        [[1, 1, 1, 2], [2, 0, 0, 0], [0, 0, 0, 0]],  # and above the last
    ]
    near = np.nextafter(np.float32(1), np.float32(2))  # edges that float32 cannot tell apart
    encoding = Piecewise(1, 16)
    encoding.fit(torch.from_numpy(np.repeat(np.array([[0], [1], [near], [5]], np.float32), 10, 0)))
    positions = encoding(torch.tensor([[5.0]]))
    assert 0 <= positions.min() <= positions.max() <= 1


def test_number_embedding_periodic_is_cosines_and_sines_a_linear_layer_and_relu() -> None:
    torch.manual_seed(0)
    settings = {"kind": "periodic", "size": 3, "frequencies": 2, "sigma": 1.0}
    embedding = number_embedding(4, {**settings, "numbers": 3})
    assert embedding.outputs == 3 * 3 + 1
    items = torch.randn(5, 4)
    outputs = embedding(items)
    parameters = dict(embedding.named_parameters())
    frequencies = parameters["encoding.frequencies"].view(3, 2)
    bias = parameters["bias"].view(-1, 3)
    for i in range(3):
        angles = 2 * math.pi * items[:, i, None] * frequencies[i]
        encoded = torch.cat([angles.cos(), angles.sin()], 1)
        expected = (encoded @ parameters["weight"][i] + bias[i]).relu()
        torch.testing.assert_close(outputs[:, 3 * i : 3 * i + 3], expected)
    assert torch.equal(outputs[:, 9], items[:, 3]), "the last column is not embedded"


def test_fit_embedding_sets_the_bins_of_numbers_alone() -> None:
    lists = mixed(40)
    transform = fit_transform(lists, missing="indicator")
    build_part = partial(MLP, embedding="piecewise")
    network = build_model(build_part, transform)
    assert isinstance(network, WithEmbeddings)
    features = torch.from_numpy(transform(lists.features))
    fit_embedding(network, lambda: features)
    edges = network.model.embedding.encoding.edges
    assert len(edges) == 3, "price, stars and the indicator"
    for column, column_edges in zip((0, 2, 4), edges, strict=True):
        values = features[:, column]
        assert column_edges[0] == values.min()
        assert column_edges[-1] == values.max()
    vector_sizes = [embedding.size for embedding in network.embeddings]
    assert network.model.layers[0].in_features == 3 * 16 + sum(vector_sizes)


@pytest.mark.slow
def test_bins_are_those_of_train_and_are_saved(tmp_path: Path) -> None:
    data = mixed_data(20)
    args = (
        "model=tabm", "model.embedding.kind=piecewise", "model.embedding.bins=4",
        "model.hidden_sizes=[4]", "loss=listnet", "batch_size=8", "threads=1",
    )  # fmt: skip
    train_mixed(tmp_path / "uncut", data, *args, "epochs=2")
    train_mixed(tmp_path / "cut", data, *args, "epochs=1")
    train_mixed(tmp_path / "cut", data, *args, "epochs=2", f"resume={tmp_path / 'cut'}")
    uncut = load_checkpoint(tmp_path / "uncut" / "last.pt")["model"]
    cut = load_checkpoint(tmp_path / "cut" / "last.pt")["model"]
    assert all(torch.equal(cut[name], value) for name, value in uncut.items())
    loaded = load_model(str(tmp_path / "cut"), torch.device("cpu"))
    train = ItemTensors(data.split("train"), loaded.transform)
    test = ItemTensors(data.split("test"), loaded.transform)
    edges = uncut["model.embedding.encoding.edges"]
    expected = np.quantile(train.features[:, 0].numpy(), np.linspace(0, 1, 5))
    np.testing.assert_allclose(edges[0], expected, rtol=1e-5)
    scores = np.loadtxt(tmp_path / "cut" / "scores.csv", delimiter=",", skiprows=1, usecols=-1)
    np.testing.assert_allclose(predict(loaded.model, test), scores, rtol=1e-6)


@pytest.mark.parametrize("setting", ["kind=sine", "size=0", "bins=0", "frequencies=0", "sigma=0"])
def test_build_refuses_wrong_settings_of_embeddings(setting: str) -> None:
    kind = "periodic" if setting.startswith(("freq", "sigma")) else "piecewise"
    overrides = [f"model.embedding.kind={kind}", f"model.embedding.{setting}"]
    with pytest.raises(ConfigError, match=f"embedding.{setting} is"):
        build(compose("model=mlp", *overrides))
