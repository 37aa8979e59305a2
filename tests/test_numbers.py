"""Embeddings of numbers: the encodings by arithmetic, bins of train kept with the weights."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose
from made_columns import mixed, mixed_data, train_mixed

from ltr.data.batches import ItemTensors
from ltr.data.transforms import fit_transform
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.models import MLP
from ltr.models.embeddings import Piecewise, WithEmbeddings, fit_embedding, number_embedding
from ltr.scorers.parts import model_for
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import load_checkpoint
from ltr.training.evaluation import predict


def test_piecewise_is_the_place_in_each_bin_between_quantiles() -> None:
    encoding = Piecewise(3, bins=4)
    column = torch.tensor([0.0, 1.0, 2.0, 4.0, 8.0])
    tied = torch.tensor([0.0, 0.0, 0.0, 0.0, 6.0])  # quantiles 0, 0, 0, 0, 6: one bin
    encoding.fit(torch.stack([column, tied, torch.full((5,), 3.0)], 1))
    got = encoding(torch.tensor([[3.0, 3.0, 9.0], [-1.0, -3.0, 3.0], [12.0, 12.0, -9.0]]))
    assert got.transpose(0, 1).tolist() == [
        [[1, 1, 1 / 2, 0], [1 / 2, 0, 0, 0], [0, 0, 0, 0]],
        [[-1, 0, 0, 0], [-1 / 2, 0, 0, 0], [0, 0, 0, 0]],  # linear below the first bin
        [[1, 1, 1, 2], [2, 0, 0, 0], [0, 0, 0, 0]],  # and above the last
    ]


def test_periodic_is_cosines_and_sines_a_linear_layer_and_relu() -> None:
    torch.manual_seed(0)
    settings = {"kind": "periodic", "size": 3, "frequencies": 2, "sigma": 1.0}
    embedding = number_embedding(4, {**settings, "numbers": 3})
    assert embedding.outputs == 3 * 3 + 1
    items = torch.randn(5, 4)
    got = embedding(items)
    part = dict(embedding.named_parameters())
    for i in range(3):
        angles = 2 * math.pi * items[:, i, None] * part["encoding.frequencies"].view(3, 2)[i]
        encoded = torch.cat([angles.cos(), angles.sin()], 1)
        expected = (encoded @ part["weight"][i] + part["bias"].view(-1, 3)[i]).relu()
        torch.testing.assert_close(got[:, 3 * i : 3 * i + 3], expected)
    assert torch.equal(got[:, 9], items[:, 3]), "what is no number stays"


def test_categories_keep_their_vectors_and_bins_are_those_of_the_numbers() -> None:
    lists = mixed(40)
    transform = fit_transform(lists, missing="indicator")
    make = partial(MLP, embedding="piecewise")
    network = model_for(make, transform)
    assert isinstance(network, WithEmbeddings)
    features = torch.from_numpy(transform(lists.features))
    fit_embedding(network, lambda: features)
    edges = network.model.embedding.encoding.edges
    assert len(edges) == 3, "price, stars and the indicator"
    for column, found in zip((0, 2, 4), edges, strict=True):
        values = features[:, column]
        assert (found[0], found[-1]) == (values.min(), values.max())
    assert network.model.layers[0].in_features == 3 * 16 + sum(e.size for e in network.embeddings)


def test_edges_that_float32_cannot_tell_apart_are_one() -> None:
    near = np.nextafter(np.float32(1), np.float32(2))
    column = np.array([0] * 10 + [1] * 10 + [near] * 10 + [5] * 10, np.float32)
    encoding = Piecewise(1, 16)
    encoding.fit(torch.from_numpy(column)[:, None])
    found = encoding(torch.tensor([[5.0]]))
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.slow
def test_bins_are_of_train_and_kept(tmp_path: Path) -> None:
    data, args = mixed_data(20), ["model=tabm", "model.embedding.kind=piecewise", "threads=1"]
    args += ["model.embedding.bins=4", "model.hidden_sizes=[4]", "loss=listnet", "batch_size=8"]
    train_mixed(tmp_path / "whole", data, *args, "epochs=2")
    train_mixed(tmp_path / "cut", data, *args, "epochs=1")
    train_mixed(tmp_path / "cut", data, *args, "epochs=2", f"resume={tmp_path / 'cut'}")
    whole, cut = (
        load_checkpoint(tmp_path / name / "last.pt")["model"] for name in ("whole", "cut")
    )
    assert all(torch.equal(cut[name], value) for name, value in whole.items())
    kept = load_model(str(tmp_path / "cut"), torch.device("cpu"))
    train, test = (ItemTensors(data.split(split), kept.transform) for split in ("train", "test"))
    edges = whole["model.embedding.encoding.edges"]
    expected = np.quantile(train.features[:, 0].numpy(), np.linspace(0, 1, 5))
    np.testing.assert_allclose(edges[0], expected, rtol=1e-5)
    scores = np.loadtxt(tmp_path / "cut" / "scores.csv", delimiter=",", skiprows=1, usecols=-1)
    np.testing.assert_allclose(predict(kept.model, test), scores, rtol=1e-6)


@pytest.mark.parametrize("setting", ["kind=sine", "size=0", "bins=0", "frequencies=0", "sigma=0"])
def test_a_mistake_is_named_before_data_is_read(setting: str) -> None:
    kind = "periodic" if setting.startswith(("freq", "sigma")) else "piecewise"
    given = [f"model.embedding.kind={kind}", f"model.embedding.{setting}"]
    with pytest.raises(ConfigError, match=f"embedding.{setting} is"):
        build(compose("model=mlp", *given))
