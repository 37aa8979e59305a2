"""TabM: its members by arithmetic, and a step that takes the mean of their losses."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from conftest import compose
from made_columns import mixed

from ltr.data.batches import Batch, ItemTensors
from ltr.data.transforms import fit_transform, no_transform
from ltr.losses import lambdarank_loss, neural_ndcg_loss
from ltr.losses.batch import mean_over_batch
from ltr.models import TabM
from ltr.scorers.parts import make_settings, model_for
from ltr.training.network import Step

small = partial(TabM, members=3, hidden_sizes=(6, 4), dropout=0.0)


def batch(weights: bool = False) -> Batch:
    lists = replace(mixed(9, weights=weights), columns=None)
    lists.labels[: lists.offsets[1]] = 0  # an empty list
    found = ItemTensors(lists, no_transform(lists)).batch(np.arange(9))
    return replace(found, weights=torch.tensor(lists.weights)) if weights else found


@pytest.mark.parametrize("mini", [False, True])
def test_a_member_is_a_network_with_scaled_weights(mini: bool) -> None:
    torch.manual_seed(0)
    model = small(4, mini=mini).eval()
    assert model.layers[0].scale.unique().tolist() == [-1, 1]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    data, part = batch(), dict(model.named_parameters())
    got = model.member_scores(data.features, data.mask)
    for i in range(3):

        def own(name: str, size: int, i: int = i) -> torch.Tensor:
            return part[name].view(3, size)[i]

        x = data.features * own("layers.0.scale", 4)
        if mini:
            x = (x @ part["layers.1.weight"].T + part["layers.1.bias"]).relu()
            x = (x @ part["layers.4.weight"].T + part["layers.4.bias"]).relu()
        else:
            x = (x @ part["layers.1.linear.weight"].T) * own("layers.1.scaling.scale", 6)
            x = (x + own("layers.1.bias", 6)).relu() * own("layers.4.scale", 6)
            x = (x @ part["layers.5.linear.weight"].T) * own("layers.5.scaling.scale", 4)
            x = (x + own("layers.5.bias", 4)).relu()
        expected = (x @ part["heads.weight"][i] + part["heads.bias"][i]) * data.mask
        torch.testing.assert_close(got[i], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(data.features, data.mask), got.mean(0))


@pytest.mark.parametrize("empty", ["keep", "skip"])
@pytest.mark.parametrize("loss", [lambdarank_loss, neural_ndcg_loss])
def test_a_step_takes_the_mean_of_the_members_losses(empty: str, loss) -> None:
    torch.manual_seed(0)
    data, model = batch(weights=True), small(4)
    settings = make_settings(compose("model=tabm", f"empty_lists={empty}", "l2=0.1"))
    each = [
        mean_over_batch(
            loss(scores, data.labels, data.mask),
            data.labels, data.mask, empty=empty, weights=data.weights,
        )
        for scores in model.member_scores(data.features, data.mask)
    ]  # fmt: skip
    matrices = [model.layers[1].linear.weight, model.layers[5].linear.weight, model.heads.weight]
    objective = sum(each) / 3
    penalty = 0.1 / 2 * sum(weight.square().sum() for weight in matrices)
    (objective + penalty).backward()
    expected = {name: p.detach() - 0.5 * p.grad for name, p in model.named_parameters()}
    stepper = Step(model, loss, torch.optim.SGD(model.parameters(), 0.5), settings)
    stepper(data)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=1e-6)
    ((value, weight, _),) = stepper.flush(1, 1, np.array(["q"] * 9))
    assert value == pytest.approx(objective.item(), rel=1e-5)
    counted = data.weights if empty == "keep" else data.weights[(data.labels > 0).any(-1)]
    assert weight == pytest.approx(counted.sum().item(), rel=1e-6)


def test_with_categories_the_members_are_seen_too() -> None:
    lists = mixed(9)
    network = model_for(small, fit_transform(lists)).eval()
    data = ItemTensors(lists, fit_transform(lists)).batch(np.arange(9))
    members = network.member_scores(data.features, data.mask)
    assert members.shape == (3, *data.mask.shape)
    torch.testing.assert_close(network(data.features, data.mask), members.mean(0))


def test_scored_in_parts_or_whole_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = small(4).eval(), batch()
    whole = model(data.features, data.mask)
    monkeypatch.setattr("ltr.models.tabm._ROWS", 21)
    torch.testing.assert_close(model(data.features, data.mask), whole, rtol=0, atol=1e-6)
