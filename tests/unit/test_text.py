"""Losses for rerankers of text: gradients in chunks, ragged lists, processes, the model card."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from jaxtyping import config as checking
from torch import nn

from ltr.errors import ConfigError
from ltr.losses import mean_over_batch, pad_lists
from ltr.losses.mix import losses_by_name
from ltr.text import ListLoss, chunked_loss, cited
from tests.helpers import made_reranker
from tests.helpers.made_reranker import make_encoder
from tests.helpers.ranks import run_ranks
from tests.helpers.text_chunks import ITEMS, LABELS, gradients, scorer


@pytest.mark.parametrize("name", losses_by_name())
def test_the_gradient_of_chunks_is_that_of_the_whole(name: str) -> None:
    x = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(1)).double()
    weights = torch.tensor([1.0, 2.0, 0.5, 1.0])
    found = []
    for size in (1, 4, ITEMS):
        model = scorer().double()
        torch.manual_seed(2)  # of losses that draw
        value = chunked_loss(model, x.split(size), LABELS, name, weights=weights, empty="skip")
        value.backward()
        found.append(torch.cat([value.detach().reshape(1), gradients(model)]))
    model = scorer().double()
    scores, labels, mask = pad_lists(model(x).squeeze(-1), LABELS)
    torch.manual_seed(2)
    values = losses_by_name()[name](scores, labels, mask)
    value = mean_over_batch(values, labels, mask, weights=weights, empty="skip")
    value.backward()
    plain = torch.cat([value.detach().reshape(1), gradients(model)])
    for one in found:
        torch.testing.assert_close(one, plain, rtol=1e-9, atol=1e-12)
    assert plain[1:].abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dropout_is_the_same_in_both_passes(dtype: torch.dtype) -> None:
    x = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(1))
    sizes = (1, 3, ITEMS)
    for size in sizes:
        found = []
        for chunked in (True, False):
            model = scorer(dropout=0.5)
            with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
                if chunked:
                    value = chunked_loss(model, x.split(size), LABELS, "listnet")
                else:  # the same draws, all activations kept
                    scores = torch.cat([model(part) for part in x.split(size)]).squeeze(-1)
                    scores, labels, mask = pad_lists(scores, LABELS)
                    values = losses_by_name()["listnet"](scores, labels, mask)
                    value = mean_over_batch(values, labels, mask)
            value.backward()
            found.append(gradients(model))
        assert found[0].isfinite().all()
        torch.testing.assert_close(*found)


def test_pad_lists_says_what_does_not_fit() -> None:
    for scores, labels, said in [
        (torch.zeros(3), [[1], [0]], "one score per item"),
        ([torch.zeros(2)], [[1]], "one score per label, in lists of lengths"),
        ([], [], "one sequence of numbers per list"),
        (torch.zeros(2), [1, 0], "one sequence of numbers per list"),
    ]:
        with pytest.raises(ConfigError, match=said):
            pad_lists(scores, labels)
    scores, labels, mask = pad_lists([torch.ones(1), torch.ones(0)], [[1], []])
    assert mask.tolist() == [[True], [False]]
    assert labels.dtype == torch.float32
    assert scores.shape == (2, 1)


def test_wrong_names_and_knobs_are_one_line() -> None:
    x = torch.zeros(1, 6)
    with pytest.raises(ConfigError, match="loss=nope is not known: choose one of approxndcg"):
        chunked_loss(scorer(), [x], [[1]], "nope")
    with pytest.raises(
        ConfigError, match=r"temprature: the loss has no such knob \(knobs: k, gain"
    ):
        chunked_loss(scorer(), [x], [[1]], temprature=1)
    with pytest.raises(
        ConfigError, match="covers the grades 0 to 1, but the data have other labels"
    ):
        chunked_loss(scorer(), [x], [[2]], gain=[0, 1])
    checking.update("jaxtyping_disable", True)  # as for users
    with pytest.raises(ConfigError, match="expected one weight per list"):
        chunked_loss(scorer(), [x], [[2]], weights=[1.0, 2.0])
    with pytest.raises(ConfigError, match="no items"):
        chunked_loss(scorer(), [], [[]])


def test_every_loss_with_a_paper_is_cited() -> None:
    assert "pobrotyn2021" in cited("neuralndcg")
    assert "taylor2008," in cited("softndcg")
    without = [name for name in losses_by_name() if not cited(name).startswith("@")]
    assert without == ["bce", "distil"]  # no paper with a year in their first line


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = tmp_path_factory.mktemp("encoder")
    make_encoder(folder, dropout=0.3)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 7, None])
def test_the_gradient_of_a_cross_encoder(
    encoder: Path, size: int | None, dtype: torch.dtype
) -> None:
    from sentence_transformers.cross_encoder import CrossEncoder

    labels = [torch.tensor(x) for x in made_reranker.LABELS]
    inputs = [made_reranker.QUERIES, made_reranker.DOCUMENTS, [1.0, 2.0, 1.0, 1.0, 0.5, 1.0]]
    found = []
    for plain in (False, True):
        model = CrossEncoder(str(encoder), num_labels=1, device="cpu").train()
        loss = ListLoss(model, k=3, temperature=0.5, mini_batch_size=size)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            if plain:  # keeps all activations
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("ltr.text.checkpoint", lambda score, chunk, **_: score(chunk))
                    torch.manual_seed(3)
                    value = loss(inputs, labels, prompt="find ")
            else:
                torch.manual_seed(3)
                value = loss(inputs, labels, prompt="find ")
        value.backward()
        found.append((value.detach(), gradients(model)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-7)
    assert found[0][1].isfinite().all()
    assert found[0][1].abs().max() > 1e-3


@pytest.mark.slow
def test_only_one_chunk_keeps_its_activations(encoder: Path) -> None:
    from sentence_transformers.cross_encoder import CrossEncoder, losses

    def kept(loss: nn.Module) -> int:
        total, labels = 0, [torch.tensor(x).float() for x in made_reranker.LABELS]
        known = {p.data_ptr() for p in loss.parameters()}

        def pack(x: torch.Tensor) -> torch.Tensor:
            nonlocal total
            total += x.nbytes if x.data_ptr() not in known else 0
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            loss([made_reranker.QUERIES, made_reranker.DOCUMENTS], labels)
        return total

    model = CrossEncoder(str(encoder), num_labels=1, device="cpu").train()
    ours = kept(ListLoss(model, "lambdaloss", mini_batch_size=2))
    assert ours < kept(losses.LambdaLoss(model, mini_batch_size=2)) / 4  # of seven chunks


@pytest.mark.slow
def test_training_writes_a_model_card(encoder: Path, tmp_path: Path) -> None:
    trainer = made_reranker.train(
        encoder, tmp_path / "out", loss="lapndcg", k=5, mini_batch_size=4, bf16=True,
        activation_fn=nn.Tanh(), prompts="find ",
    )  # fmt: skip
    assert all(p.isfinite().all() for p in trainer.model.parameters())
    trainer.model.save_pretrained(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    settings = json.loads(card.split("<code>ltr.text.ListLoss</code>")[1].split("```")[1][4:])
    assert settings == {
        "loss": "lapndcg", "k": 5, "activation_fn": "Tanh", "mini_batch_size": 4, "empty": "keep"
    }  # fmt: skip
    assert "#### ListLoss\n```bibtex\n@inproceedings{struski2025" in card


@pytest.mark.slow
def test_list_loss_trains_on_two_processes_as_on_one(tmp_path: Path) -> None:
    make_encoder(tmp_path / "encoder")  # without dropout: processes draw their own
    trainer = made_reranker.train(
        tmp_path / "encoder", tmp_path / "alone", batch=6, mini_batch_size=2, empty="skip"
    )
    alone = made_reranker.some_weights(trainer.model)
    arguments = [str(tmp_path / "encoder"), str(tmp_path / "out"), "batch=3", "chunk=2"]
    statuses, out, err = run_ranks(2, "tests/helpers/made_reranker.py", *arguments)
    assert statuses == [0, 0], err
    (printed,) = (line for line in out.splitlines() if line.startswith("[["))
    torch.testing.assert_close(json.loads(printed), alone, rtol=1e-4, atol=1e-6)


def test_a_list_loss_says_what_is_wrong() -> None:
    model = nn.Linear(1, 2)
    model.num_labels = 2
    with pytest.raises(ConfigError, match="got one with 2 outputs: set num_labels=1"):
        ListLoss(model)
    model.num_labels = 1
    unnamed = partial(losses_by_name()["listnet"])
    assert "listnet_loss" in ListLoss(model, unnamed).get_config_dict()["loss"]
    with pytest.raises(ConfigError, match="expected a query, a list of documents"):
        ListLoss(model)([["a"], ["b"]], torch.ones(1))
    rows = [["a", "b"], [["c", "d"], ["e"]]]  # as many labels in all
    with pytest.raises(ConfigError, match="list 0 of the batch has 2 documents but 1 labels"):
        ListLoss(model)(rows, [torch.tensor([1.0]), torch.tensor([0.0, 1.0])])
    with pytest.raises(ConfigError, match="mini_batch_size=0"):
        ListLoss(model, mini_batch_size=0)
